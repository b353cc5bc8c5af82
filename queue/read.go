package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const (
	aheadEntries = 32      // are read ahead, at most
	aheadBytes   = 1 << 20 // of data are read ahead, by the size of the last entry

	parallelMost = 128 // entries are read at the same time

	listAgainAfter = 100 * time.Millisecond // of a queue with priorities
	takeBytes      = 8 << 20                // of data are read for one transaction, more or less
)

// A reading is what an entry was when it was read.
type reading struct {
	done chan struct{}
	data []byte   // valid once done is closed
	stat *zk.Stat // likewise
	err  error    // likewise

	review int // the last one before the reading
}

// next returns up to n available entries with their data. It returns none only if there were none
// at some moment since the call began, or if none is needed at once: there are watches then.
func (c *consumer) next(life context.Context, n int, atOnce bool) ([]*entry, error) {
	looks := []func(context.Context) error{c.reviewIfChanged, c.list, c.lookCloser}
	if !atOnce {
		looks = looks[:2]
	}
	for i, look := range looks {
		if err := look(life); err != nil {
			return nil, err
		}
		for width := n; ; width = min(2*width, parallelMost+n) { // as many in a row may be reserved
			chosen, known, err := c.choose(life, width)
			if err != nil {
				return nil, err
			}
			if len(chosen) == 0 || i == 0 && known < n {
				break // and look again
			}
			available, err := c.awaitData(chosen)
			if err != nil || len(available) > 0 {
				return available[:min(n, len(available))], err
			}
		}
	}
	return nil, nil
}

// choose returns up to n entries to be read, of which the available ones are to be taken. It also
// returns how many may be available at the least.
func (c *consumer) choose(life context.Context, n int) (chosen []*entry, known int, err error) {
	chosen, err = c.byTicket(life, n)
	if err != nil || len(chosen) > 0 {
		return chosen, n, err
	}

	// Without tickets, consumers that race begin at different entries.
	ahead := c.window.pick(n + max(c.crowd.rank*n, c.readAhead()))
	if c.crowd.size > 1 {
		if c.window.stale {
			return ahead, 0, nil
		}
		first := c.beginAt(ahead, n)
		return ahead[first:min(first+n, len(ahead))], len(ahead), nil
	}
	chosen = ahead[:min(n, len(ahead))]
	if c.priorities && c.window.outdated && time.Since(c.window.listed) >= listAgainAfter {
		return chosen, 0, nil
	}
	c.readSome(chosen, ahead)
	return chosen, len(ahead), nil
}

// beginAt returns where this consumer begins among the entries ahead. That is at its rank, and
// further behind after another consumer was faster, so that a slow one with many requests does not
// lose the first entry again and again. It is not behind an entry that was passed over for long, as
// the consumer for it asks no more.
func (c *consumer) beginAt(ahead []*entry, n int) int {
	first := c.crowd.rank * n % max(1, len(ahead)-n+1)
	if c.window.beaten {
		first = max(first, (c.crowd.rank+1)*len(ahead)/(c.crowd.size+1))
	}
	for i, e := range ahead[:first] {
		if e.passed.IsZero() {
			e.passed = time.Now()
		}
		if time.Since(e.passed) >= c.session.Timeout()/3 {
			return i
		}
	}
	return first
}

// list lists the queue.
func (c *consumer) list(life context.Context) error {
	children, _, err := c.session.Children(life, c.path)
	if errors.Is(err, zk.ErrNoNode) {
		return errNoReceipt // which was below it
	} else if err != nil {
		return err
	}
	c.window.replace(c.names(children), c.tickets.behind)
	c.checkTickets()
	return nil
}

// lookCloser lists the queue as it is now, by the leader's word, and makes entries available that
// were released since they were found reserved.
func (c *consumer) lookCloser(life context.Context) error {
	if err := c.session.Sync(life, c.path); err != nil {
		return err
	}
	if err := c.review(life); err != nil {
		return err
	}
	return c.list(life)
}

