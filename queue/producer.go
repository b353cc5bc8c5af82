package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// An offer is what a call asks for: entries that are appended together.
type offer struct {
	batch.Request
	prefix string // of the entries' nodes, below the queue's path
	due    int64  // of a single entry, in milliseconds since 1970; 0: at once
	since  int64  // likewise, when it was offered; for a delayed entry
	key    string // of a single entry; empty if it has none
	items  [][]byte
	ids    []string // the outcome; nil if they are not known

	at, operations int // in the transaction
}

// numbers is how many numbers of the queue an offer takes.
func (o *offer) numbers() int {
	if o.due != 0 {
		return 0
	}
	return len(o.items)
}

// id returns the ID of an entry, given the path of its node.
func (o *offer) id(node string) string {
	if o.due != 0 {
		_, id, _ := layout.ParseDelayed(path.Base(node))
		return id
	}
	return path.Base(node)
}

// creates returns the operations that append an offer's entries below a node, and remember its key.
func (p *producer) creates(o *offer) (ops []any) {
	for _, data := range o.items {
		if o.due != 0 {
			data = layout.Record{Since: o.since}.Append(data)
		}
		ops = append(ops, p.creation(p.session, o.prefix, data, zk.FlagSequence))
	}
	if o.key != "" {
		ops = append(ops, p.keys.remember(o.key)...)
	}
	return ops
}

// An offering says how a queue offers.
type offering struct {
	maxLength int           // 0: unbounded
	retention time.Duration // of keys
}

// A producer creates entries under one session. Offers that arrive while a transaction is under way
// go with the next one. There is one at a time, which keeps the order of each caller's entries.
//
// Its receipt exists before anything is read that a transaction relies on, and its name is never
// used again. So a transaction that finds it also finds the queue's node that was read: had that
// been deleted, and created again with the same numbers, the receipt would be gone.
type producer struct {
	*site
	offering
	offers   *batch.Batcher[*offer]
	presence presence
	receipt  receipt
	next     int64 // the number of the next entry, or more by now; negative before the first look
	bound    bound
	keys     keys
}

func newProducer(s *site, how offering, turns *line.Line) *producer {
	p := &producer{site: s, offering: how, next: -1, bound: bound{turns: turns}}
	p.presence = presence{site: s, dir: receiptsNode, lock: newGate()}
	p.keys.site, p.keys.retention = s, how.retention
	p.offers = batch.New(s, p.limits(), p.serve, func(_ *offer, cause error) error { return uncertain(cause) })
	return p
}

// serve sends one transaction after the other, while there are offers.
func (p *producer) serve(life context.Context) {
	for pending := range p.offers.Rounds() {
		if err := p.prepare(life, pending); err != nil {
			p.fail(err, pending...)
		} else if p.admit(life, pending) {
			p.send(life)
		}
		p.linger(life)
	}
	p.endTurn()
	p.presence.rest()
}

// fail answers offers with an error. If the session is over the next one may do better.
func (p *producer) fail(err error, offers ...*offer) {
	if over := p.session.Err(); over != nil && !errors.Is(err, protocol.ErrUncertain) {
		err = over
	}
	p.offers.Answer(err, offers...)
}

// fits returns an error if an entry leaves no room for what a reservation adds to it.
func (p *producer) fits(items [][]byte) error {
	limit := p.session.RequestLimit()
	for _, data := range items {
		size := layout.RecordRoom(limit) + 2*len(p.path) +
			protocol.MultiSize(p.creation(p.session, heldNode, data, 0), p.deletion(p.session, heldNode, 0))
		if size > limit {
			return fmt.Errorf("%w: %d bytes with what a reservation adds, and %d are the limit", protocol.ErrTooLarge, size, limit)
		}
	}
	return nil
}

// prepare makes sure that there are a receipt, and a queue with it, and that what offers rely on is
// known.
func (p *producer) prepare(life context.Context, pending []*offer) error {
	node, err := p.presence.use(life, p.session)
	if err != nil {
		return err
	}
	if node != p.receipt.node {
		p.receipt = receipt{node: node, number: p.receipt.number}
		p.bound.readAt = time.Time{}
	}
	for _, o := range pending {
		if o.key != "" && !p.keys.known {
			if err := p.keys.look(life); err != nil {
				return err
			}
		}
	}
	if p.next < 0 {
		return p.look(life)
	}
	return nil
}

// look reads how long the queue is, and which number comes next: its Stat counts creations and
// deletions together. Its answer is as of a moment after the call.
func (p *producer) look(life context.Context) error {
	if err := p.session.Sync(life, p.path); err != nil {
		return err
	}
	return p.glance(life)
}

// glance is look at what the server knows, which may be out of date.
func (p *producer) glance(life context.Context) error {
	stat, err := p.session.Exists(life, p.path)
	if err != nil {
		return err
	}
	if stat == nil { // the next transaction finds that out
		p.next = -1
		return nil
	}
	p.next = int64(layout.NextSequence(stat))
	p.bound.read(int(stat.NumChildren) - 1) // the node of the records is no entry
	return nil
}

