package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Consumers of several sessions that race for the entries of a long queue draw tickets. A ticket is
// the number of the entry that a consumer takes next. Tickets come from a node that the consumers
// share: each write raises its version, and the version stands for a number. A consumer writes in
// the transaction that removes the entry of its last ticket. So consumers do not collide, and need
// not know what the others have taken. As each holds one ticket at a time, fewer entries are left
// before the one that it takes than there are consumers.
//
// A ticket whose entry is gone is exchanged for another one. An entry stays behind if the consumer
// with its ticket is slow, dead or does not ask any more. So a consumer that draws a ticket first
// looks at the entry lag numbers back, and takes that if it is still there. The lag is twice the
// number of consumers.
//
// Tickets only say which consumer should try which entry. The transaction is what removes it. So a
// wrong ticket can cost order or a round trip, and never an entry.
type tickets struct {
	node string // absolute; empty if this consumer draws no tickets
	base int32  // the number that version 0 of the node stands for
	lag  int32  // how far back the entries are that this consumer looks after

	held      bool  // a ticket was drawn, and not used
	number    int32 // of the latest ticket
	unopposed int   // how many tickets this consumer has drawn without another one in between
	gone      bool  // the node is, and there may be another one
	forbidden bool  // the ACL does not let this consumer draw
}

const (
	ticketPrefix = "turn-" // of the node's name, which continues with directory, lag and base

	unopposedMost = 32 // after so many tickets this consumer seems to be the only one
	farLags       = 4  // entries more than so many lags behind a ticket's number are of no use to it
)

// name returns the name of the node for the directory that was created by the transaction czxid.
func (t *tickets) name(czxid int64) string {
	return fmt.Sprintf("%s%016x-%d-%d", ticketPrefix, uint64(czxid), t.lag, t.base)
}

// parseTickets is the reverse of name. It reports whether the node belongs to that directory.
func parseTickets(name string, czxid int64) (t tickets, ok bool) {
	var of uint64
	_, err := fmt.Sscanf(name, ticketPrefix+"%016x-%d-%d", &of, &t.lag, &t.base)
	return t, err == nil && of == uint64(czxid) && t.lag > 0
}

// uses reports whether taking e uses up a ticket, so that another one is to be drawn.
func (t *tickets) uses(e *entry) bool { return t.node != "" && t.held && t.number == e.sequence }

// byTicket returns entries to be read, of which the first that is available is to be taken. It
// returns none if tickets do not say which one is next.
func (c *consumer) byTicket(life context.Context, n int) ([]*entry, error) {
	t := &c.tickets
	if n > 1 { // several are always taken from the front
		t.held = false
	}

	// Without the node, or if it is time, look what there is.
	if t.gone && !t.held {
		if err := c.avoidOthers(life); err != nil {
			return nil, err
		}
	}
	ended := t.node == "" && !t.held
	if c.window.partial && (ended || time.Since(c.listed) >= c.recheckAfter()) {
		if err := c.list(life); err != nil {
			return nil, err
		}
	}
	if n > 1 {
		return nil, nil
	}

	e, err := c.ticketEntry(life)
	if e == nil || err != nil {
		return nil, err
	}

	next := append(c.window.availableSkipped(), e)
	c.read(next)
	return next, nil
}

// ticketEntry returns the entry whose ticket this consumer holds, and draws tickets until there is
// one. It returns nil if there are no tickets, or they lead to no entries any more.
func (c *consumer) ticketEntry(life context.Context) (*entry, error) {
	t := &c.tickets
	for listed := false; t.held || t.node != ""; {
		if !t.held {
			if err := c.drawTicket(life); err != nil {
				return nil, err
			}
			continue
		}

		i, found := c.window.index(t.number)
		if found && c.window.entries[i].available() {
			return c.window.entries[i], nil
		}
		if i == len(c.window.entries) && !listed {
			listed = true
			if err := c.list(life); err != nil {
				return nil, err
			}
			continue
		}

		// The entry is gone. If none is near, others will not find any either.
		t.held = false
		near := func(e *entry) bool { return e.available() && e.sequence-t.number <= farLags*t.lag }
		if t.node != "" && !slices.ContainsFunc(c.window.entries[i:], near) {
			c.endTickets()
		}
	}
	return nil, nil
}

// drawTicket draws a ticket. If an answer is lost it may draw two. The entry of the first one then
// stays behind, and is found as that of a dead consumer is.
func (c *consumer) drawTicket(life context.Context) error {
	node := c.tickets.node
	stat, err := protocol.Do(life, c.session, func(conn *zk.Conn) (*zk.Stat, error) {
		return protocol.Set(conn, node, nil, -1)
	})
	if c.ticketsGone(err) {
		return nil
	}
	if err == nil {
		c.gotTicket(stat)
	}
	return err
}

// ticketsGone reports whether err means that the ticket node is gone or forbidden. A ticket that
// was drawn before stays valid.
func (c *consumer) ticketsGone(err error) bool {
	forbidden := errors.Is(err, zk.ErrNoAuth)
	if !forbidden && !errors.Is(err, zk.ErrNoNode) {
		return false
	}
	c.tickets.node, c.tickets.gone, c.tickets.forbidden = "", true, forbidden
	return true
}

