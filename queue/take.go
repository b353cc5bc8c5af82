package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A removal is the request of a Take, a Poll, a PollN or a reservation.
type removal struct {
	batch.Request
	max     int  // entries
	wait    bool // for entries to come
	reserve bool // rather than remove

	// What it was sent with, and gets if that was executed.
	entries []*entry
	ids     []string
	data    [][]byte
	claim   *claim
}

// suited reports whether there are entries for the request.
func (r *removal) suited() bool { return len(r.entries) > 0 }

// A consumer removes and reserves entries under one session, for all callers in this process. These
// never compete among themselves, and share transactions.
type consumer struct {
	*perSession
	removals *batch.Batcher[*removal]
	receipt  receipt

	window   window
	crowd    crowd
	tickets  tickets
	place    place
	forecast forecast // of the entry that comes next
	foreign  foreign

	mu     sync.Mutex       // protects what follows
	asides map[string]error // entries that are to be set aside, by their nodes' names
	warned map[string]bool  // what was logged
}

func newConsumer(p *perSession) *consumer {
	c := &consumer{perSession: p, asides: make(map[string]error), warned: make(map[string]bool)}
	c.receipt = receipt{session: p.session, prefix: p.records + "/" + takerPrefix, busy: p.holdsItems}
	c.removals = batch.New(p, limits, c.serve, func(r *removal, cause error) error {
		if r.reserve { // which comes back
			return cause
		}
		return uncertain(cause)
	})
	return c
}

// remove blocks until a transaction has removed or reserved entries for r, or has not.
func (c *consumer) remove(ctx context.Context, r *removal) (*removal, error) {
	return r, c.removals.Do(ctx, r)
}

// serve gives the pending requests what there is, again and again, and waits when the queue is
// empty.
func (c *consumer) serve(life context.Context) {
	defer c.receipt.rest()
	defer c.place.leave()
	for pending := range c.removals.Rounds() {
		found, err := c.round(life, pending)

		switch {
		case errors.Is(err, errNoReceipt): // and what was read with it is of no use
			c.receipt.discard()
			c.forget()
		case err != nil:
			c.forget()
			if over := c.session.Err(); over != nil {
				err = over
			}
			c.removals.Answer(err, pending...)
		case !found:
			waiting := func(r *removal) bool { return r.wait }
			c.removals.Answer(c.nothing(), slices.DeleteFunc(pending, waiting)...)
			left := c.removals.Pending()
			if len(left) > 0 && !slices.ContainsFunc(left, func(r *removal) bool { return !r.wait }) {
				c.waitForEntries(life)
			}
		}
	}
}

// nothing returns the error of a call that does not wait, where there is nothing for it.
func (c *consumer) nothing() error {
	for _, e := range c.window.held {
		if e.refused != nil {
			return fmt.Errorf("entry %s: %w", e.node, e.refused)
		}
	}
	return ErrEmpty
}

// round gives the pending requests what there is, and reports whether there was anything.
func (c *consumer) round(life context.Context, pending []*removal) (found bool, err error) {
	wanted, waiting, atOnce, claims, holds := 0, false, false, true, false
	for _, r := range pending {
		wanted += r.max
		waiting = waiting || r.wait
		atOnce = atOnce || !r.wait
		claims = claims && r.reserve
		holds = holds || r.reserve
	}
	if prefix := c.records + "/" + holderPrefix; holds && c.receipt.prefix != prefix {
		c.receipt.discard()
		c.receipt.prefix = prefix
	}

	there, err := c.begin(life, waiting)
	if err != nil || !there {
		return false, err
	}
	c.setAsides()
	c.window.claims = claims
	entries, err := c.next(life, min(wanted, maxOps), atOnce)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	return true, c.send(life, entries, wanted)
}

