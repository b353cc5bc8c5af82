package queue

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A crowd is what a consumer knows of the queue's other consumers. Each has a receipt below the
// register, for as long as it has requests or holds items.
type crowd struct {
	watch *protocol.Watch // of the register's children
	stat  zk.Stat         // of the register, when they were read

	size, rank int      // of the consumers, and this one's place among them
	tickets    []string // the nodes

	left     bool            // a holder has left since the last review, and its claims with it
	register *protocol.Watch // of its data, at the last review
	version  int32           // of the data
}

// count brings the crowd up to date, which costs a request after it has changed, and none
// otherwise.
func (c *consumer) count(life context.Context) error {
	before, w := c.crowd, c.crowd.watch
	changed, err := changedSince(life, w)
	if err != nil || !changed && before.size > 0 {
		return err
	}
	if changed {
		w = c.session.WatchChildren(c.records)
	}
	stat, err := w.Ready(life)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		c.warn("cannot count its consumers: they get in each other's way", err)
		c.crowd.size, c.crowd.left = 1, true
		return nil
	case err != nil:
		return err
	case stat == nil || !slices.Contains(w.Children(), path.Base(c.receipt.node)):
		return errNoReceipt
	}

	now := crowd{watch: w, stat: *stat, left: before.left, register: before.register, version: before.version}
	for _, node := range w.Children() {
		switch {
		case strings.HasPrefix(node, ticketPrefix):
			now.tickets = append(now.tickets, node)
		case isConsumer(node):
			now.size++
			if node < path.Base(c.receipt.node) {
				now.rank++
			}
		}
	}
	now.left = now.left || before.size > 0 && holderLeft(&before, &now)
	c.crowd = now
	if !slices.Contains(now.tickets, path.Base(c.tickets.node)) {
		c.tickets.node = ""
	}
	c.endTicketsIfAlone()
	return nil
}

func isConsumer(node string) bool { return strings.HasPrefix(node, takerPrefix) || isHolder(node) }

func isHolder(node string) bool { return strings.HasPrefix(node, holderPrefix) }

// holderLeft reports whether a consumer that reserves may have left in between, also one that had
// not been there before. If all changes were arrivals, and departures of other nodes, there is one
// for each.
func holderLeft(before, now *crowd) bool {
	changes := int(now.stat.Cversion - before.stat.Cversion)
	for _, node := range now.watch.Children() {
		if !slices.Contains(before.watch.Children(), node) {
			changes--
		}
	}
	for _, node := range before.watch.Children() {
		if !slices.Contains(now.watch.Children(), node) {
			changes--
			if isHolder(node) {
				return true
			}
		}
	}
	return changes != 0
}

// changedSince reports whether what w has read is not so any more. It asks the server only after a
// reconnect.
func changedSince(life context.Context, w *protocol.Watch) (bool, error) {
	select {
	case <-w.Changed():
		return true, nil
	default:
	}
	same, err := w.Current(life)
	if errors.Is(err, zk.ErrNoAuth) { // and so it is not known
		err = nil
	}
	return !same, err
}

// reviewIfChanged counts the consumers and reviews what was found reserved, if there is a sign that
// something was released. Otherwise it costs no request.
func (c *consumer) reviewIfChanged(life context.Context) error {
	if err := c.count(life); err != nil {
		return err
	}
	changed, err := changedSince(life, c.crowd.register)
	switch {
	case err != nil:
		return err
	case changed || c.crowd.left:
		return c.review(life)
	}
	stat, err := c.crowd.register.Ready(life)
	if err == nil {
		c.crowd.version = stat.Version
	}
	return err
}

// review makes entries available again that were released since they were found reserved. The
// register says which, or that some were.
func (c *consumer) review(life context.Context) error {
	if err := c.count(life); err != nil {
		return err
	}
	c.window.reviews++
	w := c.session.Watch(c.records)
	stat, err := w.Ready(life)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return errNoReceipt // which was below it
	case errors.Is(err, zk.ErrNoAuth):
		return c.recheck(life)
	case err != nil:
		return err
	}
	if same, err := w.Current(life); err != nil {
		return err
	} else if !same {
		return c.review(life) // with another watch
	}

	switch released := string(w.Data()); {
	case c.crowd.left || stat.Version-c.crowd.version > 1:
		if err := c.recheck(life); err != nil {
			return err
		}
	case stat.Version != c.crowd.version:
		n, _ := c.queue.parse(released)
		if e := c.window.find(n); e != nil && e.until.IsZero() {
			c.makeAvailable(e)
		}
	}
	c.window.outdated = c.window.outdated || stat.Version != c.crowd.version
	c.crowd.register, c.crowd.version, c.crowd.left = w, stat.Version, false
	return nil
}

// recheck asks for each entry that was found reserved whether it still is.
func (c *consumer) recheck(life context.Context) error {
	c.window.dropGone()
	for held := range slices.Chunk(slices.Clone(c.window.held), parallelMost) {
		stats := make([]*zk.Stat, len(held))
		errs := make([]error, len(held))
		var asked sync.WaitGroup
		for i, e := range held {
			if e.until.IsZero() {
				asked.Go(func() { stats[i], errs[i] = c.session.Exists(life, c.path+"/"+e.node) })
			}
		}
		asked.Wait()

		for i, e := range held {
			switch {
			case errs[i] != nil:
				return errs[i]
			case !e.until.IsZero():
			case stats[i] == nil:
				e.gone = true
			case stats[i].NumChildren == 0:
				c.makeAvailable(e)
			}
		}
	}
	return nil
}

// makeAvailable notes that an entry is reserved no more. Where consumers draw tickets, each takes
// its share of those at once.
func (c *consumer) makeAvailable(e *entry) {
	c.window.unhold(e)
	e.reading = nil
	e.left = int(e.sequence)%max(1, c.crowd.size) == c.crowd.rank
}