// readSome begins to read the entries that are next, and those ahead if it is time. Many are read
// at a time, as servers are slow at reads and writes that alternate.
func (c *consumer) readSome(next, ahead []*entry) {
	c.read(next[:min(c.parallelReads(), len(next))])
	if len(ahead) > 0 && ahead[len(ahead)/2].reading == nil {
		c.read(ahead[:min(c.parallelReads(), len(ahead))])
	}
}

// readAhead is how many entries are read before a caller asks for them.
func (c *consumer) readAhead() int {
	if c.crowd.size > 1 {
		return 0 // they would be gone by then
	}
	return min(aheadEntries, aheadBytes/(c.window.size+1))
}

// parallelReads is how many entries are read at the same time, by the size of the last one.
func (c *consumer) parallelReads() int { return min(parallelMost, takeBytes/(c.window.size+1)+1) }

// read begins to read the entries that were not read yet.
func (c *consumer) read(entries []*entry) {
	for _, e := range entries {
		if e.reading != nil {
			continue
		}

		r := &reading{done: make(chan struct{}), review: c.window.reviews}
		e.reading = r
		started := c.session.Go(func(life context.Context) {
			defer close(r.done)
			r.data, r.stat, r.err = c.session.Get(life, c.path+"/"+e.node)
		})
		if !started {
			r.err = protocol.ErrClosed
			close(r.done)
		}
	}
}

// awaitData waits until entries were read, and returns those that are available. It reads no more
// once it has takeBytes of data.
func (c *consumer) awaitData(entries []*entry) (available []*entry, err error) {
	for i, bytes := 0, 0; i < len(entries) && bytes < takeBytes; i++ {
		c.read(entries[i:min(i+c.parallelReads(), len(entries))])
		e := entries[i]
		<-e.done

		switch {
		case errors.Is(e.err, zk.ErrNoNode):
			c.isGone(e)
		case errors.Is(e.err, zk.ErrNoAuth):
			c.refuse(e, e.err)
		case e.err != nil:
			err := e.err
			for _, e := range entries {
				e.reading = nil
			}
			return nil, err
		case e.stat.NumChildren > 0 && e.review != c.window.reviews: // it may have been released since
			e.reading = nil
			i--
		case e.stat.NumChildren > 0:
			c.window.hold(e, time.Time{}, nil)
		default:
			if e.held {
				c.window.unhold(e)
			}
			if !e.suits(c.window.claims) {
				c.leaveToOthers(e)
				continue
			}
			c.window.size = len(e.data)
			bytes += len(e.data)
			available = append(available, e)
		}
	}
	return available, nil
}

// isGone notes that an entry has gone which this consumer was about to take.
func (c *consumer) isGone(e *entry) {
	e.gone = true
	if c.crowd.size <= 1 || slices.Contains(c.tickets.numbers, e.sequence) {
		c.foreign.sign = time.Now() // it was no consumer of ours
	}
}

// Foreign is what a consumer knows of those of other libraries. Each lists, reads and deletes, and
// all its entries would be gone by then. So a consumer of ours pauses now and then, and often while
// there is a sign of a foreign one.
type foreign struct {
	sign   time.Time // when an entry was last gone that no consumer of ours should have taken
	rounds int
}

const (
	pauseEach  = 256 // transactions
	pauseFirst = 32
	pauseOften = 4
	pauseFor   = 6                     // times a transaction's time: enough for a foreign consumer to catch up
	pauseMost  = 50 * time.Millisecond // at a time
	signLasts  = 5 * time.Second
)

// makeWay pauses if it is time to, given what the last transaction has taken.
func (f *foreign) makeWay(life context.Context, took time.Duration) {
	f.rounds++
	often := time.Since(f.sign) < signLasts && f.rounds%pauseOften == 0
	if !often && f.rounds%pauseEach != pauseFirst {
		return
	}
	// A nanosecond at least: see Virtual time in package recipestest.
	pause := time.NewTimer(max(min(pauseFor*took, pauseMost), 1))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-life.Done():
	}
}
