package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A claim is a node below an entry, which reserves it. Its name is never used again, so whatever is
// done to it cannot hit the claim of another consumer. Two claims exclude each other: each is
// created together with a new version of the entry, on condition that the entry is as it was read,
// without children.
type claim struct {
	entry   *entry
	node    string // its name
	token   int64  // the number of the transaction
	attempt int    // how many claims the entry has had, this one included
}

func (p *perSession) newClaim(e *entry) *claim {
	// The server's counter has 2 for each child that was created, less the children that are there.
	return &claim{entry: e, node: p.session.NewOwner().String(), attempt: int(e.stat.Cversion)/2 + 1}
}

// claimOps are the operations that create a claim. The data is that of the entry.
func (p *perSession) claimOps(c *claim) []any {
	node := p.dir + "/" + c.entry.name
	return []any{
		&zk.SetDataRequest{Path: node, Data: c.entry.data, Version: c.entry.stat.Version},
		&zk.CreateRequest{Path: node + "/" + c.node, Acl: p.queue.recipe.ACL(), Flags: zk.FlagEphemeral},
	}
}

// deleteLater deletes, in the background, a claim that has no item. The claim may still be on its
// way to the server. Its deletion comes after it, as a session's writes are executed in order.
func (p *perSession) deleteLater(c *claim) {
	p.session.Go(func(life context.Context) { p.deleteClaim(life, c) })
}

// deleteClaim deletes a claim, if it is there. A refusal, of a client without the permission to
// delete below the entry, is logged. The deletion is repeated until it succeeds or the session is
// over.
func (p *perSession) deleteClaim(life context.Context, c *claim) {
	p.session.Delete(life, p.queue.path+"/"+c.entry.name+"/"+c.node, -1)
	p.consumer.free(c.entry.name, false)
}

// An Item is an entry that is reserved: no other consumer gets it until it is given back with
// [Item.Nack] or lost. [Item.Ack] removes it. It is lost with its session, and when its claim is
// deleted by another client. It is safe for concurrent use.
type Item struct {
	grant *protocol.Grant
	under *perSession
	claim *claim
	data  []byte

	mu       sync.Mutex // protects decision
	decision decision
}

// A decision says what becomes of an item.
type decision int

const (
	undecided decision = iota
	acknowledged
	refused
)

// Done returns a channel that is closed when the item is lost, acknowledged or given back.
// [Item.Err] reports which, and may report a loss before Done is closed.
func (it *Item) Done() <-chan struct{} { return it.grant.Done() }

// Err returns nil while the item is held. After a loss it returns an error that wraps
// [protocol.ErrLost] and the cause. After [Item.Ack] or [Item.Nack] it returns one that wraps
// [protocol.ErrReleased]. It asks the clocks at each call and does no I/O: in a process that was
// paused it reports the loss at once.
func (it *Item) Err() error { return it.grant.Err() }

// Context returns a copy of parent that is also cancelled when the item is lost, acknowledged or
// given back, with [Item.Err] as its cause. Its own Err asks the clocks at each call; that of a
// context derived from it follows when the loss is noticed. Call the cancel function when the work
// is done.
func (it *Item) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return it.grant.Context(parent)
}

