package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An Item is a reserved entry. No other consumer gets it until it is given back with [Item.Nack] or
// lost. [Item.Ack] removes it. An item is lost with its session, or if another client deletes its
// claim. It is safe for concurrent use.
type Item struct {
	grant  *recipe.Grant
	queue  *Queue
	under  *under
	claim  *claim
	ending atomic.Pointer[ending] // nil until that is decided
}

// An ending says how an item ends.
type ending struct {
	decision decision
	ops      []any  // of an acknowledgement
	tail     bool   // to a new place behind all others
	due      int64  // earliest delivery, in milliseconds since 1970; 0: at once
	reason   string // for readers
	cause    error  // for observers
}

type decision int

const (
	unused decision = iota // goes back without an attempt
	acknowledged
	refused
)

// Done returns a channel that is closed when the item has ended. [Item.Err] says whether it was
// lost, acknowledged or given back. Err can report a loss before Done is closed.
func (it *Item) Done() <-chan struct{} { return it.grant.Done() }

// Err returns nil while the item is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Item.Ack] or [Item.Nack] it wraps [protocol.ErrReleased]. Err computes the answer
// from the clocks at each call (without I/O). So a process that was paused finds out about a loss
// at once.
func (it *Item) Err() error { return it.grant.Err() }

// Context returns a copy of parent that is also cancelled when the item ends, with [Item.Err] as
// its cause. Its Err is computed from the clocks at each call, but a context derived from it is
// cancelled only when the client notices the loss. Call the cancel function when the work is done.
func (it *Item) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return it.grant.Context(parent)
}

// Token returns the fencing token. It is greater than the tokens of all earlier reservations of
// this item. If a store refuses tokens smaller than the greatest token it has seen for an item, a
// consumer that was paused can do no harm there. Items that were reserved together have the same
// token.
func (it *Item) Token() int64 { return it.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi fails with
// [zk.ErrNoNode] once this reservation has ended. Its path is absolute.
func (it *Item) Check() *zk.CheckVersionRequest { return it.grant.Check() }

// ID returns the item's ID, as [Queue.Offer] returned it. It never changes (but a dead letter gets
// a new ID).
func (it *Item) ID() string { return it.claim.record.ID }

// Data returns the data as offered. You must not change it, because it may go back.
func (it *Item) Data() []byte { return it.claim.data }

// Since returns when the item was first offered, by the server's clock (in milliseconds). Moves by
// [After], [AtTail] and [WithDeadLetter] don't change it.
func (it *Item) Since() time.Time { return time.UnixMilli(it.claim.record.Since) }

// Attempt returns how often the item was reserved (the first attempt is 1). It goes on counting
// across [After] and [AtTail]. It begins again with the dead letters and with [Queue.Redrive]. A
// reservation counts if it ends by [Item.Nack] or with its session. It doesn't count if
// [Queue.Consume] gives the item back unfinished.
func (it *Item) Attempt() int { return it.claim.record.Attempts }

// Reason returns why the last attempt failed, if [Because] or [Queue.Consume] has said so. It has
// up to 4 kB.
func (it *Item) Reason() string { return it.claim.record.Reason }

// Origin describes where a dead letter comes from: the path of its queue, its ID there, its
// attempts and the reason. For other items it is empty.
func (it *Item) Origin() string { return describe(it.claim.record) }

// Ack removes the item from the queue. The transaction checks that this consumer still has the
// item. The item ends at once. Ack blocks until the server has answered, or ctx or the session
// ends. If ctx ends first, Ack returns ctx's error and the client goes on in the background.
//
// With ops (as for [Item.Multi]), one transaction removes the item and does the ops, or does
// neither. So the ops happen exactly once. If the server refuses an op, the item is given back and
// the error says which op it was.
//
// If the item was lost before, Ack changes nothing and its error wraps [protocol.ErrLost]. If the
// session was lost with the answer, the error also wraps [protocol.ErrUncertain]: the item was
// removed or it comes back. After [Item.Nack] the error wraps [protocol.ErrReleased].
//
// After any other error (say [zk.ErrNoAuth]) the item was given back and will be delivered again.
// If that error wraps [protocol.ErrUncertain], the item may have been removed instead. If ops are
// bad, Ack sends nothing and the item is still held.
//
// If you call Ack again, it returns the same error. Concurrent calls are safe: the ops of the first
// call count.
func (it *Item) Ack(ctx context.Context, ops ...any) error {
	absolute, err := it.under.of.Absolute(ops...)
	if err != nil {
		return it.queue.recipe.Wrap(err)
	}
	return it.decide(ctx, &ending{decision: acknowledged, ops: absolute})
}

// Multi is the fenced write: it does all of ops if this consumer still has the item, or none of
// them. Operations are pointers to [zk.CreateRequest], [zk.SetDataRequest], [zk.DeleteRequest] and
// [zk.CheckVersionRequest]. Their paths are below the client's chroot. A create without an ACL gets
// the client's ACL. Multi returns the answers for ops.
//
// Multi blocks until the server has answered, or ctx or the session ends. It does nothing twice. If
// the item was lost before, nothing was done and the error wraps [protocol.ErrLost]. After
// [Item.Ack] or [Item.Nack] the error wraps [protocol.ErrReleased]. If the server refuses an op,
// nothing was done and the error says which op it was. If ctx or the session ends before the
// outcome is known, the error wraps [protocol.ErrUncertain]. (To remove the item with the ops, give
// them to [Item.Ack].) If a reply is lost, an ephemeral node beside the item's node settles the
// outcome: see [recipe.Grant.Multi].
func (it *Item) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return it.grant.Multi(ctx, ops...)
}

