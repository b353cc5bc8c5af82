package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// claimName is the child of an entry that says that it is reserved. Beside it stands another one whose name nobody else
// ever has: without it nothing can be done to the claim. Its number, the second of each pair, counts the claims.
const claimName = "claim"

// A claim is what makes an entry reserved.
type claim struct {
	entry *entry
	owner string // the start of the owner's node's name
	node  string // the whole name; empty if the answer was lost
	token int64  // the number of the transaction
}

func (c *claim) attempt() int {
	var n int
	fmt.Sscanf(strings.TrimPrefix(c.node, c.owner), "%d", &n)
	return (n + 1) / 2
}

// locate learns the whole name of the owner's node.
func (a *agent) locate(ctx context.Context, c *claim) error {
	if c.node != "" {
		return nil
	}
	children, err := protocol.Do(ctx, a.session, func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(a.dir + "/" + c.entry.name)
		return children, err
	})
	if err != nil {
		return err
	}
	for _, name := range children {
		if strings.HasPrefix(name, c.owner) {
			c.node = name
			return nil
		}
	}
	return zk.ErrNoNode
}

// giveUp takes back a claim of which nobody knows, in the background.
func (a *agent) giveUp(c *claim) {
	a.session.Go(func(life context.Context) {
		if err := a.session.Sync(life, a.queue.path); err == nil {
			a.abandon(life, c)
		}
	})
}

// abandon removes what may be left of a claim of ours, and nobody else's.
func (a *agent) abandon(life context.Context, c *claim) {
	node := a.dir + "/" + c.entry.name
	if a.locate(life, c) == nil {
		remove(life, a.session, node+"/"+c.node)
	}
	stat, err := protocol.Do(life, a.session, func(conn *zk.Conn) (*zk.Stat, error) {
		_, stat, err := conn.Get(node + "/" + claimName)
		return stat, err
	})
	if err == nil && stat.EphemeralOwner == a.session.ID() && (c.token == 0 || stat.Czxid == c.token) {
		remove(life, a.session, node+"/"+claimName)
	}
	a.consumer.free(c.entry.name, false)
}

// An Item is an entry that is reserved: nobody else gets it until it is given back with [Item.Nack] or lost, and it is
// removed by [Item.Ack]. Its Done, Err, Context, Token and Check are those of [protocol.Grant]: it is lost when its
// session is, or when somebody deletes its node. It is safe for concurrent use.
type Item struct {
	*protocol.Grant
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

// ID is the name of the item's entry below the queue's path, as [Queue.Offer] has returned it.
func (it *Item) ID() string { return it.claim.entry.name }

// Data is what was offered.
func (it *Item) Data() []byte { return it.data }

// Attempt tells how often the entry was reserved, this time included, by whomever.
func (it *Item) Attempt() int { return it.claim.attempt() }

// Ack removes the item from the queue, in one transaction with the check that it is still reserved by this very claim.
// It blocks until the server has answered, ctx ends or the session is over. The item is over at once, and is removed in
// any case: if ctx ends first, Ack returns ctx's error and the client goes on in the background.
//
// Ack returns an error that wraps [protocol.ErrLost] if the item was lost before, and then has changed nothing; it wraps
// [protocol.ErrUncertain] too if the session was lost with the answer: then the item was removed, or comes back. After
// [Item.Nack] it returns one that wraps [protocol.ErrReleased]. It may be called again and then returns the same.
func (it *Item) Ack(ctx context.Context) error { return it.decide(ctx, acknowledged) }

// Nack gives the item back: it returns to its place in the queue, or goes to the dead letters if it was the last
// attempt that [WithDeadLetter] grants. Nack blocks, and returns errors, as [Item.Ack] does; that in turn is refused
// afterwards.
func (it *Item) Nack(ctx context.Context) error { return it.decide(ctx, refused) }

func (it *Item) decide(ctx context.Context, v verdict) error {
	it.mu.Lock()
	if it.verdict == undecided {
		it.verdict = v
	}
	final := it.verdict
	it.mu.Unlock()
	if final != v {
		return protocol.Wrap(recipe, it.agent.queue.path, fmt.Errorf("%w: %s", protocol.ErrReleased, it.ID()))
	}
	return protocol.Release(ctx, it.Grant)
}

// conclude does what was decided. It is what the grant is released with.
func (it *Item) conclude(life context.Context) error {
	it.mu.Lock()
	v := it.verdict
	it.mu.Unlock()
	a, q := it.agent, it.agent.queue
	var err error
	switch {
	case v == acknowledged:
		err = a.dispose(life, it.claim, a.remove(it.claim)...)
	case q.dead != nil && it.Attempt() >= q.attempts:
		err = a.bury(life, it.claim, it.data)
	default:
		err = a.dispose(life, it.claim)
	}
	switch {
	case err == nil:
		a.consumer.free(it.ID(), v == acknowledged)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNotEmpty):
		a.abandon(life, it.claim)
		err = fmt.Errorf("%w: %s is not reserved by us any more", protocol.ErrLost, it.ID())
	case a.session.Err() != nil && !errors.Is(err, protocol.ErrLost):
		err = fmt.Errorf("%w: %w", protocol.ErrLost, err)
	}
	return err
}

