package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// ErrFull is returned by [Barrier.Enter] when it comes to a round that is under way, or when n
// others came first.
var ErrFull = errors.New("barrier is full")

// A Barrier lets n members in together, and out together, round after round. Its members are the
// calls of [Barrier.Enter], of any number of processes; goroutines that share a Barrier count as
// processes do. It is safe for concurrent use.
//
// The algorithm is the double barrier of the ZooKeeper documentation's recipes, with ephemeral
// members and the node "ready" for a gate. [Barrier.Enter] and [Entry.Leave] describe what is
// added.
type Barrier struct {
	recipe *protocol.Recipe
	n      int
	waits  bool
	keeps  bool // the number of rounds
	data   []byte
}

// An Option shapes a barrier; give it to [New].
type Option func(*Barrier) error

// WithWaiting makes [Barrier.Enter] wait where it would return [ErrFull]: Enter joins again when
// the round that is under way has ended. Its place in line is not kept meanwhile.
func WithWaiting() Option {
	return func(b *Barrier) error {
		b.waits = true
		return nil
	}
}

// WithData stores data in the node of each member, for [Barrier.Waiting] to show, instead of the
// [protocol.Process] or what [protocol.WithOwnerData] says. Data and path together may have
// [protocol.MaxData] bytes; [Barrier.Enter] returns [protocol.ErrTooLarge] for more. The caller
// must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(b *Barrier) error {
		b.data = data
		return nil
	}
}

// WithKeptRounds keeps the number of rounds for [Entry.Round] also while no member is there.
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

// New returns the double barrier at path for n members. All of them have to agree on n, and may
// agree on another number when no member is left. The path is a node of its own that is created as
// needed.
//
// New does no I/O and cannot fail. The first call reports a nil client, a bad path, a bad option,
// an n below one, or an n that is too large. The opening of a gate is one transaction that names
// each member, so the limit is several thousand.
func New(c *protocol.Client, path string, n int, opts ...Option) *Barrier {
	b := &Barrier{recipe: protocol.NewRecipe(c, "doublebarrier", path), n: n}
	if n < 1 {
		b.recipe.Reject(fmt.Errorf("%d members, at least one is needed", n))
	}
	protocol.Configure(b.recipe, b, opts)
	return b
}

// Enter joins the barrier and waits until n members have. It blocks until then, until ctx ends or
// the client is closed.
//
// One transaction lets in all n members of a round. It counts each of them, and fails if one has
// gone: either all are let in or none is. The first to come are the first to be let in. A call that
// comes to a round that is under way, or after n others, gets an error that wraps [ErrFull], or
// waits if the Barrier was made [WithWaiting]. A gate whose members have all died is removed by the
// next member that comes.
//
// If ctx ends, Enter withdraws and returns an error that wraps ctx's. That error is a promise: no
// round has counted, or will count, this call. If a round has counted it already, Enter returns the
// entry and no error, though ctx has ended. To find out, Enter takes up to 50 ms after the end of
// ctx. If the outcome is not known by then, the error also wraps [protocol.ErrUncertain]. The
// withdrawal goes on in the background, and if the call turns out to be counted, it leaves at once.
// To the other members it has died inside. The same holds if the server refuses the withdrawal.
// Then Enter returns that error, and tries again in the background until its session ends.
//
// If Enter loses its session or its node while it waits, it joins again. After the loss of a
// session it does so in the next one. If it then finds itself counted by a round that is under way,
// it returns an error that wraps [protocol.ErrLost]: to the other members it has died. If that
// round has ended, Enter may not know of it, and joins the next round under another name. An error
// that it returns after that wraps [protocol.ErrUncertain].
//
// If the first in line expects another number of members, Enter withdraws and returns an error that
// wraps [ErrSize] and says both numbers. That takes no longer than the server's answers, unless two
// members that disagree come at the same time. Then the other one notices when the first has
// written its number. Members that agree wait on.
//
// Other errors wrap [protocol.ErrClosed], [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted],
// [zk.ErrInvalidPath], or [zk.ErrNodeExists] if nodes of another library are at the path, or are
// the server's own, such as [zk.ErrNoAuth]. The entry does not depend on ctx. It is lost with its
// session.
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
	caller, stop := linger(ctx)
	defer stop()

	a := &arrival{barrier: b, caller: caller}
	o, err := protocol.AcrossSessions(ctx, b.recipe, func(s *protocol.Session) (outcome, error) {
		return a.attempt(ctx, s)
	})
	if err != nil { // which may be between two sessions
		o = outcome{err: a.uncertain(err)}
	}

	o.err = b.recipe.Wrap(o.err)
	if o.entry == nil {
		b.recipe.Waited(ctx, began, a.session, 0, o.err)
	} else {
		b.recipe.Waited(ctx, began, a.session, o.entry.Token(), o.err)
	}
	return o.entry, o.err
}

// Do enters, calls fn, and leaves, also if fn fails. The context of fn is cancelled when the entry
// is lost, and its cause then wraps [protocol.ErrLost].
//
// Do blocks as [Barrier.Enter] does, then until fn has returned, and then as [Entry.Leave] does. If
// fn panics, Do gives up its place and does not wait for the other members. It returns an error of
// Enter, or fn's, joined with that of Leave.
func (b *Barrier) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
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
			e.grant.Release(context.WithoutCancel(ctx))
			return
		}
		err = errors.Join(err, e.Leave(ctx))
	}()

	err = fn(held)
	returned = true
	return err
}
