package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// An offer is the request of an Offer or an OfferAll.
type offer struct {
	batch.Request
	items [][]byte
	ids   []string // the outcome; nil if they are not known
}

// A producer creates entries under one session. Offers that arrive while a transaction is under way
// go with the next one. There is one at a time, which keeps the order of each caller's entries.
type producer struct {
	*perSession
	offers *batch.Batcher[*offer]

	// Of the directory, as of the last look or the last offer.
	next     int64 // the number of the next entry, or more by now; negative if that is not known
	lookedAt time.Time
	length   int   // children, or fewer by now
	version  int32 // at which there were so many
	data     []byte
}

// lookAgainAfter bounds how long the number of the last offer is trusted to say where the others
// are.
const lookAgainAfter = time.Minute

func newProducer(p *perSession) *producer {
	producer := &producer{perSession: p, next: -1}
	producer.offers = batch.New(p, limits, producer.serve, func(_ *offer, cause error) error {
		return uncertain(cause)
	})
	return producer
}

// offer blocks until a transaction has appended the items, or has not.
func (p *producer) offer(ctx context.Context, items [][]byte) (*offer, error) {
	o := &offer{items: items}
	return o, p.offers.Do(ctx, o)
}

// serve sends one transaction after the other, while there are offers.
func (p *producer) serve(life context.Context) {
	for pending := range p.offers.Rounds() {
		if err := p.admit(life, pending[0]); err != nil {
			p.fail(err, pending[0])
		} else {
			p.send(life)
		}
	}
}

// fail answers offers with an error. If the session is over the next one may do better.
func (p *producer) fail(err error, offers ...*offer) {
	if over := p.session.Err(); over != nil && !errors.Is(err, protocol.ErrUncertain) {
		err = over
	}
	p.offers.Answer(err, offers...)
}

// admit returns an error if there is no room for the first offer, or no number.
func (p *producer) admit(life context.Context, first *offer) error {
	full := func() bool {
		return p.queue.maxLength > 0 && p.length+len(first.items) > p.queue.maxLength
	}
	exhausted := func() bool { return p.next+int64(len(first.items)) > lastSequence }

	// What is known may be out of date.
	if p.next < 0 || time.Since(p.lookedAt) >= lookAgainAfter || exhausted() || full() {
		if err := p.look(life); err != nil {
			return err
		}
	}

	switch {
	case exhausted():
		return fmt.Errorf("%w: the next number is %d, and %d is the last; drain the queue and delete its node "+
			"while no client uses it, or use another path",
			protocol.ErrSequenceExhausted, p.next, int64(lastSequence))
	case full():
		return fmt.Errorf("%w: it has %d entries, and may have %d", ErrFull, p.length, p.queue.maxLength)
	default:
		return nil
	}
}

// look reads how long the queue is, and which number comes next: its Stat counts creations and
// deletions together.
func (p *producer) look(life context.Context) error {
	if err := p.session.Sync(life, p.queue.path); err != nil {
		return err
	}
	stat, err := protocol.Do(life, p.session, func(c *zk.Conn) (stat *zk.Stat, err error) {
		p.data, stat, err = c.Get(p.dir)
		return stat, err
	})

	if errors.Is(err, zk.ErrNoNode) {
		if err = p.queue.create(life, p.session); err == nil {
			return p.look(life)
		}
	}
	if err != nil {
		return err
	}

	p.next, p.lookedAt = int64(uint32(stat.Cversion+stat.NumChildren)>>1), time.Now()
	p.length, p.version = int(stat.NumChildren), stat.Version
	return nil
}

// create creates the queue's node. Its parents may be containers, but the node is none, as the
// server would delete that whenever it is empty. Then a request for an entry that was read before
// would hit the entry of the same name and version in the next one.
func (q *Queue) create(life context.Context, s *protocol.Session) error {
	for {
		_, err := protocol.Do(life, s, func(c *zk.Conn) (string, error) {
			return protocol.Create(c, s.Path(q.path), nil, zk.FlagPersistent, q.recipe.ACL())
		})

		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if _, err := s.EnsurePath(life, path.Dir(q.path)); err != nil {
			return err
		}
	}
}

