package queue

import (
	"context"
	"errors"
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

// A consumer removes and reserves entries under one session, for all callers in this process. These
// never compete among themselves, and share transactions.
type consumer struct {
	*perSession
	removals *batch.Batcher[*removal]

	window    window
	tickets   tickets
	directory *protocol.Watch // as it was when the window was listed; nil if that is of no use
	czxid     int64           // of the directory

	listed  time.Time // when the directory was listed
	checked time.Time // when reserved entries were last found to be still reserved

	mu       sync.Mutex      // protects what follows
	reserved map[string]bool // the names of those that are
	freed    map[string]bool // those of them that this process has given back (false) or acknowledged (true)
	warned   map[string]bool // what was logged
}

func newConsumer(p *perSession) *consumer {
	c := &consumer{
		perSession: p,
		reserved:   make(map[string]bool), freed: make(map[string]bool), warned: make(map[string]bool),
	}
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
	slot := &slot{}
	defer slot.leave()
	for pending := range c.removals.Rounds() {
		found, err := c.round(life, pending)

		switch {
		case err != nil:
			c.reset()
			if over := c.session.Err(); over != nil {
				err = over
			}
			c.removals.Answer(err, pending...)
		case !found:
			waiting := func(r *removal) bool { return r.wait }
			c.removals.Answer(ErrEmpty, slices.DeleteFunc(pending, waiting)...)
			if len(c.removals.Pending()) > 0 {
				c.waitForEntries(life, slot)
			}
		}
	}
}

// round gives the pending requests what there is, and reports whether there was anything.
func (c *consumer) round(life context.Context, pending []*removal) (found bool, err error) {
	wanted := 0
	for _, r := range pending {
		wanted += r.max
	}

	entries, err := c.ready(life, min(wanted, maxOps))
	if err != nil || len(entries) == 0 {
		return false, err
	}
	return true, c.send(life, entries)
}

// warn logs, once, what goes wrong without failing a call.
func (c *consumer) warn(what string, err error) {
	c.mu.Lock()
	said := c.warned[what]
	c.warned[what] = true
	c.mu.Unlock()

	if !said && c.session.Err() == nil {
		c.queue.recipe.Logger().Warn("queue "+what, "path", c.queue.path, "error", err)
	}
}

// send removes or reserves entries for the pending requests, in one transaction. If another
// consumer has been faster with one of them, nothing happens, and that one is not tried again.
func (c *consumer) send(life context.Context, entries []*entry) error {
	var sent []*removal
	var touched []*entry // by each operation; nil for the one that draws a ticket
	done, err := c.receipts.transact(life, forRemovals, transaction{
		prepare: func() (ops []any) {
			sent, touched, ops = c.load(entries)
			return ops
		},
		unsent: func(unanswered bool) { returned(c.removals, sent, unanswered) },
	})

	failed := failedAt(done.answers, err)
	switch {
	case err == nil:
		return c.deliver(life, sent, done)
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
		return c.collided(life, touched[failed], entries, err)
	case c.ticketsGone(err):
		return nil
	default:
		return err
	}
}

// load collects the requests of the next transaction, and returns its operations.
func (c *consumer) load(entries []*entry) (sent []*removal, touched []*entry, ops []any) {
	sent = c.removals.Collect(func(r *removal, room *batch.Room) bool {
		r.entries, r.ids, r.data = nil, nil, nil
		for _, e := range entries[:min(r.max, len(entries))] {
			node := c.dir + "/" + e.name
			more := []any{&zk.DeleteRequest{Path: node, Version: e.stat.Version}}
			if r.reserve {
				r.claim = c.newClaim(e)
				more = c.claimOps(r.claim)
			}
			if !room.Take(1, protocol.MultiSize(more...)) {
				break
			}

			for range more {
				touched = append(touched, e)
			}
			ops = append(ops, more...)
			r.entries, r.ids, r.data = append(r.entries, e), append(r.ids, e.name), append(r.data, e.data)
		}
		entries = entries[len(r.entries):]
		return len(r.entries) > 0
	})

	if len(sent) > 0 && c.tickets.uses(sent[0].entries[0]) {
		touched = append(touched, nil)
		ops = append(ops, &zk.SetDataRequest{Path: c.tickets.node, Version: -1})
	}
	return sent, touched, ops
}

// deliver hands over what was removed or reserved. Should the directory be another one than the one
// that was read, then these were other entries of the same names.
func (c *consumer) deliver(life context.Context, sent []*removal, done result) error {
	same, err := c.directory.SameAt(life, done.zxid)
	if err == nil && !same {
		err = errors.New("the queue was deleted and created again meanwhile")
	}
	if err != nil {
		c.outcomeUnknown(sent, uncertain(err))
		return nil
	}

	i := 0 // counts operations
	for _, r := range sent {
		for _, e := range r.entries {
			if !r.reserve {
				e.gone = true
				i++
				continue
			}

			c.foundReserved(e)
			e.claim = r.claim.node
			r.claim.token = done.zxid
			i += 2
		}
	}

	switch {
	case !c.tickets.uses(sent[0].entries[0]):
		c.window.ranking.took(len(sent))
	case done.answers == nil:
		c.tickets.held = false
	default:
		c.gotTicket(done.answers[i].Stat)
	}

	// A caller that has left cannot give its item back.
	for _, r := range c.removals.Answer(nil, sent...) {
		if r.reserve {
			c.deleteLater(r.claim)
		}
	}
	return nil
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
	c.reset()
}

// collided finds out why the transaction failed at an entry, and keeps away from other consumers.
func (c *consumer) collided(life context.Context, e *entry, tried []*entry, err error) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		e.gone = true
	case errors.Is(err, zk.ErrNotEmpty):
		c.foundReserved(e)
	case errors.Is(err, zk.ErrBadVersion):
		e.reading = nil // its data was changed, or it was reserved
	default:
		return err
	}
	if c.tickets.node != "" {
		return nil
	}

	forgetData(append(c.window.pick(aheadEntries), tried...))
	if c.tickets.held {
		return nil
	}
	return c.avoidOthers(life)
}
