package queue

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const (
	aheadEntries = 32      // are read ahead, at most
	aheadBytes   = 1 << 20 // of data are read ahead, by the size of the last entry

	parallelMost = 128     // entries are read at the same time
	takeBytes    = 8 << 20 // of data are read for one transaction, more or less
)

// A reading is what an entry was when it was read.
type reading struct {
	done chan struct{}
	data []byte   // valid once done is closed
	stat *zk.Stat // likewise
	err  error    // likewise
}

// ready returns up to n available entries with their data. It returns none only if there were none
// at some moment since the call began.
func (c *consumer) ready(life context.Context, n int) ([]*entry, error) {
	listed, synced := false, false
	for {
		if err := c.recheck(life); err != nil {
			return nil, err
		}

		// Which entries are next, by ticket or else by the window?
		next, err := c.byTicket(life, n)
		if err != nil {
			return nil, err
		}
		if next == nil {
			ahead := c.window.pick(n + max(c.window.ranking.rank, c.readAhead()))
			if len(ahead) < n && !listed {
				listed = true
				if err := c.list(life); err != nil {
					return nil, err
				}
				continue
			}
			next = ahead[:min(n+c.window.ranking.rank, len(ahead))]
			c.readSome(next, ahead)
		}

		// There are some. Are they still there, in the same directory?
		if len(next) > 0 {
			available, err := c.awaitData(next)
			if err != nil {
				return nil, err
			}
			if same, err := c.directory.Same(life); err != nil {
				return nil, err
			} else if !same {
				c.reset()
				listed = false
				continue
			}
			if available = c.window.choose(available, n); len(available) > 0 {
				return available, nil
			}
			listed = false
			continue
		}

		// There are none, if the server that says so does not lag behind.
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
	if c.window.ranking.consumers > 1 {
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

		r := &reading{done: make(chan struct{})}
		e.reading = r
		node := c.dir + "/" + e.name
		started := c.session.Go(func(life context.Context) {
			defer close(r.done)
			_, r.err = protocol.Do(life, c.session, func(conn *zk.Conn) (_ struct{}, err error) {
				r.data, r.stat, err = conn.Get(node)
				return struct{}{}, err
			})
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
			e.gone = true
		case e.err != nil:
			err := e.err
			forgetData(entries)
			return nil, err
		case e.stat.NumChildren > 0:
			c.foundReserved(e)
		default:
			c.window.size = len(e.data)
			bytes += len(e.data)
			available = append(available, e)
		}
	}
	return available, nil
}
