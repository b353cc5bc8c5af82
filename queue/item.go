package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A claim is a node below an entry, which reserves it. Its name is never used again, so whatever
// is done to it cannot hit the claim of another consumer. Two claims exclude each other because each
// is made together with a new version of the entry, on condition that the entry is as it was read:
// without children.
type claim struct {
	entry   *entry
	node    string // its name
	token   int64  // the number of the transaction
	attempt int    // how many claims the entry has had, this one included
}

func (a *agent) newClaim(e *entry) *claim {
	// The server's counter has 2 for each child that was created, less the children that are there.
	return &claim{entry: e, node: a.session.NewOwner().String(), attempt: int(e.stat.Cversion)/2 + 1}
}

// requests makes the claim. The data is that of the entry.
func (a *agent) requests(c *claim) []any {
	node := a.dir + "/" + c.entry.name
	return []any{
		&zk.SetDataRequest{Path: node, Data: c.entry.data, Version: c.entry.stat.Version},
		&zk.CreateRequest{Path: node + "/" + c.node, Acl: a.queue.recipe.ACL(), Flags: zk.FlagEphemeral},
	}
}

// giveUp takes back, in the background, a claim that has no item. It may still be on its way to the
// server, where the deletion comes after it: a session's writes are executed in order.
func (a *agent) giveUp(c *claim) {
	a.session.Go(func(life context.Context) { a.abandon(life, c) })
}

// abandon deletes a claim, if it is there. A refusal, of a client without the permission to delete below
// the entry, is logged, and the deletion is repeated until it succeeds or the session is over.
func (a *agent) abandon(life context.Context, c *claim) {
	a.session.Delete(life, a.queue.path+"/"+c.entry.name+"/"+c.node, -1)
	a.consumer.free(c.entry.name, false)
}

// An Item is an entry that is reserved: no other consumer gets it until it is given back with [Item.Nack] or lost.
// [Item.Ack] removes it. It is lost with its session, and when its claim is deleted by another client. It is safe for
// concurrent use.
type Item struct {
	grant *protocol.Grant
	agent *agent
	claim *claim
	data  []byte

	mu      sync.Mutex // protects verdict
	verdict verdict
}

// A verdict is what becomes of an item.
type verdict int

const (
	undecided verdict = iota
	acknowledged
	refused
)

// Done returns a channel that is closed when the item is lost, acknowledged or given back. [Item.Err] reports
// which, and may report a loss before Done is closed.
func (it *Item) Done() <-chan struct{} { return it.grant.Done() }

// Err returns nil while the item is held. After a loss it returns an error that wraps [protocol.ErrLost] and the
// cause; after [Item.Ack] or [Item.Nack] one that wraps [protocol.ErrReleased]. It asks the clocks at each call and
// does no I/O: in a process that was paused it reports the loss at once.
func (it *Item) Err() error { return it.grant.Err() }

// Context returns a copy of parent that is also cancelled when the item is lost, acknowledged or given back, with
// [Item.Err] as its cause. Its own Err asks the clocks at each call; that of a context derived from it follows when
// the loss is noticed. Call the cancel function when the work is done.
func (it *Item) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return it.grant.Context(parent)
}

