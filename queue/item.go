package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A claim is a node below an entry, which reserves it. Its name is never used again, so whatever is
// done to it cannot hit the claim of another consumer. Two claims exclude each other: each is
// created together with a new version of the entry, on condition that the entry is as it was read,
// without children.
//
// The entry's Stat counts attempts. A claim creates a child and a version. One that was not handed
// over makes another version when it is given up. So the attempts are twice the children that were
// created, less the versions. A foreign client that writes to the entry lowers the count by one.
type claim struct {
	entry   name
	data    []byte
	version int32  // of the entry while the claim is there
	since   int64  // when the entry was offered first, in milliseconds since 1970
	attempt int    // how many claims the entry has had, this one and its former nodes included
	node    string // the claim's name
	token   int64  // the number of the transaction

	released sync.Once
	gone     atomic.Bool // its entry was removed with it
}

func (p *perSession) newClaim(e *entry) *claim {
	c := &claim{
		entry: e.name, data: e.data, version: e.stat.Version + 1,
		since: e.since, node: p.session.NewOwner().String(),
	}
	if c.since == 0 {
		c.since = max(e.stat.Ctime, 0)
	}
	// The server's counter has 2 for each child that was created, less the children that are there.
	c.attempt = e.attempts + max(1, int(e.stat.Cversion-e.stat.Version)+1)
	return c
}

// pathOf is the path of a claim, without the chroot.
func (p *perSession) pathOf(c *claim) string {
	return p.queue.path + "/" + c.entry.node + "/" + c.node
}

// bytes is what a claim takes of the budget. Its session's end is written with its path.
func (p *perSession) bytes(c *claim) int { return len(p.session.Path(p.pathOf(c))) + 20 }

// claimOps are the operations that create a claim. The data is that of the entry.
func (p *perSession) claimOps(c *claim) []any {
	return []any{
		p.rewrite(c, c.version-1),
		&zk.CreateRequest{
			Path: p.session.Path(p.pathOf(c)), Acl: p.queue.recipe.ACL(p.pathOf(c)), Flags: zk.FlagEphemeral,
		},
	}
}

// rewrite is the operation that makes a new version of a claim's entry.
func (p *perSession) rewrite(c *claim, version int32) any {
	return &zk.SetDataRequest{Path: p.dir + "/" + c.entry.node, Data: c.data, Version: version}
}

// deleteLater deletes, in the background, a claim that was not handed over. The claim may still be
// on its way to the server. Its deletion comes after it, as a session's writes are executed in
// order.
func (p *perSession) deleteLater(c *claim) {
	p.session.Go(func(life context.Context) { p.deleteClaim(life, c, false) })
}

// deleteClaim deletes a claim, if it is there, and rings. If it does not count as an attempt, the
// same transaction says so. A refusal, of a client without the permission to delete below the
// entry, is logged. The deletion is repeated until it succeeds or the session is over.
func (p *perSession) deleteClaim(life context.Context, c *claim, counts bool) {
	defer p.release(c, false)
	claimed := &zk.DeleteRequest{Path: p.session.Path(p.pathOf(c)), Version: -1}
	rings := ring(p.session, p.queue.path, c.entry.node)
	transactions := [][]any{{claimed, p.rewrite(c, c.version), rings}, {claimed, rings}}
	if counts {
		transactions = transactions[1:]
	}

	rung := false
	p.session.DeleteWith(life, p.pathOf(c), func(conn *zk.Conn) (err error) {
		for _, ops := range transactions {
			var answers []zk.MultiResponse
			answers, err = protocol.Multi(conn, ops...)
			rung = rung || err == nil
			if failed := (result{answers: answers}).failed(err); failed > 0 {
				err = fmt.Errorf("operation %d: %v", failed, err) // the claim itself is not missing
			} else if !errors.Is(err, protocol.ErrTooLarge) {
				return err
			}
		}
		return err
	})
	if !rung {
		p.session.Set(life, p.queue.path+recordsNode, []byte(c.entry.node), -1)
	}
}

// release ends what a claim takes of the budget, once. gone reports whether the entry went with it.
func (p *perSession) release(c *claim, gone bool) {
	c.released.Do(func() {
		c.gone.Store(gone)
		p.budget.give(p.bytes(c))
		p.claims.Add(-1)
	})
}

