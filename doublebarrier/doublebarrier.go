package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrFull is returned by [Barrier.Enter] if a round is in progress, or if n others came first.
var ErrFull = errors.New("barrier is full")

// A Barrier lets n members in together and out together, round after round. Each call of
// [Barrier.Enter] is a member, in any number of processes and goroutines. It is safe for concurrent
// use.
//
// The algorithm is the double barrier of the ZooKeeper documentation's recipes, with ephemeral
// members and the node "ready" as a gate. [Barrier.Enter] and [Entry.Leave] describe our additions.
type Barrier struct {
	site
	n     int
	waits bool
	keeps bool // the number of rounds
	data  []byte
}

// An Option shapes a barrier; give it to [New].
type Option func(*Barrier) error

// WithWaiting makes [Barrier.Enter] wait instead of returning [ErrFull]: Enter joins again when the
// present round has ended. It has no place in line meanwhile.
func WithWaiting() Option {
	return func(b *Barrier) error {
		b.waits = true
		return nil
	}
}

// WithData stores data in the node of each member, for [Barrier.Waiting] to show, instead of the
// [protocol.Process] or what [protocol.WithOwnerData] says. Data and path together may have
// [recipe.MaxData] bytes; [Barrier.Enter] returns [protocol.ErrTooLarge] for more. The caller must
// not change the slice afterwards.
func WithData(data []byte) Option {
	return func(b *Barrier) error {
		b.data = data
		return nil
	}
}

// WithKeptRounds keeps the number of rounds for [Entry.Round] even while no member is there.
//
// Without it, the server forgets the number some time after the last member has gone: with
// ZooKeeper's defaults, within two minutes. With it, the node process is not a container, so it and
// the nodes above it stay until they are deleted by hand. It costs no request. The member that
// creates the nodes decides, so give the option to all members of a path.
func WithKeptRounds() Option {
	return func(b *Barrier) error {
		b.keeps = true
		return nil
	}
}

// New returns the double barrier at path for n members. All members must agree on n. (They can
// agree on another number when no member is left.) The path needs a node of its own, which is
// created as needed.
//
// New does no I/O and cannot fail. The first call reports a nil client, a bad path, a bad option,
// an n below one, or an n that is too large. The opening of a gate is one transaction that names
// each member, so the limit is several thousand.
func New(c *protocol.Client, path string, n int, opts ...Option) *Barrier {
	b := &Barrier{site: site{recipe.New(c, "doublebarrier", path)}, n: n}
	if n < 1 {
		b.recipe.Reject(fmt.Errorf("%d members, at least one is needed", n))
	}
	recipe.Configure(b.recipe, b, opts)
	return b
}

// Enter joins the barrier and waits for n members. It blocks until then, or until ctx ends or the
// client is closed.
//
// One transaction lets in all n members of a round. It fails if a member has gone, so either all
// are let in or none. The first to come are the first to be let in. If a round is in progress or n
// others came first, Enter returns an error that wraps [ErrFull] (or waits if the Barrier was made
// [WithWaiting]). If all members of a gate have died, the next member removes it.
//
// If ctx ends, Enter withdraws and returns an error that wraps ctx's. That error is a promise: no
// round has counted this call or will count it. If a round has counted it already, Enter returns
// the entry and no error. Finding out takes up to 50 ms after the end of ctx. If the outcome is
// still unknown, the error also wraps [protocol.ErrUncertain]. Then the withdrawal goes on in the
// background, and a call that was counted leaves at once: to the other members it has died inside.
// If the server refuses the withdrawal, Enter returns that error and tries again in the background
// until its session ends.
//
// If Enter loses its session or its node while it waits, it joins again (in the next session, if
// the session was lost). If a round in progress has counted it by then, it returns an error that
// wraps [protocol.ErrLost]: to the other members it has died. If that round has ended, Enter cannot
// know about it and joins the next round under another name. If Enter fails after that, its error
// wraps [protocol.ErrUncertain].
//
// If the first in line expects another number of members, Enter withdraws and returns an error that
// wraps [ErrSize] and says both numbers. That takes no longer than the server's answers. (Of two
// members that disagree and come at the same time, the second notices when the first has written
// its number.) Members that agree go on waiting.
//
// Other errors wrap [protocol.ErrClosed], [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted],
// [zk.ErrInvalidPath] or [zk.ErrNodeExists] (nodes of another library are at the path). All others
// are the server's own (for example [zk.ErrNoAuth]). The entry does not depend on ctx. It is lost
// with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNodeExists]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNodeExists
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (b *Barrier) Enter(ctx context.Context) (*Entry, error) {
	if err := b.recipe.ValidateCall(ctx, b.data); err != nil {
		return nil, err
	}

	began := time.Now()
	b.recipe.Waiting(ctx)
	caller, stop := recipe.Linger(ctx, grace)
	defer stop()

	a := &arrival{barrier: b, caller: caller}
	o, err := recipe.AcrossSessions(ctx, b.recipe, func(s *recipe.Session) (outcome, error) {
		return a.attempt(ctx, s)
	})
	if err != nil { // there may be no session at the moment
		o.err = err
	}
	if o.err != nil && !errors.Is(o.err, errCounted) && a.doubt.Load() {
		o.err = fmt.Errorf("%w: %w whether this member was counted", o.err, protocol.ErrUncertain)
	}

	token := int64(0)
	if o.entry != nil {
		token = o.entry.Token()
	}
	o.err = b.recipe.Wrap(o.err)
	b.recipe.Waited(ctx, began, a.session, token, o.err)
	return o.entry, o.err
}

// grace is how long Enter goes on after the end of its ctx to find out whether it was counted.
const grace = 50 * time.Millisecond

// panicTimeout is how long a panic of fn waits for the release.
const panicTimeout = time.Second

// Do enters, calls fn with the entry and leaves (even if fn fails). The context of fn is cancelled
// when the entry is lost. Its cause then wraps [protocol.ErrLost].
//
// Do blocks as [Barrier.Enter] does, until fn has returned, and then as [Entry.Leave] does. If fn
// panics, Do gives up its place and does not wait for the other members. It returns Enter's error,
// or fn's error joined with Leave's error.
func (b *Barrier) Do(ctx context.Context, fn func(ctx context.Context, e *Entry) error) (err error) {
	if fn == nil {
		return b.recipe.Wrap(errors.New("nil function"))
	}
	e, err := b.Enter(ctx)
	if err != nil {
		return err
	}

	held, cancel := e.Context(ctx)

	returned := false
	defer func() {
		cancel()
		if !returned {
			release, stop := context.WithTimeout(context.WithoutCancel(ctx), panicTimeout)
			defer stop()
			e.grant.Release(release)
			return
		}
		err = errors.Join(err, e.Leave(ctx))
	}()

	err = fn(held, e)
	returned = true
	return err
}
