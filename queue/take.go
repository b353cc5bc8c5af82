package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A consumer removes and reserves entries under one session, on behalf of all who ask for some in this process: those
// never compete among themselves, and are served by one transaction.
type consumer struct {
	*agent
	*desk
	head  head
	turns turns
	sight *protocol.Watch // of the directory, while the head is of any use
	czxid int64           // of the directory

	listed  time.Time // when the directory was
	checked time.Time // when entries were last found to be reserved still

	// Protected by the desk.
	reserved map[string]bool // the names of those that are
	freed    map[string]bool // those of them that this process has given back (false) or acknowledged (true)
	warned   map[string]bool // what was logged
}

const (
	fetchAhead = 32      // entries, at most
	fetchBytes = 1 << 20 // of data, by the size of the last entry

	windowMost = 128     // entries that are read at the same time
	takeBytes  = 8 << 20 // of data, which is about what a step reads
)

func newConsumer(a *agent) *consumer {
	c := &consumer{agent: a, reserved: make(map[string]bool), freed: make(map[string]bool), warned: make(map[string]bool)}
	c.desk = newDesk(a.session, c.serve)
	return c
}

func (c *consumer) serve(life context.Context) {
	place := &place{}
	defer place.leave()
	for {
		calls := c.open()
		if len(calls) == 0 {
			return
		}
		found, err := c.step(life, calls)
		switch {
		case err != nil:
			c.forget()
			if over := c.session.Err(); over != nil {
				err = over
			}
			c.finish(err, calls...)
		case !found:
			c.finish(ErrEmpty, slices.DeleteFunc(calls, func(d *call) bool { return d.wait })...)
			if calls := c.open(); len(calls) > 0 {
				c.doze(life, place)
			} else {
				return
			}
		}
	}
}

// step gives what there is to those who ask, and tells whether there was anything.
func (c *consumer) step(life context.Context, calls []*call) (found bool, err error) {
	wanted := 0
	for _, d := range calls {
		wanted += d.want
	}
	entries, err := c.ready(life, min(wanted, maxOps))
	if err != nil || len(entries) == 0 {
		return false, err
	}
	return true, c.grab(life, entries)
}

// ready returns up to n entries that are there and not reserved, as far as anybody knows, with their data. It returns
// none only if there were none at some moment since the call began.
func (c *consumer) ready(life context.Context, n int) ([]*entry, error) {
	listed, synced := false, false
	for {
		if err := c.review(life); err != nil {
			return nil, err
		}
		now, err := c.turn(life, n)
		if err != nil {
			return nil, err
		}
		if now == nil {
			next := c.head.pick(n + max(c.head.spread.rank, c.ahead()))
			if len(next) < n && !listed {
				listed = true
				if err := c.list(life); err != nil {
					return nil, err
				}
				continue
			}
			now = next[:min(n+c.head.spread.rank, len(next))]
			c.fetch(now[:min(c.window(), len(now))])
			if len(next) > 0 && next[len(next)/2].reading == nil { // many at a time: servers are slow at reads and writes in turns
				c.fetch(next[:min(c.window(), len(next))])
			}
		}
		if len(now) > 0 {
			there, err := c.await(now)
			if err != nil {
				return nil, err
			}
			if same, err := c.sight.Same(life); err != nil {
				return nil, err
			} else if !same {
				c.forget()
				listed = false
				continue
			}
			if there = c.head.choose(there, n); len(there) > 0 {
				return there, nil
			}
			listed = false
			continue
		}
		if synced && listed {
			return nil, nil
		}
		if !synced {
			if err := c.session.Sync(life, c.queue.path); err != nil {
				return nil, err
			}
			synced = true
		}
		listed = false
	}
}

// ahead is how many entries to read before anybody asks for them.
func (c *consumer) ahead() int {
	if c.head.spread.consumers > 1 {
		return 0 // it would be gone by then
	}
	return min(fetchAhead, fetchBytes/(c.head.size+1))
}

// window is how many entries to read at the same time, by the size of the last one.
func (c *consumer) window() int { return min(windowMost, takeBytes/(c.head.size+1)+1) }

// list looks which entries there are.
func (c *consumer) list(life context.Context) error {
	if c.sight == nil {
		sight := c.session.Watch(c.queue.path)
		stat, err := sight.Ready(life)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		c.sight, c.czxid = sight, stat.Czxid
	}
	children, err := protocol.Do(life, c.session, func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(c.dir)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return children, err
	})
	if err != nil {
		return err
	}
	c.head.replace(parseAll(children))
	c.listed = time.Now()
	c.leaveToOthers()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reserved)
	for _, e := range c.head.aside {
		c.reserved[e.name] = true
	}
	return nil
}

// forget drops all that is known.
func (c *consumer) forget() {
	c.head = head{size: c.head.size, spread: c.head.spread}
	c.turns, c.sight = turns{}, nil
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reserved)
	clear(c.freed)
}