// gotTicket notes a ticket that was drawn, by the Stat of the node. It leaves the entries behind it
// to others, but for the one that this consumer looks after.
func (c *consumer) gotTicket(stat *zk.Stat) {
	t := &c.tickets
	number := t.base + stat.Version
	if t.unopposed++; number != t.number+1 {
		t.unopposed = 0
	}
	t.number, t.held = number, true

	i, found := c.window.index(number - t.lag)
	c.window.skipTo(number - t.lag + 1)
	if found {
		e := c.window.entries[i]
		e.reading = nil // which may be old
		c.window.addSkipped(e)
	}

	c.receipts.touch(t.node)
	if t.unopposed >= unopposedMost {
		c.endTickets()
	}
}

// skipBehindTicket leaves what is far behind the ticket in a new listing to others. What they have
// left there is added to the skipped entries.
func (c *consumer) skipBehindTicket() {
	t := &c.tickets
	if !t.held {
		return
	}

	end, _ := c.window.index(t.number - t.lag + 1) // there need not be one with just that number
	behind := c.window.entries[:end]
	if len(behind) > farLags*int(t.lag) {
		c.endTickets()
		return
	}

	c.window.skipTo(t.number - t.lag + 1)
	for _, e := range behind {
		c.window.addSkipped(e)
	}
}

// endTickets deletes the node, so that no consumer draws tickets until one creates another node.
func (c *consumer) endTickets() {
	node := c.tickets.node
	c.tickets.node = ""
	c.session.Go(func(life context.Context) { remove(life, c.session, node) })
}

const unordered = "draws no tickets: order is approximate, and requests are wasted"

// avoidOthers keeps this consumer from colliding with others again. It draws a ticket, from a node
// that it creates if there is none. If the queue is too short for tickets, it keeps to the entry of
// its rank. If the consumers cannot be counted, or the node cannot be created, that concerns order
// only: it is logged, and fails no call.
func (c *consumer) avoidOthers(life context.Context) error {
	c.tickets.gone = false
	for range 3 { // another consumer may end the tickets, or begin at the same time
		names, err := c.countConsumers(life)
		if err != nil {
			c.warn(unordered, err)
			return nil
		}

		best, joined := c.bestTickets(names)
		if best == "" {
			if created, err := c.createTickets(life); err != nil {
				c.warn(unordered, err)
				return nil
			} else if !created {
				return nil
			}
			continue // all consumers join the best one of those that were created at the same time
		}

		dir := c.session.Path(c.receipts.path) + "/"
		for _, name := range names {
			if name != best {
				c.session.Go(func(life context.Context) { remove(life, c.session, path.Join(dir, name)) })
			}
		}
		joined.node = dir + best
		c.tickets, c.window.ranking = joined, ranking{}
		if err := c.drawTicket(life); err != nil {
			return err
		}
		if c.tickets.node != "" {
			return c.list(life)
		}
	}
	return nil
}

// bestTickets returns the node, among those with these names, whose tickets begin last, and that
// has a lag for as many consumers as there are. It returns no name if there is none.
func (c *consumer) bestTickets(names []string) (best string, t tickets) {
	for _, name := range names {
		candidate, ok := parseTickets(name, c.czxid)
		if !ok || int(candidate.lag) < c.window.ranking.consumers {
			continue
		}

		if best == "" || candidate.base-t.base > 0 {
			best, t = name, candidate
		}
	}
	return best, t
}

// createTickets creates a ticket node, if there are several consumers and the queue is long enough
// for them. It reports whether it did.
func (c *consumer) createTickets(life context.Context) (created bool, err error) {
	consumers := c.window.ranking.consumers
	enough := 2 * farLags * consumers
	waiting := c.window.pick(enough)
	if c.tickets.forbidden || consumers < 2 || len(waiting) < enough {
		return false, nil
	}

	// With a smaller lag a consumer that is about to take its entry would be thought slow.
	t := tickets{lag: int32(2 * consumers), base: waiting[0].sequence - 1}
	return true, c.receipts.keep(life, t.name(c.czxid))
}

// countConsumers counts the consumers and ranks this one. It returns the names of the ticket nodes.
func (c *consumer) countConsumers(life context.Context) (names []string, err error) {
	children, err := protocol.Do(life, c.session, func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(c.session.Path(c.receipts.path))
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return children, err
	})
	if err != nil {
		return nil, err
	}

	self := fmt.Sprintf("%s%016x", forRemovals, uint64(c.session.ID()))
	r := ranking{consumers: 1}
	for _, name := range children {
		switch {
		case strings.HasPrefix(name, ticketPrefix):
			names = append(names, name)
		case strings.HasPrefix(name, forRemovals) && !strings.HasPrefix(name, self):
			r.consumers++
			if name < self {
				r.rank++
			}
		}
	}
	c.window.ranking = r
	return names, nil
}
