package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Consumers of several sessions that race for the entries of a long queue draw tickets. A ticket is
// the number of the entry that a consumer takes next. Tickets come from a node that the consumers
// share: each write raises its version, and each version stands for a number. A consumer draws in
// the transaction that takes the entries of its last tickets, as many as it has requests. So
// consumers do not collide, and need not know what the others have taken.
//
// A ticket whose entry is gone is dropped. An entry stays behind if the consumer with its ticket
// has died, or asks no more. Consumers list the queue now and then, and take first what was behind
// all tickets at the listing before.
//
// Tickets only say which consumer should try which entry. The transaction is what takes it. So a
// wrong ticket can cost order or a round trip, and never an entry.
type tickets struct {
	node      string // without the chroot; empty if this consumer draws no tickets
	base      int32  // the number that version 0 of the node stands for
	numbers   []int32
	forbidden bool // the ACL does not let this consumer draw
}

const (
	ticketPrefix = "tickets-" // of the node's name, which ends with the base

	mostTickets = 64 // are drawn at once
	mostTries   = 3  // to find a node
	enoughEach  = 2  // entries for each ticket make a queue long enough for tickets
	farBehind   = 8  // times as many entries between tickets and what is there: they are of no use
)

// byTicket returns entries to be read, of which the available ones are to be taken. It returns none
// if tickets do not say which are next.
func (c *consumer) byTicket(life context.Context, n int) ([]*entry, error) {
	t := &c.tickets
	if c.crowd.size < 2 || c.priorities {
		return nil, nil
	}

	// What others have left is found now and then.
	if t.node != "" && time.Since(c.window.listed) >= c.session.Timeout()/3 {
		if err := c.list(life); err != nil {
			return nil, err
		}
	}

	n = min(n, mostTickets)
	for drawn := false; ; {
		if joined, err := c.joinTickets(life, n); !joined {
			return nil, err
		}
		chosen, beyond := c.window.match(t, n)
		switch {
		case beyond && !c.window.stale:
			return nil, nil // the queue has become too short
		case beyond:
			if err := c.list(life); err != nil {
				return nil, err
			}
		case len(chosen) == n || drawn && len(chosen) > 0:
			return chosen, nil
		default:
			drawn = true
			if err := c.draw(life, n-len(chosen)); err != nil {
				return nil, err
			}
		}
	}
}

// match returns the entries of up to n tickets, after those that others have left. It drops the
// tickets whose entries are not open. If beyond is true, there are tickets that the listing
// does not reach to.
func (w *window) match(t *tickets, n int) (chosen []*entry, beyond bool) {
	for _, e := range w.entries[w.first:] {
		if len(chosen) == n || !t.behind(e.sequence) {
			break
		}
		if e.left && w.open(e) {
			chosen = append(chosen, e)
		}
	}

	slices.Sort(t.numbers)
	t.numbers = slices.DeleteFunc(t.numbers, func(number int32) bool {
		i, found := w.index(number)
		if i == len(w.entries) {
			beyond = true
			return false
		}
		if !found || !w.open(w.entries[i]) {
			return true
		}
		if len(chosen) < n {
			chosen = append(chosen, w.entries[i])
		}
		return false
	})
	return chosen, beyond
}

// joinTickets makes sure that there is a node to draw tickets from, and that some were drawn. It
// creates the node if the queue is long enough, and reports whether there is one.
func (c *consumer) joinTickets(life context.Context, n int) (joined bool, err error) {
	t := &c.tickets
	for tries := 0; t.node == ""; tries++ {
		if tries == mostTries { // another client deletes them
			return false, nil
		}
		best, base, found := bestTickets(c.crowd.tickets)
		switch {
		case t.forbidden, c.crowd.size < 2:
			return false, nil
		case found:
			t.node, t.base, t.numbers = c.records+"/"+best, base, nil
			if err := c.draw(life, n); err != nil {
				return false, err
			}
			continue
		}

		enough := enoughEach * c.crowd.size * n
		waiting := c.window.pick(enough)
		if len(waiting) < enough {
			return false, nil
		}
		node := ticketPrefix + strconv.Itoa(int(waiting[0].sequence)-1)
		err := c.session.Create(life, c.records+"/"+node, nil, zk.FlagEphemeral)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists): // perhaps by an attempt whose answer was lost
			c.receipt.also(c.records + "/" + node)
		case errors.Is(err, zk.ErrNoAuth):
			c.forbid(err)
		case errors.Is(err, zk.ErrNoNode):
			return false, errNoReceipt
		default:
			return false, err
		}
		// Others may have created one at the same time: all join the best one. After the answer to
		// a write, the server knows of it.
		if err := c.count(life); err != nil {
			return false, err
		}
	}
	return true, nil
}