// Token returns the fencing token: a number that is greater than that of every earlier claim on this queue. A
// resource that refuses smaller tokens than it has seen for an item is safe from a consumer that was paused. The
// token is the czxid of the claim.
func (it *Item) Token() int64 { return it.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with [zk.ErrNoNode]
// once the claim is gone. The path in it is absolute.
func (it *Item) Check() *zk.CheckVersionRequest { return it.grant.Check() }

// ID is the name of the item's entry below the queue's path, as [Queue.Offer] has returned it.
func (it *Item) ID() string { return it.claim.entry.name }

// Data is what was offered.
func (it *Item) Data() []byte { return it.data }

// Attempt tells how often the entry was reserved, this time included, by whomever.
func (it *Item) Attempt() int { return it.claim.attempt }

// Ack removes the item from the queue, in one transaction with the check that it is still reserved by
// this very claim. It blocks until the server has answered, ctx ends or the session is over. The item
// is over at once. If ctx ends first, Ack returns ctx's error and the client goes on in the background.
//
// Ack returns an error that wraps [protocol.ErrLost] if the item was lost before, and then has changed
// nothing. If the session was lost with the answer the error wraps [protocol.ErrUncertain] too: the
// item was removed, or comes back. After [Item.Nack] the error wraps [protocol.ErrReleased]. After any
// other error, [zk.ErrNoAuth] for example, the item has been given back and will be delivered again;
// if that error wraps [protocol.ErrUncertain] it may have been removed instead. Ack may be called
// again and then returns the same.
func (it *Item) Ack(ctx context.Context) error { return it.decide(ctx, acknowledged) }

// Nack gives the item back: it returns to its place in the queue, or goes to the dead letters if it was the last
// attempt that [WithDeadLetter] grants. Nack blocks, and returns errors, as [Item.Ack] does; that in turn is refused
// afterwards. An item that cannot go to the dead letters returns to its place, and Nack says why: the
// error wraps [protocol.ErrSequenceExhausted] if they have no numbers left, and
// [protocol.ErrTooLarge] if the item does not fit into a request together with both paths.
func (it *Item) Nack(ctx context.Context) error { return it.decide(ctx, refused) }

func (it *Item) decide(ctx context.Context, v verdict) error {
	it.mu.Lock()
	if it.verdict == undecided {
		it.verdict = v
	}
	final := it.verdict
	it.mu.Unlock()
	if final != v {
		return it.agent.queue.recipe.Wrap(fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}
	return it.grant.Release(ctx)
}

// conclude does what was decided. It is what the grant is released with.
func (it *Item) conclude(life context.Context) error {
	it.mu.Lock()
	v := it.verdict
	it.mu.Unlock()

	a, q := it.agent, it.agent.queue
	var failed int
	var err error
	switch {
	case v == acknowledged:
		failed, err = a.dispose(life, it.claim, a.remove(it.claim))
	case q.dead != nil && it.Attempt() >= q.attempts:
		failed, err = a.bury(life, it.claim, it.data)
	default:
		failed, err = a.dispose(life, it.claim)
	}

	switch {
	case err == nil:
		a.consumer.free(it.ID(), v == acknowledged)
		return nil
	case a.session.Err() != nil:
		if !errors.Is(err, protocol.ErrLost) {
			err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
		}
		return err
	}

	// Whatever the reason, an item that is over must not stay reserved.
	a.abandon(life, it.claim)
	if failed == 0 && errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("%w: %s is not reserved by us any more", protocol.ErrLost, it.ID())
	}
	return err
}

// remove is what makes the end of a claim that of the entry.
func (a *agent) remove(c *claim) any {
	return &zk.DeleteRequest{Path: a.dir + "/" + c.entry.name, Version: -1}
}

// dispose ends a claim, together with more, in one transaction. If that fails, failed is the
// operation that it died of, or negative. The deletion of the claim is the first one.
func (a *agent) dispose(life context.Context, c *claim, more ...any) (failed int, err error) {
	done, err := a.receipts.transact(life, forItems, transaction{
		prepare: func() []any {
			node := a.dir + "/" + c.entry.name + "/" + c.node
			return append([]any{&zk.DeleteRequest{Path: node, Version: -1}}, more...)
		},
		unsent: func(bool) {},
	})
	return failedAt(done.answers, err), err
}

// bury moves an entry that we have claimed to the dead letters. It returns what dispose does.
func (a *agent) bury(life context.Context, c *claim, data []byte) (failed int, err error) {
	const last = 2 // the operation that creates the letter
	dead := a.queue.dead
	for {
		letter := &zk.CreateRequest{
			Path: a.session.Path(dead.path) + "/" + prefix, Data: data, Acl: dead.recipe.ACL(), Flags: zk.FlagSequence,
		}
		failed, err = a.dispose(life, c, a.remove(c), letter)
		switch {
		case failed != last:
			return failed, err
		case errors.Is(err, zk.ErrNodeExists): // the server repeats the last number
			return failed, fmt.Errorf("%w: of the dead letters at %s", protocol.ErrSequenceExhausted, dead.path)
		case !errors.Is(err, zk.ErrNoNode):
			return failed, err
		}
		if err := dead.create(life, a.session); err != nil {
			return failed, err
		}
	}
}

// receive makes an item of what was reserved for a call, or a dead letter: then there is none.
func (a *agent) receive(ctx context.Context, c *call) (*Item, error) {
	if q := a.queue; q.dead != nil && c.claim.attempt > q.attempts {
		return protocol.Detach(ctx, a.session, func(life context.Context) (*Item, error) {
			_, err := a.bury(life, c.claim, c.data[0])
			if err != nil {
				a.giveUp(c.claim)
			}
			return nil, err
		}, nil)
	}
	return a.hold(ctx, c.claim, c.data[0])
}

// hold makes an item of a claim.
func (a *agent) hold(ctx context.Context, c *claim, data []byte) (*Item, error) {
	it := &Item{agent: a, claim: c, data: data}
	path := a.queue.path
	var err error
	it.grant, err = a.queue.recipe.NewGrant(ctx, a.session, path+"/"+it.ID()+"/"+c.node, c.token, it.conclude)
	if err != nil {
		a.giveUp(c)
		return nil, err
	}
	held, _ := it.Context(context.Background())
	context.AfterFunc(held, func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			a.giveUp(c) // its node was deleted; if it was the session, this does nothing
		}
	})
	return it, nil
}
