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

// Consumers of several sessions that race for the entries of a long queue take turns: each draws the number of the entry
// that is its next, from a node that they share and whose version counts. It does so in the transaction that removes the
// entry before. So they do not meet, and need not know of each other what they have taken; and as each has one number at
// a time, fewer entries are left before the one that it takes than there are consumers.
//
// A number that leads to no entry is exchanged for another one. An entry stays behind if the one whose turn it is is slow,
// dead or does not ask any more. So whoever draws a number first looks after the one twice as many numbers back as there
// are consumers, and takes what it finds.
//
// Numbers only say who should try. It is the transaction that removes an entry, so whatever becomes of the numbers, of
// the node or of those who draw, nothing but order can suffer.
type turns struct {
	node string // absolute; empty if we draw no numbers
	base int32  // the number that its version 0 stands for
	lag  int32  // how far back the entries are that we look after

	drawn  bool  // we have a number, and have not used it
	number int32 // the latest that we have drawn
	alone  int   // how many numbers we have drawn of which nobody else drew the one before
	lost   bool  // the node is gone: there may be another one
	barred bool  // others do not let us draw
}

const (
	forTurns = "turn-" // begins the name of the node, which says of which directory it is, the lag and the base

	aloneAfter = 32
	far        = 4 // times the lag: numbers that are farther off than that lead nowhere
)

func (t *turns) name(czxid int64) string {
	return fmt.Sprintf("%s%016x-%d-%d", forTurns, uint64(czxid), t.lag, t.base)
}

// parseTurns is the reverse of it, for the turns of one directory.
func parseTurns(name string, czxid int64) (t turns, ok bool) {
	var of uint64
	_, err := fmt.Sscanf(name, forTurns+"%016x-%d-%d", &of, &t.lag, &t.base)
	return t, err == nil && of == uint64(czxid) && t.lag > 0
}

// uses tells whether whoever takes that entry uses a number, and draws another one.
func (t *turns) uses(e *entry) bool { return t.node != "" && t.drawn && t.number == e.sequence }

// turn returns entries to be read, of which the first that is there is to be taken. It returns none if that is not a
// matter of turns.
func (c *consumer) turn(life context.Context, n int) ([]*entry, error) {
	t := &c.turns
	if n > 1 { // those have what is first
		t.drawn = false
	}
	if t.lost && !t.drawn {
		if err := c.makeWay(life); err != nil {
			return nil, err
		}
	}
	if over := t.node == "" && !t.drawn; c.head.partial && (over || time.Since(c.listed) >= c.recheck()) {
		if err := c.list(life); err != nil {
			return nil, err
		}
	}
	if n > 1 {
		return nil, nil
	}
	ours, err := c.ours(life)
	if ours == nil || err != nil {
		return nil, err
	}
	next := append(c.head.late(), ours)
	c.fetch(next)
	return next, nil
}

// ours returns the entry whose number we have, or nil if we do not take turns, or they lead nowhere any more.
func (c *consumer) ours(life context.Context) (*entry, error) {
	t := &c.turns
	for listed := false; t.drawn || t.node != ""; {
		if !t.drawn {
			if err := c.draw(life); err != nil {
				return nil, err
			}
			continue
		}
		i, found := c.head.at(t.number)
		if found && c.head.entries[i].left() {
			return c.head.entries[i], nil
		}
		if i == len(c.head.entries) && !listed {
			listed = true
			if err := c.list(life); err != nil {
				return nil, err
			}
			continue
		}
		t.drawn = false
		soon := func(e *entry) bool { return e.left() && e.sequence-t.number <= far*t.lag }
		if t.node != "" && !slices.ContainsFunc(c.head.entries[i:], soon) {
			c.endTurns()
		}
	}
	return nil, nil
}

// draw draws a number. Should it do so twice, because an answer was lost, then one leads to an entry that stays behind.
func (c *consumer) draw(life context.Context) error {
	node := c.turns.node
	stat, err := protocol.Do(life, c.session, func(conn *zk.Conn) (*zk.Stat, error) { return protocol.Set(conn, node, nil, -1) })
	if c.refused(err) {
		return nil
	}
	if err == nil {
		c.drew(stat)
	}
	return err
}