// bestTickets returns the node whose tickets begin last.
func bestTickets(nodes []string) (best string, base int32, found bool) {
	for _, node := range nodes {
		n, err := strconv.ParseInt(strings.TrimPrefix(node, ticketPrefix), 10, 32)
		if err == nil && (!found || int32(n)-base > 0) {
			best, base, found = node, int32(n), true
		}
	}
	return best, base, found
}

// draw draws n tickets. If an answer is lost it may draw twice as many. The entries of the first
// ones then stay behind, and are found as those of a dead consumer are.
func (c *consumer) draw(life context.Context, n int) error {
	answers, err := protocol.Do(life, c.session, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
		return protocol.Multi(conn, c.tickets.drawing(c, n)...)
	})
	if c.ticketsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range answers {
		c.tickets.drawn(a.Stat)
	}
	c.endTicketsIfUsedUp(n)
	return nil
}

func (t *tickets) drawing(c *consumer, n int) (ops []any) {
	for range n {
		ops = append(ops, &zk.SetDataRequest{Path: c.session.Path(t.node), Version: -1})
	}
	return ops
}

// draws returns the operations that draw the next tickets, in a transaction that takes so many
// entries, for as many requests as there are.
func (t *tickets) draws(c *consumer, taken, wanted int) []any {
	if t.node == "" {
		return nil
	}
	return t.drawing(c, min(wanted, mostTickets)-max(0, len(t.numbers)-taken))
}

// drawn notes a ticket, by the Stat of the node.
func (t *tickets) drawn(stat *zk.Stat) { t.numbers = append(t.numbers, t.base+stat.Version) }

// use notes that the entry with that number was taken.
func (t *tickets) use(number int32) {
	t.numbers = slices.DeleteFunc(t.numbers, func(n int32) bool { return n == number })
}

// behind reports whether an entry with that number should have been taken by another consumer.
func (t *tickets) behind(number int32) bool {
	return len(t.numbers) > 0 && number-slices.Min(t.numbers) < 0
}

// ticketsGone reports whether err means that the node is gone or forbidden. Tickets that were drawn
// before stay valid.
func (c *consumer) ticketsGone(err error) bool {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		c.forbid(err)
	case !errors.Is(err, zk.ErrNoNode):
		return false
	}
	c.crowd.tickets = slices.DeleteFunc(c.crowd.tickets, func(node string) bool { return c.records+"/"+node == c.tickets.node })
	c.tickets.node = ""
	return true
}

func (c *consumer) forbid(err error) {
	c.tickets.forbidden = true
	c.warn("draws no tickets: order is approximate, and requests are wasted", err)
}

// checkTickets ends the tickets if they are far ahead of what there is.
func (c *consumer) checkTickets() {
	t := &c.tickets
	if t.node == "" || len(t.numbers) == 0 {
		return
	}
	end, _ := c.window.index(slices.Min(t.numbers))
	behind := 0
	for _, e := range c.window.entries[c.window.first:end] {
		if c.window.open(e) {
			behind++
		}
	}
	if behind > farBehind*c.crowd.size*max(len(t.numbers), 1) {
		c.endTickets()
	}
}

// endTicketsIfUsedUp ends the tickets if the n that were just drawn are far before any entry that
// is open. So many others would have to be drawn before one is of use.
func (c *consumer) endTicketsIfUsedUp(n int) {
	numbers := c.tickets.numbers
	if len(numbers) == 0 {
		return
	}
	latest := numbers[len(numbers)-1]
	next, _ := c.window.index(latest)
	rest := c.window.entries[next:]
	i := slices.IndexFunc(rest, c.window.open)
	if i >= 0 && int(rest[i].sequence-latest) > farBehind*c.crowd.size*n {
		c.endTickets()
	}
}

func (c *consumer) endTicketsIfAlone() {
	if c.crowd.size <= 1 && c.tickets.node != "" {
		c.endTickets()
	}
}

// endTickets deletes the node, so that consumers begin again with the entries that are there.
func (c *consumer) endTickets() {
	node := c.tickets.node
	c.ticketsGone(zk.ErrNoNode)
	c.tickets.numbers = nil
	c.session.Go(func(life context.Context) { c.session.Delete(life, node, -1) })
}