// begin makes sure that there is a receipt, before anything is read. It creates no node of the
// queue for a call that does not wait, if there are no entries. It reports whether there may be
// some.
func (c *consumer) begin(life context.Context, waiting bool) (bool, error) {
	for {
		created, err := c.receipt.use(life)
		if created || err == nil && c.crowd.watch == nil { // an error has made us forget
			c.forget()
			c.crowd.watch, c.crowd.register = c.session.WatchChildren(c.records), c.session.Watch(c.records)
			err = c.list(life) // while these are on their way
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err == nil, err
		}

		if !waiting {
			if err := c.session.Sync(life, c.path); err != nil {
				return false, err
			}
			children, _, err := c.session.Children(life, c.path)
			if errors.Is(err, zk.ErrNoNode) || err == nil && len(c.names(children)) == 0 {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		if _, err := c.session.EnsurePath(life, c.records); err != nil {
			return false, err
		}
	}
}

// forget drops all that is known of the queue, but for what only says which entries are tried
// first.
func (c *consumer) forget() {
	c.window.forget()
	c.crowd, c.tickets.forbidden = crowd{}, false
}

// warn logs, once, what goes wrong without failing a call.
func (c *consumer) warn(what string, err error) {
	c.mu.Lock()
	said := c.warned[what]
	c.warned[what] = true
	c.mu.Unlock()

	if !said && c.session.Err() == nil {
		c.recipe.Logger().Warn("queue "+what, "path", c.path, "error", err)
	}
}

// send removes or reserves entries for the pending requests, which want so many, in one
// transaction. If another consumer has been faster with one of them, nothing happens, and that one
// is not tried again.
func (c *consumer) send(life context.Context, entries []*entry, wanted int) error {
	var sent []*removal
	var touched []*entry // by each operation; nil for those that draw tickets
	began := time.Now()
	done, err := c.receipt.transact(life, func() (ops []any) {
		sent, touched, ops = c.load(entries, wanted)
		return ops
	}, func(unanswered bool) {
		for _, r := range sent {
			if r.reserve {
				c.release(r.claim, false)
			}
		}
		returned(c.removals, sent, unanswered)
	})
	c.window.stale = true

	failed := done.failed(err)
	switch {
	case err == nil:
		c.window.beaten = false
		c.deliver(sent, touched, done)
		c.place.leave()
		c.foreign.makeWay(life, time.Since(began))
		return nil
	case errors.Is(err, errNothingToDo):
		return nil
	case errors.Is(err, protocol.ErrUncertain):
		c.outcomeUnknown(sent, err)
		return nil
	case errors.Is(err, protocol.ErrTooLarge):
		if len(sent) > 1 || len(sent[0].ids) > 1 {
			returned(c.removals, sent, true) // each entry may do alone
		} else {
			c.removals.Answer(err, sent...)
		}
		return nil
	case failed < 0 || failed >= len(touched):
		return err
	case touched[failed] != nil:
		return c.collided(touched[failed], sent, err)
	case c.ticketsGone(err):
		return nil
	default:
		return err
	}
}

// load collects the requests of the next transaction, and returns its operations. A request that no
// entry suits is passed over, as those behind it may have come for such entries.
func (c *consumer) load(entries []*entry, wanted int) (sent []*removal, touched []*entry, ops []any) {
	left := slices.Clone(entries)
	var poor []*removal
	sent = c.removals.Collect(func(r *removal, room *batch.Room) bool {
		r.entries, r.ids, r.data = nil, nil, nil
		for len(r.entries) < r.max {
			i := slices.IndexFunc(left, func(e *entry) bool { return e.suits(r.reserve) })
			if i < 0 && len(r.entries) == 0 {
				return room.Skip() // the others may do with what is left
			} else if i < 0 {
				break
			}
			e := left[i]
			more := []any{&zk.DeleteRequest{Path: c.dir + "/" + e.node, Version: e.stat.Version}}
			if r.reserve {
				r.claim = c.newClaim(e)
				more = c.claimOps(r.claim)
				if !c.afford(r.claim) {
					poor = append(poor, r)
					return false
				}
			}
			if !room.Take(1, protocol.MultiSize(more...)) {
				if r.reserve {
					c.release(r.claim, false)
				}
				break
			}

			left = slices.Delete(left, i, i+1)
			for range more {
				touched = append(touched, e)
			}
			ops = append(ops, more...)
			r.entries, r.ids, r.data = append(r.entries, e), append(r.ids, e.node), append(r.data, e.data)
		}
		return len(r.entries) > 0
	})
	c.removals.Answer(ErrTooManyItems, poor...)
	c.removals.Return(slices.DeleteFunc(slices.Clone(sent), (*removal).suited))
	sent = slices.DeleteFunc(sent, func(r *removal) bool { return !r.suited() })

	if len(sent) > 0 {
		for _, draw := range c.tickets.draws(c, len(entries)-len(left), wanted) {
			touched = append(touched, nil)
			ops = append(ops, draw)
		}
	}
	return sent, touched, ops
}

// deliver hands over what was removed or reserved.
func (c *consumer) deliver(sent []*removal, touched []*entry, done result) {
	taken := 0
	for _, r := range sent {
		if !r.reserve {
			taken += len(r.entries)
		}
		for _, e := range r.entries {
			c.tickets.use(e.sequence)
			if r.reserve {
				c.window.hold(e, time.Time{}, nil)
				e.claim = r.claim
				r.claim.token = done.zxid
			} else {
				e.gone = true
			}
		}
	}
	for i, e := range touched {
		if e == nil && done.answers != nil {
			c.tickets.drawn(done.answers[i].Stat)
		}
	}

	if taken > 0 {
		c.report(protocol.EventTaken, taken, nil)
	}

	// A caller that has left cannot give its item back.
	for _, r := range c.removals.Answer(nil, sent...) {
		if r.reserve {
			c.deleteLater(r.claim)
		}
	}
}

// outcomeUnknown answers requests of which it is not known whether they were executed. Claims that
// were made go with the session at the latest, so these requests go on, under the next session if
// this one is over.
func (c *consumer) outcomeUnknown(sent []*removal, err error) {
	over := c.session.Err()
	for _, r := range sent {
		if !r.reserve {
			c.removals.Answer(&UncertainError{IDs: r.ids, Data: r.data, Err: err}, r)
			continue
		}

		c.deleteLater(r.claim)
		if over != nil {
			c.removals.Answer(over, r)
		}
	}
	c.removals.Return(sent)
	c.forget()
}

// collided notes why the transaction failed at an entry. The others are tried again.
func (c *consumer) collided(e *entry, sent []*removal, err error) error {
	c.window.beaten = true
	c.report(protocol.EventCollided, 1, err)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		c.isGone(e)
	case errors.Is(err, zk.ErrNotEmpty):
		c.window.hold(e, time.Time{}, nil)
	case errors.Is(err, zk.ErrBadVersion):
		e.reading = nil // its data was changed, or it was reserved
	case slices.ContainsFunc(sent, func(r *removal) bool { return r.reserve && slices.Contains(r.entries, e) }):
		c.refuse(e, err) // the entry's own ACL, or another peculiarity
	default:
		return err
	}
	return nil
}

// refuse sets an entry aside for a while that cannot be read or reserved, as others can.
func (c *consumer) refuse(e *entry, err error) {
	c.warn("has an entry that cannot be delivered, and goes on without it: "+e.node, err)
	c.window.hold(e, time.Now().Add(asideFor), err)
	c.leaveToOthers(e)
}

// leaveToOthers makes others look at an entry, once, that this consumer cannot take.
func (c *consumer) leaveToOthers(e *entry) {
	c.place.unfit = c.place.unfit || !e.unfit
	e.unfit = true
}

// asideFor is how long an entry is left alone that could not be delivered.
const asideFor = time.Minute

// setAside makes the consumer leave an entry alone for a while, as err keeps it from being
// delivered. It is safe for concurrent use.
func (c *consumer) setAside(node string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asides[node] = err
}

func (c *consumer) setAsides() {
	c.mu.Lock()
	asides := c.asides
	if len(asides) > 0 {
		c.asides = make(map[string]error)
	}
	c.mu.Unlock()
	if len(asides) == 0 {
		return // without a look at the whole window
	}

	for _, e := range c.window.entries[c.window.first:] {
		if err := asides[e.node]; err != nil {
			c.refuse(e, err)
		}
	}
}
