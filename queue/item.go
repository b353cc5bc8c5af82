package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// An Item is an entry that is reserved: no other consumer gets it until it is given back with
// [Item.Nack] or lost. [Item.Ack] removes it. It is lost with its session, or when another client
// deletes its claim. It is safe for concurrent use.
type Item struct {
	grant *protocol.Grant
	queue *Queue
	under *under
	claim *claim

	mu       sync.Mutex // protects what follows
	decision decision
	nack     nack  // how it was refused
	ops      []any // done with the acknowledgement
}

// A decision says what becomes of an item.
type decision int

const (
	undecided decision = iota
	acknowledged
	refused
	unused // it was not handed over
)

// Done returns a channel that is closed when the item is lost, acknowledged or given back.
// [Item.Err] says which, and can report a loss before Done is closed.
func (it *Item) Done() <-chan struct{} { return it.grant.Done() }

// Err returns nil while the item is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Item.Ack] or [Item.Nack] it wraps [protocol.ErrReleased]. Err computes the answer
// from the clocks at each call, without I/O: in a process that was paused it reports the loss at
// once.
func (it *Item) Err() error { return it.grant.Err() }

// Context returns a copy of parent that is also cancelled when the item is lost, acknowledged or
// given back, with [Item.Err] as its cause. Its own Err is computed from the clocks at each call. A
// context derived from it is cancelled when the loss is noticed. Call the cancel function when the
// work is done.
func (it *Item) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return it.grant.Context(parent)
}

// Token returns the fencing token, which is greater than the tokens of all earlier reservations of
// this item. A store that refuses tokens smaller than the greatest it has seen for an item is safe
// from a consumer that was paused. Items that were reserved together have the same token.
func (it *Item) Token() int64 { return it.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once this reservation has ended. The path in it is absolute.
func (it *Item) Check() *zk.CheckVersionRequest { return it.grant.Check() }

// ID returns the item's ID, as [Queue.Offer] has returned it. It never changes, except that a dead
// letter gets a new ID.
func (it *Item) ID() string { return it.claim.record.ID }

// Data returns the data as offered.
func (it *Item) Data() []byte { return it.claim.data }

// Since returns when the item was offered first, by the server's clock, to the millisecond. Moves
// by [After], [AtTail] and [WithDeadLetter] do not change it.
func (it *Item) Since() time.Time { return time.UnixMilli(it.claim.record.Since) }

// Attempt returns how often the item was reserved, this time included: 1 for the first time. It
// goes on counting across [After] and [AtTail], and begins again with the dead letters and with
// [Queue.Redrive]. Reservations that end by [Item.Nack] or with their session count. Items that
// [Queue.Consume] gives back unfinished when it ends don't.
func (it *Item) Attempt() int { return it.claim.record.Attempts }

// Reason returns why the last attempt failed, if [Because] or [Queue.Consume] has said so (up to 4
// kB).
func (it *Item) Reason() string { return it.claim.record.Reason }

// Origin returns, as text, where a dead letter is from and why: the path of its queue, its ID
// there, its attempts and the reason. It is empty for other items.
func (it *Item) Origin() string { return describe(it.claim.record) }

// Ack removes the item from the queue, in one transaction with the check that this consumer still
// has it. The item ends at once. Ack blocks until the server has answered, ctx ends or the session
// ends. If ctx ends first, Ack returns ctx's error and the client goes on in the background.
//
// With ops (as for [Item.Multi]), one transaction removes the item and does the ops, or neither, so
// that the ops happen exactly once. If the server refuses an op, the item is given back and the
// error says which op it was.
//
// If the item was lost before, Ack changes nothing and returns an error that wraps
// [protocol.ErrLost]. If the session was lost with the answer, the error wraps
// [protocol.ErrUncertain] too: the item was removed, or comes back. After [Item.Nack] the error
// wraps [protocol.ErrReleased].
//
// After any other error, [zk.ErrNoAuth] for example, the item has been given back and will be
// delivered again. If that error wraps [protocol.ErrUncertain], it may have been removed instead.
// Bad ops are an error before anything is sent, and the item is still held.
//
// Ack can be called again and then returns the same. Concurrent calls are safe: the first call's
// ops count.
func (it *Item) Ack(ctx context.Context, ops ...any) error {
	if err := it.queue.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}
	absolute, err := it.under.of.Absolute(ops...)
	if err != nil {
		return it.queue.recipe.Wrap(err)
	}
	return it.decide(ctx, acknowledged, nack{}, absolute)
}