// An Item is an entry that is reserved: no other consumer gets it until it is given back with
// [Item.Nack] or lost. [Item.Ack] removes it. It is lost with its session, and when its claim is
// deleted by another client. It is safe for concurrent use.
type Item struct {
	grant *protocol.Grant
	queue *Queue
	under *perSession
	claim *claim

	mu       sync.Mutex // protects what follows
	decision decision
	nack     nack // how it was refused
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
// [Item.Err] reports which, and may report a loss before Done is closed.
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

// Token returns the fencing token, a number greater than that of every earlier claim on this queue.
// A resource that refuses tokens smaller than the largest it has seen for an item is safe from a
// consumer that was paused. The token is the czxid of the claim.
func (it *Item) Token() int64 { return it.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the claim is gone. The path in it is absolute.
func (it *Item) Check() *zk.CheckVersionRequest { return it.grant.Check() }

// ID returns the name of the item's entry below the queue's path, as [Queue.Offer] has returned it.
// An entry gets another one when it is moved by [After], [AtTail] or [WithDeadLetter].
func (it *Item) ID() string { return it.claim.entry.node }

// Data returns what was offered.
func (it *Item) Data() []byte { return it.claim.data }

// Since returns when the item was offered first, by the server's clock, to the millisecond. Moves
// by [After], [AtTail] and [WithDeadLetter] do not change it.
func (it *Item) Since() time.Time { return time.UnixMilli(it.claim.since) }

// Attempt returns how often the item was reserved, this time included: 1 for the first time. It
// goes on counting across [After] and [AtTail], and begins anew with the dead letters. Claims count
// that were handed over, or ended with their session. A client of another library that writes to
// the entry meanwhile lowers the count by one.
func (it *Item) Attempt() int { return it.claim.attempt }

// Origin returns where a dead letter is from and why: the path of its queue, its ID there, its
// attempts and the reason, as one line of text. It is empty for other items.
func (it *Item) Origin() string { return it.claim.entry.origin }

// Ack removes the item from the queue, in one transaction with the check that it is still reserved
// by this very claim. The item is over at once. Ack blocks until the server has answered, ctx ends
// or the session is over. If ctx ends first, Ack returns ctx's error and the client goes on in the
// background.
//
// If the item was lost before, Ack changes nothing and returns an error that wraps
// [protocol.ErrLost]. If the session was lost with the answer, the error wraps
// [protocol.ErrUncertain] too: the item was removed, or comes back. After [Item.Nack] the error
// wraps [protocol.ErrReleased].
//
// After any other error, [zk.ErrNoAuth] for example, the item has been given back and will be
// delivered again. If that error wraps [protocol.ErrUncertain], it may have been removed instead.
//
// Ack may be called again and then returns the same. Concurrent calls are safe.
func (it *Item) Ack(ctx context.Context) error { return it.decide(ctx, acknowledged, nack{}) }

// Nack gives the item back. Without options it returns to its place in the queue and keeps its ID.
// [After] and [AtTail] move it. If it was the last attempt that [WithDeadLetter] grants, it goes to
// the dead letters instead. Nack blocks, and returns errors, as [Item.Ack] does, and Ack is refused
// afterwards. Of several Nacks the first one counts.
//
// A bad option is returned before anything is sent, and the item is held on.
//
// An item that cannot be moved returns to its place, and Nack returns why. The error wraps
// [protocol.ErrSequenceExhausted] if there are no numbers left where it was to go. It wraps
// [protocol.ErrTooLarge] if the item does not fit into a request together with its paths, and
// [zk.ErrBadVersion] if another client has changed the entry's data meanwhile.
func (it *Item) Nack(ctx context.Context, opts ...NackOption) error {
	n := nack{reason: "given back"}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option(&n); err != nil {
			return it.queue.recipe.Wrap(err)
		}
	}
	return it.decide(ctx, refused, n)
}

// decide ends the item as d says, unless it has ended in another way.
func (it *Item) decide(ctx context.Context, d decision, n nack) error {
	if err := it.queue.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}
	it.mu.Lock()
	if it.decision == undecided {
		it.decision, it.nack = d, n
	}
	final := it.decision
	it.mu.Unlock()

	if final != d {
		return it.queue.recipe.Wrap(fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}
	return it.grant.Release(ctx)
}

// carryOut does what was decided. The grant is released with it.
func (it *Item) carryOut(life context.Context) error {
	it.mu.Lock()
	d, n := it.decision, it.nack
	it.mu.Unlock()

	p, c := it.under, it.claim
	var err error
	gone := true
	switch {
	case d == acknowledged:
		err = p.settler.settle(life, c, p.deleteEntry(c, -1))
	case d == unused:
		p.deleteClaim(life, c, false)
	case it.lastAttempt():
		err = it.queue.moveToDeadLetters(life, p, c, it.queue.origin(c, c.attempt, n.reason))
	case n.moves:
		err = p.move(life, c, n.due)
	default:
		err = p.settler.settle(life, c, ring(p.session, p.queue.path, c.entry.node))
		gone = false
	}

	switch {
	case err == nil:
		p.release(c, gone)
		it.report(life, d)
		return nil
	case p.session.Err() != nil:
		p.release(c, false)
		if !errors.Is(err, protocol.ErrLost) {
			err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
		}
		return err
	}

	// Whatever the reason, an item that is over must not stay reserved.
	p.deleteClaim(life, c, true)
	if claimGone(err) {
		err = fmt.Errorf("%w: %w: %s is not reserved by this item any more", protocol.ErrLost, protocol.ErrNodeDeleted, it.ID())
	}
	return err
}

// report reports how the item was settled. Items that become dead letters report that.
func (it *Item) report(life context.Context, d decision) {
	kind := protocol.EventAcknowledged
	switch {
	case d == refused && it.lastAttempt(), d == unused:
		return
	case d == refused:
		kind = protocol.EventReturned
	}
	it.queue.reserves.Report(protocol.Event{
		Kind: kind, Context: protocol.Caller(life), Session: it.under.session.ID(), Token: it.claim.token, Count: 1,
	})
}

// lastAttempt reports whether the item becomes a dead letter if it is not acknowledged.
func (it *Item) lastAttempt() bool {
	return it.queue.deadLetters != nil && it.Attempt() >= it.queue.attempts
}

// claimGone reports whether a settlement has failed because its claim was deleted.
func claimGone(err error) bool { return refusedAt(err) == 0 && errors.Is(err, zk.ErrNoNode) }

// deleteEntry is the operation that removes the entry of a claim, after the claim itself.
func (p *perSession) deleteEntry(c *claim, version int32) any {
	return &zk.DeleteRequest{Path: p.dir + "/" + c.entry.node, Version: version}
}

// move puts an entry that is claimed here at the tail of its queue, with its notes. An entry whose
// own number is near the last one stays, so that moves do not use up the numbers that are left.
func (p *perSession) move(life context.Context, c *claim, due int64) error {
	if c.entry.sequence > lastSequence || c.entry.sequence < 0 {
		return fmt.Errorf("%w: %s stays in its place", protocol.ErrSequenceExhausted, c.entry.node)
	}
	moved := notes{due: due, since: c.since, attempts: c.attempt, origin: c.entry.origin}
	name := "/" + moved.prefix(c.entry.priority)
	return p.settler.settle(life, c, p.deleteEntry(c, c.version),
		&zk.CreateRequest{
			Path: p.dir + name, Data: c.data,
			Acl: p.queue.recipe.ACL(p.queue.path + name), Flags: zk.FlagSequence,
		},
		ring(p.session, p.queue.path, ""))
}

// itemFor makes an item of what was reserved for r. If that had all its attempts it becomes a dead
// letter, and there is no item.
func (q *Queue) itemFor(ctx context.Context, p *perSession, r *removal) (*Item, error) {
	if q.deadLetters != nil && r.claim.attempt > q.attempts {
		return protocol.Detach(ctx, p.session, func(life context.Context) (*Item, error) {
			return nil, q.toDeadLetters(life, p, r.claim)
		}, nil)
	}

	if r.claim.attempt > 1 {
		q.reserves.Report(protocol.Event{
			Kind: protocol.EventRedelivered, Context: ctx, Session: p.session.ID(), Token: r.claim.token, Count: 1,
		})
	}
	it := &Item{queue: q, under: p, claim: r.claim}
	var err error
	it.grant, err = q.reserves.NewGrant(ctx, p.session, p.pathOf(r.claim), r.claim.token, it.carryOut)
	if err != nil {
		p.deleteLater(r.claim)
		return nil, err
	}

	it.grant.AfterFunc(func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			// Its node was deleted, by a client that has told no consumer.
			p.session.Go(func(life context.Context) { p.deleteClaim(life, r.claim, true) })
		}
	})
	return it, nil
}
