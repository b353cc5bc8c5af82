package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An offer is the request of a call: entries that are appended together.
type offer struct {
	batch.Request
	prefix string // of the entries' nodes, below the queue's path
	// due is for a single delayed entry, in milliseconds since 1970. It is 0 if the entry isn't
	// delayed.
	due   int64
	key   string // of a single entry; empty if it has none
	items [][]byte
	ops   []any    // of the latest attempt
	ids   []string // nil if the answer was lost
}

// numbers returns how many of the queue's numbers the offer uses.
func (o *offer) numbers() int {
	if o.due != 0 {
		return 0
	}
	return len(o.items)
}

// id returns the ID of an entry, given the path of its node.
func (o *offer) id(node string) string {
	if o.due != 0 {
		_, id, _ := layout.ParseBeside(path.Base(node))
		return id
	}
	return path.Base(node)
}

// creates returns the operations that append an offer's entries and then remember its key.
func (p *producer) creates(o *offer) (ops []any) {
	for _, data := range o.items {
		if o.due != 0 {
			data = layout.Record{}.Append(data)
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
	maxLength int           // 0 if there is no bound
	retention time.Duration // of keys
}

// A producer creates entries in one session. Offers that arrive during a transaction go with the
// next transaction. There is one transaction at a time, so each caller's entries are in order.
//
// Before a producer reads anything that a transaction relies on, it has a receipt. The receipt's
// name is never used again. So a transaction that finds the receipt also finds the same queue node:
// if the node had been deleted and created again (with the same numbers), the receipt would be
// gone.
type producer struct {
	*site
	offering
	offers  *batch.Batcher[*offer]
	receipt *receipt // nil if there is none
	next    int64    // the number of the next entry, or a smaller number; negative if it is unknown
	bound   bound
	keys    keys
}

func newProducer(s *site, how offering, turns *line.Line) *producer {
	p := &producer{site: s, offering: how, next: -1, bound: bound{turns: turns}}
	p.keys.site, p.keys.retention = s, how.retention
	p.offers = batch.New(s, p.limits(), p.serve, func(o *offer, cause error) error {
		return &UncertainError{Data: o.items, Err: uncertain(cause)}
	})
	return p
}

// serve sends one transaction after the other while there are offers.
func (p *producer) serve(life context.Context) {
	for pending := range p.offers.Rounds(func() bool { return p.rest(life) }) {
		if lacking, err := p.prepare(life, pending); err != nil {
			p.fail(err, lacking...)
		} else if p.admit(life, pending) {
			p.send(life)
		}
		p.linger(life)
	}
	p.endTurn()
}

// rest ends the turn, and deletes the receipt after a moment without offers. It reports false if an
// offer has come.
func (p *producer) rest(life context.Context) bool {
	if p.linger(life); p.bound.turn != nil {
		return false
	}
	if p.receipt == nil {
		return true
	}
	if !p.offers.Idle(life, idleReceipt) {
		return false
	}
	// If it can't be deleted (for lack of a permission), it is used again.
	if life.Err() == nil && p.deleteNode(life, p.session, p.receipt.node) == nil {
		p.receipt = nil
	}
	return true
}

// fail answers offers that were not sent with an error. If the session has ended, the error says so
// and the calls go on in the next session.
func (p *producer) fail(err error, offers ...*offer) {
	p.offers.Answer(cmp.Or(p.session.Err(), err), offers...)
}

// prepare makes sure that the receipt and the queue exist. It reads the facts that pending offers
// rely on. With an error, it returns the offers that can't be sent without them.
func (p *producer) prepare(life context.Context, pending []*offer) (lacking []*offer, err error) {
	if p.receipt == nil {
		if p.receipt, err = p.newReceipt(life, receiptsNode); err != nil {
			return pending, err
		}
		p.bound.readAt = time.Time{}
	}

	keyed := slices.DeleteFunc(slices.Clone(pending), func(o *offer) bool { return o.key == "" })
	if len(keyed) > 0 && !p.keys.known {
		if err := p.keys.look(life); err != nil {
			return keyed, err
		}
	}

	// Nothing is known of the queue, or it was created again, or its numbers can have begun again.
	if p.next < 0 || p.exhausted(pending[0]) {
		return pending, p.look(life)
	}

	return nil, nil
}

// exhausted reports whether the queue has too few numbers left for an offer.
func (p *producer) exhausted(o *offer) bool {
	return p.next+int64(o.numbers()) > layout.MaxSequence
}

// look reads the queue's length and the number of the next entry, as of a moment after the call.
func (p *producer) look(life context.Context) error {
	if err := p.session.Sync(life, p.path); err != nil {
		return err
	}
	return p.glance(life)
}

// glance reads the same from the server at hand, which can be out of date.
func (p *producer) glance(life context.Context) error {
	stat, err := p.session.Exists(life, p.path)
	if err != nil {
		return err
	}

	// The next transaction finds that the queue is gone, and creates it.
	if stat == nil {
		p.next = -1
		p.bound.read(0)
		return nil
	}

	p.next = int64(layout.NextSequence(stat))
	// The node of the records is no entry.
	p.bound.read(int(stat.NumChildren) - 1)
	return nil
}

// admit answers pending offers that must fail. It reports whether the first offer can be sent.
func (p *producer) admit(life context.Context, pending []*offer) bool {
	first := pending[0]
	if p.exhausted(first) {
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

// send appends the entries of as many pending offers as fit into one transaction.
func (p *producer) send(life context.Context) {
	var sent []*offer
	operations := 0 // of the offers alone, without the checks
	done, err := p.receipt.transact(life, p.session, func() (ops []any) {
		sent, ops = p.load()
		if operations = len(ops); ops != nil {
			ops = append(ops, p.checks(sent)...)
		}

		return ops
	}, func() { p.offers.Return(sent) })

	failed := done.failed(err)
	offers, key := blamed(sent, failed)
	switch {
	case err == nil:
		p.deliver(sent, done)
	case errors.Is(err, errNothingToDo):
	case errors.Is(err, protocol.ErrUncertain), errors.Is(err, errNoReceipt):
		p.receipt.discard()
		p.receipt = nil
		// Unless the outcome is unknown, nothing was executed. So the offers are sent again.
		for _, o := range sent {
			if errors.Is(err, protocol.ErrUncertain) {
				p.offers.Answer(&UncertainError{Data: o.items, Err: err}, o)
			}
		}
	// The check of the keys failed: another directory is the latest.
	case errors.Is(err, zk.ErrBadVersion):
		p.keys.known = false
	case errors.Is(err, zk.ErrNoNode) && p.bound.turn != nil && failed == operations:
		p.endTurn()
	case errors.Is(err, zk.ErrNoNode):
		p.recreate(life, sent)
	// The key was offered before.
	case key && errors.Is(err, zk.ErrNodeExists):
		p.offers.Answer(nil, offers...)
	default:
		p.fail(err, offers...)
	}
}

// load collects the offers of the next transaction and returns their operations.
func (p *producer) load() (offers []*offer, ops []any) {
	most, n, keyed := p.maxLength, 0, make(map[string]bool)
	offers = p.offers.Collect(func(o *offer, room *batch.Room) bool {
		o.ops = p.creates(o)
		switch {
		// This offer and those behind it wait, so that no offer overtakes another.
		case most > 0 && o.due == 0 && p.bound.length+n+o.numbers() > most:
			return false
		case n > 0 && p.next+int64(n+o.numbers()) > layout.MaxSequence:
			return false
		// Two offers with one key can't share a transaction, because the first offer can fail.
		case o.key != "" && (keyed[o.key] || !p.keys.known):
			return false
		case !room.Take(len(o.ops), recipe.MultiSize(o.ops...)):
			return false
		}

		ops = append(ops, o.ops...)
		n += o.numbers()
		if o.key != "" {
			keyed[o.key] = true
		}

		return true
	})

	return offers, ops
}

// checks returns the operations that make a transaction fail if the producer has lost its turn, or
// if another directory of keys is the latest.
func (p *producer) checks(sent []*offer) (ops []any) {
	if p.bound.turn != nil {
		ops = append(ops, p.bound.turn.Check())
	}
	if slices.ContainsFunc(sent, func(o *offer) bool { return o.key != "" }) {
		ops = append(ops, &zk.CheckVersionRequest{Path: p.session.Path(p.path + keysNode), Version: p.keys.number - 1})
	}
	return ops
}

// blamed returns the offers for which the failed operation is to blame. If it is about a key, that
// is a single offer. If it creates an entry, it would fail for all offers into the same directory
// (delayed entries have their own). If it is about no offer, blamed returns all offers.
func blamed(sent []*offer, failed int) (offers []*offer, key bool) {
	i, operation := blame(sent, func(o *offer) int { return len(o.ops) }, failed)
	if i < 0 {
		return sent, false
	}
	key = operation >= len(sent[i].items)
	return slices.DeleteFunc(slices.Clone(sent), func(o *offer) bool {
		return key && o != sent[i] || path.Dir(o.prefix) != path.Dir(sent[i].prefix)
	}), key
}

// recreate creates nodes that offers need and that are gone. It answers the offers for which that
// fails.
func (p *producer) recreate(life context.Context, sent []*offer) {
	p.bound.readAt, p.next, p.keys.known = time.Time{}, -1, false
	if err := p.ensure(life, p.session, receiptsNode); err != nil {
		p.fail(err, sent...)
		return
	}

	for _, o := range sent {
		if o.due == 0 {
			continue
		}
		if err := p.ensure(life, p.session, bucketOf(o.due)); err != nil {
			p.fail(err, o)
		}
	}
}

// deliver answers the offers of an executed transaction. They get their IDs unless the server's
// answer was lost.
func (p *producer) deliver(sent []*offer, done result) {
	n, all, keyed := 0, 0, false
	answers := done
	for _, o := range sent {
		n += o.numbers()
		all += len(o.items)
		keyed = keyed || o.key != ""
		if done == nil {
			continue
		}

		for _, a := range answers[:len(o.items)] {
			o.ids = append(o.ids, o.id(a.String))
		}
		answers = answers[len(o.ops):]

		if latest, ok := layout.ParseEntry(o.ids[len(o.ids)-1], true); ok && o.due == 0 {
			p.next = int64(latest.Sequence) + 1
		}
	}

	p.report(protocol.EventOffered, all, nil)
	p.offers.Answer(nil, sent...)

	p.bound.appended(n)
	if done == nil {
		p.next += int64(n)
	} else if keyed {
		p.keys.roll(done[len(done)-1].Stat.Mtime)
	}
}