// Multi is the fenced write: it does all of ops if this consumer still has the item, or none.
// Operations are pointers to [zk.CreateRequest], [zk.SetDataRequest], [zk.DeleteRequest] and
// [zk.CheckVersionRequest], with paths below the client's chroot. A create without an ACL gets the
// client's ACL. Multi returns the answers for ops.
//
// Multi blocks until the server has answered, ctx ends or the session ends, and does nothing twice.
// If the item was lost before, nothing was done and the error wraps [protocol.ErrLost]. After
// [Item.Ack] or [Item.Nack] it wraps [protocol.ErrReleased]. If the server refuses an op, the error
// says which, and nothing was done. If ctx or the session ends before the outcome is known, the
// error wraps [protocol.ErrUncertain]. [Item.Ack] takes ops, too, and removes the item with them. A
// lost reply is settled by an ephemeral node beside the item's: see [protocol.Grant.Multi].
func (it *Item) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return it.grant.Multi(ctx, ops...)
}

func (it *Item) gone() error {
	return fmt.Errorf("%w: %w: %s is not reserved by this item any more", protocol.ErrLost, protocol.ErrNodeDeleted, it.ID())
}

// Nack gives the item back. Without options it returns to its place in the queue. [After] delays
// it, and [AtTail] moves it. If it was the last attempt that [WithDeadLetter] grants, it goes to
// the dead letters instead. Nack blocks and returns errors as [Item.Ack] does. After Nack, Ack is
// refused. Of several Nacks the first counts.
//
// A bad option is an error before anything is sent, and the item is still held.
//
// An item that cannot be moved returns to its place, and Nack returns why. The error wraps
// [protocol.ErrSequenceExhausted] if its new place has no numbers left. A full quota allows no move
// at all: then Nack returns [protocol.ErrQuotaExceeded], and tries again in the background until the
// quota has room or the session ends.
func (it *Item) Nack(ctx context.Context, opts ...NackOption) error {
	if err := it.queue.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}
	n := nack{reason: "given back"}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option(&n); err != nil {
			return it.queue.recipe.Wrap(err)
		}
	}
	return it.decide(ctx, refused, n, nil)
}