// refused tells whether err, of drawing a number, means that there are none to be had. Ours is still good.
func (c *consumer) refused(err error) bool {
	barred := errors.Is(err, zk.ErrNoAuth)
	if !barred && !errors.Is(err, zk.ErrNoNode) {
		return false
	}
	c.turns.node, c.turns.lost, c.turns.barred = "", true, barred
	return true
}

// drew notes a number that was drawn, and leaves what is behind it to others, but for one entry.
func (c *consumer) drew(stat *zk.Stat) {
	t := &c.turns
	number := t.base + stat.Version
	if t.alone++; number != t.number+1 {
		t.alone = 0
	}
	t.number, t.drawn = number, true
	i, found := c.head.at(number - t.lag)
	c.head.leaveTo(number - t.lag + 1)
	if found {
		e := c.head.entries[i]
		e.reading = nil // which may be old
		c.head.recall(e)
	}
	c.receipts.touch(t.node)
	if t.alone >= aloneAfter {
		c.endTurns()
	}
}

// leaveToOthers leaves what is far behind our number in a new listing to others, but for what they have left there.
func (c *consumer) leaveToOthers() {
	t := &c.turns
	if !t.drawn {
		return
	}
	end, _ := c.head.at(t.number - t.lag + 1) // there need not be one with just that number
	if behind := c.head.entries[:end]; len(behind) <= far*int(t.lag) {
		c.head.leaveTo(t.number - t.lag + 1)
		for _, e := range behind {
			c.head.recall(e)
		}
	} else {
		c.endTurns()
	}
}

// endTurns has nobody draw numbers any more, until somebody begins again.
func (c *consumer) endTurns() {
	node := c.turns.node
	c.turns.node = ""
	c.session.Go(func(life context.Context) { remove(life, c.session, node) })
}

const unordered = "does not take turns with other consumers: order is approximate, and requests are wasted"

// makeWay sees to it that we do not meet other consumers again: it begins to take turns with them, or if the queue is
// too short for that keeps us away from the entries that are theirs. If the consumers cannot be
// counted, or no node can be made to draw numbers from, that concerns order only and fails no call.
func (c *consumer) makeWay(life context.Context) error {
	c.turns.lost = false
	for range 3 { // somebody may end it, or begin at the same time
		names, err := c.count(life)
		if err != nil {
			c.warn(unordered, err)
			return nil
		}
		dir, czxid, consumers := c.session.Path(c.receipts.path)+"/", c.czxid, c.head.spread.consumers
		best := ""
		var joined turns
		for _, name := range names {
			t, ok := parseTurns(name, czxid)
			if ok && int(t.lag) >= consumers && (best == "" || t.base-joined.base > 0) {
				best, joined = name, t
			}
		}
		if best == "" {
			begun := turns{lag: int32(2 * consumers)} // or one who is about to take its entry would be thought slow
			enough := 2 * far * consumers
			waiting := c.head.pick(enough)
			if c.turns.barred || consumers < 2 || len(waiting) < enough {
				return nil
			}
			begun.base = waiting[0].sequence - 1
			if err := c.receipts.keep(life, begun.name(czxid)); err != nil {
				c.warn(unordered, err)
				return nil
			}
			continue
		}
		for _, name := range names {
			if name != best {
				c.session.Go(func(life context.Context) { remove(life, c.session, path.Join(dir, name)) })
			}
		}
		joined.node = dir + best
		c.turns, c.head.spread = joined, spread{}
		if err := c.draw(life); err != nil {
			return err
		}
		if c.turns.node != "" {
			return c.list(life)
		}
	}
	return nil
}

// count counts the consumers, and finds the names of the nodes that have numbers to draw.
func (c *consumer) count(life context.Context) (names []string, err error) {
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
	s := spread{consumers: 1}
	for _, name := range children {
		switch {
		case strings.HasPrefix(name, forTurns):
			names = append(names, name)
		case strings.HasPrefix(name, forRemovals) && !strings.HasPrefix(name, self):
			s.consumers++
			if name < self {
				s.rank++
			}
		}
	}
	c.head.spread = s
	return names, nil
}