// Token returns the fencing token: a number that is greater than that of every earlier claim on
// this queue. A resource that refuses smaller tokens than it has seen for an item is safe from a
// consumer that was paused. The token is the czxid of the claim.
func (it *Item) Token() int64 { return it.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the claim is gone. The path in it is absolute.
func (it *Item) Check() *zk.CheckVersionRequest { return it.grant.Check() }

// ID returns the name of the item's entry below the queue's path, as [Queue.Offer] has returned it.
func (it *Item) ID() string { return it.claim.entry.name }

// Data returns what was offered.
func (it *Item) Data() []byte { return it.data }

// Attempt returns how often the entry was reserved, by any consumer, this time included.
func (it *Item) Attempt() int { return it.claim.attempt }

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
func (it *Item) Ack(ctx context.Context) error { return it.decide(ctx, acknowledged) }

// Nack gives the item back. It returns to its place in the queue, or goes to the dead letters if it
// was the last attempt that [WithDeadLetter] grants. Nack blocks, and returns errors, as [Item.Ack]
// does, and Ack is refused afterwards.
//
// An item that cannot go to the dead letters returns to its place, and Nack returns why. The error
// wraps [protocol.ErrSequenceExhausted] if they have no numbers left, and [protocol.ErrTooLarge] if
// the item does not fit into a request together with both paths.
func (it *Item) Nack(ctx context.Context) error { return it.decide(ctx, refused) }

// decide ends the item as d says, unless it has ended in another way.
func (it *Item) decide(ctx context.Context, d decision) error {
	it.mu.Lock()
	if it.decision == undecided {
		it.decision = d
	}
	final := it.decision
	it.mu.Unlock()

	if final != d {
		return it.under.queue.recipe.Wrap(fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}
	return it.grant.Release(ctx)
}

// carryOut does what was decided. The grant is released with it.
func (it *Item) carryOut(life context.Context) error {
	it.mu.Lock()
	d := it.decision
	it.mu.Unlock()

	p, q := it.under, it.under.queue
	var failed int
	var err error
	switch {
	case d == acknowledged:
		failed, err = p.endClaim(life, it.claim, p.deleteEntry(it.claim))
	case q.deadLetters != nil && it.Attempt() >= q.attempts:
		failed, err = p.moveToDeadLetters(life, it.claim, it.data)
	default:
		failed, err = p.endClaim(life, it.claim)
	}

	switch {
	case err == nil:
		p.consumer.free(it.ID(), d == acknowledged)
		return nil
	case p.session.Err() != nil:
		if !errors.Is(err, protocol.ErrLost) {
			err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
		}
		return err
	}

	// Whatever the reason, an item that is over must not stay reserved.
	p.deleteClaim(life, it.claim)
	if failed == 0 && errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("%w: %s is not reserved by this item any more", protocol.ErrLost, it.ID())
	}
	return err
}

// deleteEntry is the operation that removes the entry of a claim, after the claim itself.
func (p *perSession) deleteEntry(c *claim) any {
	return &zk.DeleteRequest{Path: p.dir + "/" + c.entry.name, Version: -1}
}

// endClaim deletes a claim, and then does more, in one transaction. If that fails, failed is the
// operation that it died of, or negative. The deletion of the claim is operation 0.
func (p *perSession) endClaim(life context.Context, c *claim, more ...any) (failed int, err error) {
	done, err := p.receipts.transact(life, forItems, transaction{
		prepare: func() []any {
			node := p.dir + "/" + c.entry.name + "/" + c.node
			return append([]any{&zk.DeleteRequest{Path: node, Version: -1}}, more...)
		},
		unsent: func(bool) {},
	})
	return failedAt(done.answers, err), err
}

// moveToDeadLetters moves an entry that is claimed here to the dead letters. It returns what
// endClaim does.
func (p *perSession) moveToDeadLetters(life context.Context, c *claim, data []byte) (failed int, err error) {
	const last = 2 // the operation that creates the letter
	letters := p.queue.deadLetters
	for {
		letter := &zk.CreateRequest{
			Path: p.session.Path(letters.path) + "/" + prefix, Data: data,
			Acl: letters.recipe.ACL(), Flags: zk.FlagSequence,
		}
		failed, err = p.endClaim(life, c, p.deleteEntry(c), letter)

		switch {
		case failed != last:
			return failed, err
		case errors.Is(err, zk.ErrNodeExists): // the server repeats the last number
			return failed, fmt.Errorf("%w: of the dead letters at %s", protocol.ErrSequenceExhausted, letters.path)
		case !errors.Is(err, zk.ErrNoNode):
			return failed, err
		}

		if err := letters.create(life, p.session); err != nil {
			return failed, err
		}
	}
}

// itemFor makes an item of what was reserved for r. If that had all its attempts it becomes a dead
// letter, and there is no item.
func (p *perSession) itemFor(ctx context.Context, r *removal) (*Item, error) {
	if q := p.queue; q.deadLetters != nil && r.claim.attempt > q.attempts {
		return protocol.Detach(ctx, p.session, func(life context.Context) (*Item, error) {
			_, err := p.moveToDeadLetters(life, r.claim, r.data[0])
			if err != nil {
				p.deleteLater(r.claim)
			}
			return nil, err
		}, nil)
	}
	return p.newItem(ctx, r.claim, r.data[0])
}

func (p *perSession) newItem(ctx context.Context, c *claim, data []byte) (*Item, error) {
	it := &Item{under: p, claim: c, data: data}
	path := p.queue.path
	node := path + "/" + it.ID() + "/" + c.node
	var err error
	it.grant, err = p.queue.recipe.NewGrant(ctx, p.session, node, c.token, it.carryOut)
	if err != nil {
		p.deleteLater(c)
		return nil, err
	}

	held, _ := it.Context(context.Background())
	context.AfterFunc(held, func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			p.deleteLater(c) // its node was deleted; if it was the session, this does nothing
		}
	})
	return it, nil
}