// admit answers those of the pending offers that must fail. It reports whether all may be sent, or
// the first one may be.
func (p *producer) admit(life context.Context, pending []*offer) bool {
	first := pending[0]
	exhausted := func() bool { return p.next+int64(first.numbers()) > layout.MaxSequence }
	if exhausted() { // unless the queue has begun again
		if err := p.look(life); err != nil {
			p.fail(err, first)
			return false
		}
	}
	if exhausted() {
		p.fail(fmt.Errorf("%w: the next number is %d, and %d is the last; drain the queue and delete its node "+
			"while no client uses it, or use another path",
			protocol.ErrSequenceExhausted, p.next, int64(layout.MaxSequence)), first)
		return false
	}
	if p.maxLength == 0 {
		return true
	}

	full, err := p.admitBounded(life, pending)
	if err != nil {
		p.fail(err, first)
	}
	return err == nil && !full
}

// send appends the entries of the pending offers, as many as fit into one transaction.
func (p *producer) send(life context.Context) {
	var sent []*offer
	done, err := p.receipt.transact(life, p.session, func() (ops []any) {
		sent, ops = p.load()
		return ops
	}, func() { p.offers.Return(sent) })

	failed := done.failed(err)
	culprit := culprit(sent, failed)
	switch {
	case err == nil:
		p.deliver(sent, done)
	case errors.Is(err, errNothingToDo):
	case errors.Is(err, protocol.ErrUncertain):
		p.presence.discard()
		for _, o := range sent {
			p.offers.Answer(&UncertainError{Data: o.items, Err: err}, o)
		}
	case errors.Is(err, errNoReceipt): // and nothing was executed
		p.presence.discard()
	case errors.Is(err, zk.ErrBadVersion) && failed == p.keys.checkedAt:
		p.keys.known = false
	case errors.Is(err, zk.ErrNoNode) && failed >= 0 && failed == p.bound.checkedAt:
		p.endTurn()
	case errors.Is(err, zk.ErrNoNode):
		if err := p.recreate(life, sent); err != nil {
			p.fail(err, sent...)
		}
	case culprit != nil && errors.Is(err, zk.ErrNodeExists):
		p.offers.Answer(nil, culprit) // its key was offered before
	case culprit != nil:
		p.fail(err, culprit)
	case sent == nil:
		p.fail(err, p.offers.Pending()...)
	default:
		p.fail(err, sent...)
	}
}

// load collects the offers of the next transaction and returns its operations.
func (p *producer) load() (offers []*offer, ops []any) {
	most, n, keyed := p.maxLength, 0, make(map[string]bool)
	offers = p.offers.Collect(func(o *offer, room *batch.Room) bool {
		creates := p.creates(o)
		switch {
		case most > 0 && p.bound.length+n+len(o.items) > most:
			return false
		case n > 0 && p.next+int64(n+o.numbers()) > layout.MaxSequence:
			return false
		case o.key != "" && (keyed[o.key] || !p.keys.known): // the first one may fail
			return false
		case !room.Take(len(creates), protocol.MultiSize(creates...)):
			return false
		}

		o.at, o.operations = len(ops), len(creates)
		ops = append(ops, creates...)
		n += o.numbers()
		if o.key != "" {
			keyed[o.key] = true
		}
		return true
	})

	p.bound.checkedAt, p.keys.checkedAt = -1, -1
	if p.bound.turn != nil && ops != nil {
		p.bound.checkedAt = len(ops)
		ops = append(ops, p.bound.turn.Check())
	}
	if len(keyed) > 0 {
		p.keys.checkedAt = len(ops)
		ops = append(ops, p.keys.check())
	}
	return offers, ops
}

// culprit returns the offer whose key could not be remembered, if that is the operation which has
// failed. All other operations fail, or not, for all offers.
func culprit(sent []*offer, failed int) *offer {
	for _, o := range sent {
		if o.key != "" && failed > o.at && failed < o.at+o.operations {
			return o
		}
	}
	return nil
}

// recreate creates what offers need in the tree, and is not there any more.
func (p *producer) recreate(life context.Context, sent []*offer) error {
	p.bound.readAt = time.Time{}
	p.next = -1
	nodes := []string{receiptsNode}
	for _, o := range sent {
		if o.due != 0 {
			nodes = append(nodes, bucketOf(o.due))
		}
		if o.key != "" {
			p.keys.known = false
		}
	}
	return p.ensure(life, p.session, nodes...)
}

// deliver answers offers whose entries were appended, with the entries' IDs unless the server's
// answer was lost.
func (p *producer) deliver(sent []*offer, done result) {
	n, all, keyed := 0, 0, false
	for _, o := range sent {
		n += o.numbers()
		all += len(o.items)
		keyed = keyed || o.key != ""
		if done.answers == nil {
			continue
		}
		for _, a := range done.answers[o.at:][:len(o.items)] {
			o.ids = append(o.ids, o.id(a.String))
		}
		if latest, ok := layout.ParseEntry(o.ids[len(o.ids)-1], true); ok && o.due == 0 {
			p.next = int64(latest.Sequence) + 1
		}
	}
	p.report(protocol.EventOffered, all, nil)
	p.offers.Answer(nil, sent...)

	p.bound.appended(n)
	if done.answers == nil {
		p.next += int64(n)
	} else if keyed {
		p.keys.roll(done.answers[len(done.answers)-1].Stat.Mtime)
	}
}