// decide ends the item as d says, unless it has ended in another way.
func (it *Item) decide(ctx context.Context, d decision, n nack, ops []any) error {
	it.mu.Lock()
	if it.decision == undecided {
		it.decision, it.nack, it.ops = d, n, ops
	}
	final := it.decision
	it.mu.Unlock()

	if final != d {
		return it.queue.recipe.Wrap(fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}
	return it.grant.Release(ctx)
}

// carryOut does what was decided and releases the grant.
func (it *Item) carryOut(life context.Context, work *protocol.Session) error {
	it.mu.Lock()
	d, n, ops := it.decision, it.nack, it.ops
	it.mu.Unlock()

	u, c := it.under, it.claim
	last := d == refused && it.lastAttempt()
	failed := c.record.WithReason(n.reason, layout.ReasonLength(work.RequestLimit()))
	var err error
	switch {
	case d == acknowledged:
		err = u.settle(life, work, []*claim{c}, ops...)
		if i := refusedAt(err); i > 0 {
			err = fmt.Errorf("operation %d of %d, %T: %w", i, len(ops), ops[i-1], err)
		}
	case d == unused:
		err = u.putBack(life, work, c, &u.place, move{record: c.before(), data: c.data})
	case last:
		err = it.queue.bury(life, work, u, c, failed)
	default:
		err = u.putBack(life, work, c, &u.place, move{record: failed, data: c.data, tail: n.tail, due: n.due})
	}

	switch {
	case err == nil, claimGone(err):
		u.claims.Add(-1)
		if err != nil {
			return it.gone()
		}
		it.report(life, d, last, n.cause)
		return nil
	case u.session.Err() != nil:
		u.claims.Add(-1)
		switch {
		case errors.Is(err, context.Canceled) && !errors.Is(err, protocol.ErrUncertain): // it is life that has ended
			err = u.session.Err()
		case !errors.Is(err, protocol.ErrLost):
			err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
		}
		return err
	}

	if d == acknowledged {
		failed = c.record.WithReason(err.Error(), layout.ReasonLength(work.RequestLimit()))
	}
	// Whatever the reason, an item that is over must not stay reserved.
	u.giveUp(life, work, c, failed, func() {})
	return err
}

// report reports how the item was settled.
func (it *Item) report(life context.Context, d decision, last bool, failure error) {
	kind := protocol.EventAcknowledged
	switch {
	case d == unused:
		return
	case last:
		kind = protocol.EventDeadLettered
	case d == refused:
		kind = protocol.EventReturned
	}
	it.queue.reserves.Report(protocol.Event{
		Kind: kind, Context: life, Session: it.under.session.ID(), Token: it.claim.token, Count: 1, Err: failure,
	})
}

// lastAttempt reports whether the item becomes a dead letter if it is not acknowledged.
func (it *Item) lastAttempt() bool {
	return it.queue.deadLetters != nil && it.Attempt() >= it.queue.attempts
}

// Reserve claims the first entry that is not reserved. It blocks until there is such an entry. If a
// session is lost, it goes on waiting in the next session. Acknowledge the item, or it comes back:
// at once with [Item.Nack], or when the session ends.
//
// If ctx ends, Reserve returns an error that wraps ctx's and gives back in the background whatever
// it may have reserved. If a quota is full, the error wraps [protocol.ErrQuotaExceeded]. Other
// errors wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's own.
//
// Reserving an entry writes its data once more. If an entry of another library is too large for
// that, Reserve returns [protocol.ErrTooLarge]. [Queue.Take] can remove it.
func (q *Queue) Reserve(ctx context.Context) (*Item, error) {
	return q.reserve(ctx, true)
}

// TryReserve is [Queue.Reserve] without the wait: like [Queue.Poll] it returns [ErrEmpty].
func (q *Queue) TryReserve(ctx context.Context) (*Item, error) { return q.reserve(ctx, false) }

func (q *Queue) reserve(ctx context.Context, wait bool) (it *Item, err error) {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return nil, err
	}
	var u *under
	began := time.Now()
	q.reserves.Waiting(ctx)
	defer func() {
		var s *protocol.Session
		if u != nil {
			s = u.of
		}
		var token int64
		if it != nil {
			token = it.Token()
		}
		q.reserves.Waited(ctx, began, s, token, err)
	}()

	for {
		r, err := across(ctx, q, func(current *under) (*removal, error) {
			u = current
			return u.ask(ctx, &removal{max: 1, wait: wait, reserve: true})
		})
		if err != nil {
			return nil, err
		}

		it, err := q.itemFor(ctx, u, r.claims[0])
		switch {
		case err == nil && it == nil: // it has become a dead letter
		case err != nil && ctx.Err() == nil && u.session.Err() != nil:
		default:
			return it, q.recipe.Wrap(err)
		}
	}
}

// itemFor makes an item of a claim. If that had all its attempts it becomes a dead letter, and there
// is no item.
func (q *Queue) itemFor(ctx context.Context, u *under, c *claim) (*Item, error) {
	if q.deadLetters != nil && c.record.Attempts > q.attempts {
		return protocol.Detach(ctx, u.of, func(life context.Context, work *protocol.Session) (*Item, error) {
			return nil, q.buryLate(life, work, u, c)
		}, nil)
	}

	if c.record.Attempts > 1 {
		q.reserves.Report(protocol.Event{
			Kind: protocol.EventRedelivered, Context: ctx, Session: u.session.ID(), Token: c.token, Count: 1,
		})
	}
	it := &Item{queue: q, under: u, claim: c}
	var err error
	it.grant, err = q.reserves.NewNamedGrant(ctx, u.of, q.path+c.node, c.token, it.carryOut)
	if err != nil {
		u.letGo(c)
		return nil, err
	}
	it.grant.AfterFunc(func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			// Another client has ended it, or the session has ended. If the claim could only not be
			// seen any more it would stay.
			u.session.Go(func(life context.Context, work *protocol.Session) { u.giveUp(life, work, c, c.record, func() {}) })
		}
	})
	return it, nil
}