// review drops what is known if the directory is not the same any more, and returns entries to their place that may not
// be reserved any longer.
func (c *consumer) review(life context.Context) error {
	if c.sight != nil {
		if same, err := c.sight.Same(life); err != nil {
			return err
		} else if !same {
			c.forget()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := time.Since(c.checked) >= c.recheck()
	if all {
		c.checked = time.Now()
	}
	c.head.aside = slices.DeleteFunc(c.head.aside, func(e *entry) bool {
		acknowledged, freed := c.freed[e.name]
		if !all && !freed && !e.tripped() {
			return false
		}
		e.gone = acknowledged
		e.reserved, e.claim, e.guard, e.reading = false, "", nil, nil
		delete(c.reserved, e.name)
		c.head.recall(e)
		return true
	})
	clear(c.freed)
	c.setGuards()
	return nil
}

// recheck is how often things are looked at that are watched, or ought to be.
func (c *consumer) recheck() time.Duration { return c.session.Timeout() / 3 }

// setAside notes that an entry is reserved, and has it guarded if it is one of the few that are: they are the next.
func (c *consumer) setAside(e *entry) {
	if len(c.head.aside) == 0 {
		c.checked = time.Now()
	}
	if e.reserved {
		return
	}
	e.reserved, e.reading = true, nil
	c.head.aside = append(c.head.aside, e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved[e.name] = true
}

// free tells the consumer that an entry that was reserved here is not so any more.
func (c *consumer) free(name string, acknowledged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed[name] = acknowledged
	c.wake()
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

// An op is what a transaction does with an entry, for a call. One without draws a number.
type op struct {
	entry *entry
	call  *call
}

// grab removes or reserves entries for those who have asked, in one transaction. If somebody else was faster with one of
// them nothing happens, but it is not tried again.
func (c *consumer) grab(life context.Context, entries []*entry) error {
	var ops []op // for each operation
	var sent []*call
	done, err := c.receipts.transact(life, forRemovals, transaction{
		prepare: func() (requests []any) {
			sent, ops, requests = c.assign(entries)
			return requests
		},
		unsent: func(unknown bool) { c.unsend(sent, unknown) },
	})
	switch failed := failedAt(done.answers, err); {
	case err == nil:
		return c.deliver(life, sent, done)
	case errors.Is(err, errNothingToDo):
		return nil
	case errors.Is(err, protocol.ErrUncertain):
		c.lose(sent, err)
		return nil
	case errors.Is(err, protocol.ErrTooLarge):
		if len(sent) > 1 || len(sent[0].ids) > 1 {
			c.unsend(sent, true) // each entry may do alone
		} else {
			c.finish(err, sent...)
		}
		return nil
	case failed >= 0 && failed < len(ops):
		if ops[failed].entry == nil {
			if c.refused(err) {
				return nil
			}
			return err
		}
		return c.collide(life, ops[failed].entry, entries, err)
	}
	return err
}

// assign makes a transaction of what the calls want.
func (c *consumer) assign(entries []*entry) (sent []*call, ops []op, requests []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	add := func(e *entry, d *call, r ...any) {
		for range r {
			ops = append(ops, op{e, d})
		}
		requests = append(requests, r...)
	}
	size, limit := 0, c.space.whole()
	for _, d := range c.calls {
		d.ids, d.data = nil, nil
		for _, e := range entries[:min(d.want, len(entries))] {
			node := c.dir + "/" + e.name
			r := []any{&zk.DeleteRequest{Path: node, Version: e.stat.Version}}
			if d.reserve {
				d.claim = c.newClaim(e)
				r = c.requests(d.claim)
			}
			if size += protocol.MultiSize(r...); size > limit && len(requests) > 0 {
				break
			}
			add(e, d, r...)
			d.ids, d.data = append(d.ids, e.name), append(d.data, e.data)
		}
		n := len(d.ids)
		if n == 0 {
			break
		}
		d.sent, d.entries, entries = true, entries[:n], entries[n:]
		sent = append(sent, d)
		limit = c.space.size()
	}
	if len(sent) > 0 && c.turns.uses(sent[0].entries[0]) {
		add(nil, nil, &zk.SetDataRequest{Path: c.turns.node, Version: -1})
	}
	return sent, ops, requests
}

// deliver hands over what was removed or reserved. Should the directory be another one than the one that was read, then
// these were other entries of the same names.
func (c *consumer) deliver(life context.Context, sent []*call, done result) error {
	same, err := c.sight.SameAt(life, done.zxid)
	if err == nil && !same {
		err = errors.New("the queue was deleted and made anew meanwhile")
	}
	if err != nil {
		c.lose(sent, uncertain(err))
		return nil
	}
	i := 0
	for _, d := range sent {
		for _, e := range d.entries {
			if !d.reserve {
				e.gone = true
				i++
				continue
			}
			c.setAside(e)
			e.claim = d.claim.node
			d.claim.token = done.zxid
			i += 2
		}
	}
	switch {
	case !c.turns.uses(sent[0].entries[0]):
		c.head.spread.took(len(sent))
	case done.answers == nil:
		c.turns.drawn = false
	default:
		c.drew(done.answers[i].Stat)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range sent {
		if d.left && d.reserve {
			c.giveUp(d.claim)
		}
	}
	c.end(nil, sent...)
	return nil
}

// lose ends calls of which nobody knows whether they have got what they have asked for. Claims that were made go with
// the session at the latest.
func (c *consumer) lose(sent []*call, err error) {
	over := c.session.Err()
	for _, d := range sent {
		if !d.reserve {
			c.finish(&UncertainError{IDs: d.ids, Data: d.data, Err: err}, d)
			continue
		}
		c.giveUp(d.claim)
		if over != nil {
			c.finish(over, d)
		}
	}
	c.unsend(sent, false)
	c.forget()
}

// collide looks why an entry could not be had.
func (c *consumer) collide(life context.Context, e *entry, tried []*entry, err error) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		e.gone = true
	case errors.Is(err, zk.ErrNotEmpty):
		c.setAside(e)
	case errors.Is(err, zk.ErrBadVersion):
		e.reading = nil // its data was changed, or it was reserved
	default:
		return err
	}
	if c.turns.node != "" {
		return nil
	}
	c.head.doubt(append(c.head.pick(fetchAhead), tried...))
	if c.turns.drawn {
		return nil
	}
	return c.makeWay(life)
}