// Nack gives the item back. Without options it returns to its place in the queue. [After] delays it
// and [AtTail] moves it. If this was the last attempt that [WithDeadLetter] allows, the item goes
// to the dead letters instead. Nack blocks and returns errors as [Item.Ack] does. After Nack, Ack
// is refused. Of several Nacks the first counts.
//
// If an option is bad, Nack sends nothing and the item is still held.
//
// If an item can't be moved, it returns to its place and Nack returns the reason. (The error wraps
// [protocol.ErrSequenceExhausted] if the new place has no numbers left.) A full quota allows no
// move at all. Then Nack returns [protocol.ErrQuotaExceeded] and goes on trying in the background
// until the quota has room or the session ends.
func (it *Item) Nack(ctx context.Context, opts ...NackOption) error {
	e := &ending{decision: refused, reason: "given back"}
	call := it.queue.recipe.Mode("nack")
	recipe.Configure(call, e, opts)
	if err := call.Validate(nil); err != nil {
		return call.Wrap(err)
	}
	return it.decide(ctx, e)
}

// decide ends the item as e says, unless another ending was decided before.
func (it *Item) decide(ctx context.Context, e *ending) error {
	if err := it.queue.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	it.ending.CompareAndSwap(nil, e)
	if it.ending.Load().decision != e.decision {
		return it.queue.recipe.Wrap(fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}

	err := it.grant.Release(ctx)
	if r := (*refusedOperation)(nil); errors.As(err, &r) {
		err = it.queue.recipe.Wrap(r.error)
	}
	return err
}

// A refusedOperation is why an acknowledgement was refused. It doesn't unwrap, because the grant
// would take [zk.ErrNoNode] for the end of the claim.
type refusedOperation struct{ error }

// carryOut carries out the decision and releases the grant. An item that came after its caller had
// left is unused.
func (it *Item) carryOut(life context.Context, work *recipe.Session) error {
	u, c, e := it.under, it.claim, cmp.Or(it.ending.Load(), new(ending))
	// The reason is cut, because offers leave room for a record of limited size.
	failed := c.record.WithReason(e.reason, layout.ReasonLength(work.RequestLimit()))
	kind := protocol.EventReturned
	var err error
	switch {
	case e.decision == acknowledged:
		kind = protocol.EventAcknowledged
		err = u.settle(life, work, []*claim{c}, e.ops...)
		if i := refusedAt(err); i > 0 {
			err = &refusedOperation{fmt.Errorf("operation %d of %d, %T: %w", i, len(e.ops), e.ops[i-1], err)}
		}
	case e.decision == unused:
		err = u.putBack(life, work, c, &u.place, move{record: c.before()})
	case it.lastAttempt():
		kind = protocol.EventDeadLettered
		err = it.toDeadLetters(life, work, failed)
	default:
		err = u.putBack(life, work, c, &u.place, move{record: failed, tail: e.tail, due: e.due})
	}

	switch {
	case err == nil && e.decision == unused:
	case err == nil:
		it.report(life, kind, e.cause)
	case err == errGone:
		err = fmt.Errorf("%w: %w: %s is not reserved by this item any more", protocol.ErrLost, protocol.ErrNodeDeleted, it.ID())
	case u.session.Err() == nil:
		if e.decision == acknowledged {
			failed = c.record.WithReason(err.Error(), layout.ReasonLength(work.RequestLimit()))
		}

		// An item that has ended must not stay reserved, whatever the reason.
		u.giveUp(life, work, c, failed)
	case errors.Is(err, context.Canceled) && !errors.Is(err, protocol.ErrUncertain):
		// This is the end of life, which ends with the session.
		err = u.session.Err()
	case !errors.Is(err, protocol.ErrLost):
		err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
	}

	return err
}

func (it *Item) report(ctx context.Context, kind protocol.EventKind, failure error) {
	it.queue.reserves.Report(protocol.Event{
		Kind: kind, Context: ctx, Session: it.under.session.ID(), Token: it.claim.stat.Czxid, Count: 1, Err: failure,
	})
}

// lastAttempt reports whether the item becomes a dead letter unless it is acknowledged.
func (it *Item) lastAttempt() bool {
	return it.queue.deadLetters != nil && it.Attempt() >= it.queue.attempts
}

// toDeadLetters moves the entry to the dead letters.
func (it *Item) toDeadLetters(life context.Context, work *recipe.Session, record layout.Record) error {
	letter := layout.Record{
		ID: layout.DeadID(it.claim.unique()), Since: record.Since, Reason: record.Reason,
		Origin: &layout.Origin{Queue: it.queue.path, ID: record.ID, Attempts: record.Attempts},
	}
	return it.under.putBack(life, work, it.claim, &it.queue.deadLetters.place, move{record: letter, tail: true})
}

// toDeadLettersLate moves an entry that was reserved once too often to the dead letters. If they
// refuse it, the entry is given back and set aside.
func (it *Item) toDeadLettersLate(life context.Context, work *recipe.Session) error {
	u, record := it.under, it.claim.before()
	record.Reason = cmp.Or(record.Reason, "not acknowledged by its last consumer")
	err := it.toDeadLetters(life, work, record)
	switch {
	case err == nil:
		it.report(life, protocol.EventDeadLettered, nil)
	case err == errGone:
	case u.session.Err() != nil:
		return u.session.Err()
	default:
		// Unless it is set aside, the entry would be reserved and refused again and again.
		if !errors.Is(err, protocol.ErrUncertain) {
			u.setAside(record.Node, fmt.Errorf("move to the dead letters at %s: %w", it.queue.deadLetters.path, err))
		}

		u.letGo(life, work, it.claim)
	}

	return nil
}

// Reserve reserves the first entry that is not reserved. It blocks until there is such an entry. If
// a session is lost, it goes on waiting in the next session. You must acknowledge the item, or it
// comes back (at once with [Item.Nack], or when the session ends).
//
// If ctx ends, Reserve returns an error that wraps ctx's error. If it has reserved an entry, it
// gives it back in the background. If a quota is full, the error wraps [protocol.ErrQuotaExceeded].
// Other errors wrap [protocol.ErrClosed] or [zk.ErrInvalidPath], or are the server's own.
//
// A reservation writes the entry's data once more. If a foreign entry is too large for that,
// Reserve returns [protocol.ErrTooLarge]. ([Queue.Take] can remove it.)
func (q *Queue) Reserve(ctx context.Context) (*Item, error) {
	return q.reserve(ctx, true)
}

// TryReserve is [Queue.Reserve] without the wait: if there is no such entry, it returns [ErrEmpty].
func (q *Queue) TryReserve(ctx context.Context) (*Item, error) { return q.reserve(ctx, false) }

func (q *Queue) reserve(ctx context.Context, wait bool) (it *Item, err error) {
	_, err = q.reserves.Acquire(ctx, nil, func(*recipe.Session) (*recipe.Grant, error) {
		// The retries of what callers share have no mode.
		s, err := q.recipe.Session(ctx)
		if err != nil {
			return nil, err
		}

		for u := q.under(s); ; {
			r := &removal{max: 1, wait: wait, reserve: true}
			if err := u.requests.Do(ctx, r); err != nil {
				return nil, err
			}

			it, err = q.itemFor(ctx, u, r.claims[0])
			if err != nil {
				return nil, err
			}

			// If the entry has become a dead letter, we need another entry.
			if it != nil {
				return it.grant, nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return it, nil
}

// itemFor turns a claim into an item. If the claim has had all its attempts, it becomes a dead
// letter and there is no item.
func (q *Queue) itemFor(ctx context.Context, u *under, c *claim) (*Item, error) {
	it := &Item{queue: q, under: u, claim: c}
	if q.deadLetters != nil && c.record.Attempts > q.attempts {
		return recipe.Detach(ctx, u.of, func(life context.Context, work *recipe.Session) (*Item, error) {
			return nil, it.toDeadLettersLate(life, work)
		}, nil)
	}

	if c.record.Attempts > 1 {
		it.report(ctx, protocol.EventRedelivered, nil)
	}

	var err error
	it.grant, err = q.reserves.NewNamedGrant(ctx, u.of, q.path+c.node(), c.stat.Czxid, it.carryOut)
	if err != nil {
		u.session.Go(func(life context.Context, work *recipe.Session) { u.giveUp(life, work, c, c.before()) })
		return nil, err
	}

	// The grant has the claim's name, which is never used again.
	it.grant.AfterFunc(func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			// Another client has ended the item, or the session has ended. But if the claim only
			// can't be seen any more (for lack of a permission), it is still there and must go
			// back.
			u.session.Go(func(life context.Context, work *recipe.Session) { u.giveUp(life, work, c, c.record) })
		}
	})

	return it, nil
}

// A NackOption says where [Item.Nack] puts an item. A nil option does nothing.
type NackOption func(*ending) error

// After delays the item: it isn't delivered again before d has passed. Then it goes back to its
// place. (The time is this client's, and consumers compare it with their own clocks.)
func After(d time.Duration) NackOption {
	return func(e *ending) error {
		if d < 0 {
			return fmt.Errorf("a delay of %v is negative", d)
		}
		e.due = dueAfter(d)
		return nil
	}
}

// AtTail moves the item behind all other entries.
func AtTail() NackOption {
	return func(e *ending) error {
		e.tail = true
		return nil
	}
}

// Because says why the attempt failed. [Info] and [Item.Reason] show up to 4 kB of its text. The
// observer gets the error.
func Because(failure error) NackOption {
	return func(e *ending) error {
		if failure == nil {
			return errors.New("the reason of a failure is nil")
		}
		e.reason, e.cause = failure.Error(), failure
		return nil
	}
}