// remove is what makes the end of a claim that of the entry.
func (a *agent) remove(c *claim) []any {
	return []any{&zk.DeleteRequest{Path: a.dir + "/" + c.entry.name, Version: -1}}
}

// dispose ends a claim, together with more, in one transaction.
func (a *agent) dispose(life context.Context, c *claim, more ...any) error {
	node := a.dir + "/" + c.entry.name
	_, err := a.receipts.transact(life, forItems, transaction{
		prepare: func() []any {
			return append([]any{
				&zk.DeleteRequest{Path: node + "/" + c.node, Version: -1},
				&zk.DeleteRequest{Path: node + "/" + claimName, Version: -1},
			}, more...)
		},
		unsent: func() {},
	})
	return err
}

// bury moves an entry that we have claimed to the dead letters.
func (a *agent) bury(life context.Context, c *claim, data []byte) error {
	dead := a.queue.dead
	for {
		letter := &zk.CreateRequest{
			Path: a.session.Path(dead.path) + "/" + prefix, Data: data, Acl: dead.client.ACL(), Flags: zk.FlagSequence,
		}
		err := a.dispose(life, c, append(a.remove(c), letter)...)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		// Either the other queue has no directory, or the claim is gone.
		if created, failed := a.session.EnsurePath(life, dead.path); failed != nil {
			return failed
		} else if !created {
			return err
		}
	}
}

// receive makes an item of what was reserved for a call, or a dead letter: then there is none.
func (a *agent) receive(ctx context.Context, c *call) (*Item, error) {
	if err := a.locate(ctx, c.claim); err != nil {
		a.giveUp(c.claim)
		return nil, err
	}
	if q := a.queue; q.dead != nil && c.claim.attempt() > q.attempts {
		return protocol.Finish(ctx, a.session, func(life context.Context) (*Item, error) {
			err := a.bury(life, c.claim, c.data[0])
			if err != nil {
				a.giveUp(c.claim)
			}
			return nil, err
		}, nil)
	}
	return a.hold(ctx, c.claim, c.data[0])
}

// watchAfter is how long an item must be held before its claim is watched, which costs a packet.
const watchAfter = 20 * time.Millisecond

// watch sees to it that an item is lost when somebody deletes one of its nodes: the grant watches the other one.
func (a *agent) watch(held context.Context, c *claim) {
	node := a.queue.path + "/" + c.entry.name
	_, err := a.session.Until(held, node+"/"+claimName, func(stat *zk.Stat) bool { return stat.Czxid != c.token })
	if err == nil && held.Err() == nil {
		a.giveUp(c)
	}
}

// hold makes an item of a claim.
func (a *agent) hold(ctx context.Context, c *claim, data []byte) (*Item, error) {
	it := &Item{agent: a, claim: c, data: data}
	path := a.queue.path
	var err error
	it.Grant, err = a.session.Hold(ctx, a.queue.client, recipe, path, path+"/"+it.ID()+"/"+c.node, c.token, it.conclude)
	if err != nil {
		a.giveUp(c)
		return nil, err
	}
	held, _ := it.Context(context.Background())
	time.AfterFunc(watchAfter, func() {
		if held.Err() == nil {
			a.session.Go(func(context.Context) { a.watch(held, c) })
		}
	})
	context.AfterFunc(held, func() {
		if errors.Is(it.Err(), protocol.ErrLost) {
			a.giveUp(c) // somebody has deleted a node of it; if it was the session, this does nothing
		}
	})
	return it, nil
}