// send appends the entries of the pending offers, as many as fit into one transaction.
func (p *producer) send(life context.Context) {
	var sent []*offer
	done, err := p.receipts.transact(life, forOffers, transaction{
		prepare: func() (ops []any) {
			sent, ops = p.load()
			return ops
		},
		unsent: func(unanswered bool) { returned(p.offers, sent, unanswered) },
	})

	switch {
	case err == nil:
		p.deliver(life, sent, done)
	case errors.Is(err, errNothingToDo):
	case errors.Is(err, protocol.ErrUncertain):
		p.next = -1
		for _, o := range sent {
			p.offers.Answer(&UncertainError{Data: o.items, Err: err}, o)
		}
	case errors.Is(err, protocol.ErrTooLarge) && len(sent) > 1:
		returned(p.offers, sent, true) // each of them may do alone
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		p.next = -1 // look again, which makes the directory if it has to
	case sent == nil:
		p.fail(err, p.offers.Pending()...)
	default:
		p.fail(err, sent...)
	}
}

// load collects the offers of the next transaction, and returns its operations.
func (p *producer) load() (offers []*offer, ops []any) {
	most := p.queue.maxLength
	offers = p.offers.Collect(func(o *offer, room *batch.Room) bool {
		creates := p.queue.creates(p.dir, o.items)
		n := len(ops) + len(creates)
		if most > 0 && ops == nil {
			room.Reserve(len(p.data)) // which is written again
		}

		switch {
		case most > 0 && p.length+n > most:
			return false
		case ops != nil && p.next+int64(n) > lastSequence:
			return false
		case !room.Take(len(creates), protocol.MultiSize(creates...)):
			return false
		}

		ops = append(ops, creates...)
		return true
	})

	// The version of the queue's own node says whether the length that we know still holds.
	if most > 0 && ops != nil {
		ops = append(ops, &zk.SetDataRequest{Path: p.dir, Data: p.data, Version: p.version})
	}
	return offers, ops
}

// creates are the operations that append entries below the absolute path dir.
func (q *Queue) creates(dir string, items [][]byte) (ops []any) {
	for _, data := range items {
		ops = append(ops, &zk.CreateRequest{
			Path: dir + "/" + prefix, Data: data, Acl: q.recipe.ACL(), Flags: zk.FlagSequence,
		})
	}
	return ops
}

// deliver answers offers whose entries were appended, with the entries' IDs.
func (p *producer) deliver(life context.Context, sent []*offer, done result) {
	n := 0
	for _, o := range sent {
		n += len(o.items)
	}

	// If the answer was lost, the IDs may be found in the directory.
	var ids []string
	if done.answers == nil {
		p.next = -1
		ids = p.recover(life, done.zxid, n)
	} else {
		for _, a := range done.answers[:n] {
			ids = append(ids, path.Base(a.String))
		}
		p.appended(ids[n-1], done.answers[n].Stat)
	}

	for _, o := range sent {
		if ids != nil {
			o.ids, ids = ids[:len(o.items)], ids[len(o.items):]
		}
	}
	p.offers.Answer(nil, sent...)
}

// appended notes what the answer to an offer says of the directory: the ID of the last entry and,
// with a maximum length, the Stat of the queue's node.
func (p *producer) appended(id string, stat *zk.Stat) {
	last, _ := parse(id)
	p.next, p.lookedAt = int64(last)+1, time.Now()
	if p.queue.maxLength > 0 {
		p.length, p.version = int(stat.NumChildren), stat.Version
	}
}

// lookBack is how many entries younger than those in question recover passes over.
const lookBack = 64

// recover finds the n entries that a transaction has created whose answer was lost. It returns nil
// if any of them was consumed already, as those that are left cannot be told apart then.
func (p *producer) recover(life context.Context, zxid int64, n int) (ids []string) {
	children, err := protocol.Do(life, p.session, func(c *zk.Conn) ([]string, error) {
		children, _, err := c.Children(p.dir)
		return children, err
	})
	if err != nil {
		return nil
	}

	// From the youngest back to the first that is older.
	entries := parseAll(children)
	for i := len(entries) - 1; i >= 0 && len(entries)-i <= n+lookBack; i-- {
		created, err := protocol.Do(life, p.session, func(c *zk.Conn) (int64, error) {
			there, stat, err := c.Exists(p.dir + "/" + entries[i].name)
			if err != nil || !there {
				return 0, err
			}
			return stat.Czxid, nil
		})
		if err != nil {
			return nil
		}

		if created == zxid {
			ids = append(ids, entries[i].name)
		} else if created > 0 && created < zxid {
			break
		}
	}

	if len(ids) != n {
		return nil
	}
	slices.Reverse(ids)
	return ids
}
