package semaphore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

var (
	// ErrNoPermit is returned by TryAcquire and TryDo when they would have to wait.
	ErrNoPermit = line.NewBusy("no permit")

	// ErrPermits is returned to a semaphore [WithStrictPermits] if the path has another number of
	// permits, and to any semaphore if the data of the path's node are not a number.
	ErrPermits = errors.New("another number of permits")
)

// A Semaphore lets a number of callers hold a permit at a time, in order of arrival. Goroutines
// that share a Semaphore contend as processes do. It is safe for concurrent use.
//
// Contenders are ephemeral sequential nodes. With n permits, a contender waits until one of the n
// nodes before it is gone and looks again. The number is the data of the path's node, in decimal
// digits as in kazoo's Semaphore.
type Semaphore struct {
	recipe  *recipe.Recipe
	line    *line.Line
	permits int
	strict  bool
	data    []byte
}

// A Contender is one node in line for a permit, a holder's or a waiter's.
type Contender = line.Contender

// An Option shapes a semaphore; give it to [New].
type Option func(*Semaphore) error

// WithData stores data in the node of each contender. [Semaphore.Contenders] shows it. By default
// the data is the [protocol.Process] or the data of [protocol.WithOwnerData]. Data and path
// together may have [recipe.MaxData] bytes. The caller must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(s *Semaphore) error {
		s.data = data
		return nil
	}
}

// WithStrictPermits makes calls return [ErrPermits] if the path has another number of permits than
// [New] was given. Waiting contenders get that error as soon as [Semaphore.Resize] has changed the
// number.
func WithStrictPermits() Option {
	return func(s *Semaphore) error {
		s.strict = true
		return nil
	}
}

// New returns the semaphore at path, which needs a node of its own (created as needed). permits is
// the number for a path that has none yet. Otherwise the path's number counts until
// [Semaphore.Resize] changes it. New does no I/O and cannot fail: the first call reports a nil
// client, a bad path or less than one permit.
//
// The path's node is a container where the server has them. After some idle minutes the server
// deletes it with its number, and the next contender writes the number again. After a Resize the
// node stays.
func New(c *protocol.Client, path string, permits int, opts ...Option) *Semaphore {
	r := recipe.New(c, "semaphore", path)
	s := &Semaphore{recipe: r, line: line.New(r, line.Kind{Name: kind}), permits: permits}
	s.line.Follow([]byte(strconv.Itoa(permits)), s.blockers)
	r.Reject(atLeastOne(permits))
	recipe.Configure(r, s, opts)
	return s
}

// kind precedes the number in a contender's name: <owner>-permit-<sequence>.
const kind = "permit-"

func atLeastOne(permits int) error {
	if permits < 1 {
		return fmt.Errorf("a semaphore needs at least one permit, got %d", permits)
	}
	return nil
}

// blockers returns the rule for the number of permits in the node's data.
func (s *Semaphore) blockers(data []byte) (line.Blockers, error) {
	n, err := parse(data)
	if err == nil && s.strict && n != s.permits {
		err = fmt.Errorf("%w: %d here, %d at the path", ErrPermits, s.permits, n)
	}
	return line.Permits(n), err
}

// parse reads the number. Python allows spaces around it.
func parse(data []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: the path's node has data that are no number: %.40q", ErrPermits, data)
	}
	return n, nil
}

// Acquire waits for a permit. It blocks until fewer than n earlier contenders are left, ctx ends or
// the client is closed. If ctx ends, the session is lost or its node is deleted, it behaves as
// [lock.Mutex.Lock] does. It returns the same errors or [ErrPermits]. The very first contender
// writes the number and gets [zk.ErrNoAuth] if the ACL forbids that.
//
// [lock.Mutex.Lock]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Mutex.Lock
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) { return s.acquire(ctx, false) }

// TryAcquire returns a permit, or an error that wraps [ErrNoPermit] if it would have to wait. It
// blocks until the server has answered: one or two reads if there is no permit, otherwise a write
// and a read more.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, error) { return s.acquire(ctx, true) }

func (s *Semaphore) acquire(ctx context.Context, try bool) (*Permit, error) {
	request := line.Request{Kind: kind, Data: s.data, Try: try}
	g, err := s.recipe.Acquire(ctx, s.data, func(session *recipe.Session) (*recipe.Grant, error) {
		g, err := s.line.Join(ctx, session, &request)
		if errors.Is(err, line.ErrBusy) {
			err = ErrNoPermit
		}
		return g, err
	})
	if err != nil {
		return nil, err
	}
	return &Permit{g}, nil
}

// Do calls fn while it holds a permit, with a context that is cancelled when the permit is lost. It
// waits for fn to return and gives the permit back, even if fn panics or ctx has ended. It returns
// an error of [Semaphore.Acquire] or fn's own. If the permit was lost, the loss is joined with that
// error. So is the server's error if it refuses to delete the node.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, p *Permit) error) error {
	return s.do(ctx, false, fn)
}

// TryDo is [Semaphore.Do] with [Semaphore.TryAcquire].
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context, p *Permit) error) error {
	return s.do(ctx, true, fn)
}

func (s *Semaphore) do(ctx context.Context, try bool, fn func(ctx context.Context, p *Permit) error) error {
	if fn == nil {
		return s.recipe.Wrap(errors.New("nil function"))
	}
	p, err := s.acquire(ctx, try)
	if err != nil {
		return err
	}
	return recipe.RunHeld(ctx, p.grant, func(ctx context.Context) error { return fn(ctx, p) })
}

// Contenders returns the contenders in line, in order of arrival: the holders, then the waiters. It
// blocks until the server has answered or ctx ends. It makes one request for each of them.
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	all, err := s.line.Contenders(ctx)
	return slices.DeleteFunc(all, func(c line.Contender) bool {
		_, ok := line.ParseName(c.Node, kind)
		return !ok
	}), err
}

// Break deletes the node of a contender, given its name in [Semaphore.Contenders]. A holder then
// loses its permit and a waiter goes to the end of the line. Break blocks until the server has
// answered. Its error wraps [zk.ErrNoNode] if there is no such node, or [zk.ErrInvalidPath] if no
// contender could have that name.
func (s *Semaphore) Break(ctx context.Context, node string) error { return s.line.Break(ctx, node) }
