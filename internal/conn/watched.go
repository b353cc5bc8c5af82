package conn

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// watching notes a watch that zk.Conn is about to note too. The connection calls it with the last
// byte of the answer.
func (c *Conn) watching(path string, kind watchKinds) {
	// Both tables share one string, because a session can watch 100,000 paths.
	path = c.Watches.sole(path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched == nil {
		c.watched = make(map[string]watchKinds)
	}
	c.watched[path] |= kind
}

// event is zk.Conn's event callback. It must not block. After it, zk.Conn forgets the watches that
// fired.
func (c *Conn) event(e zk.Event) {
	if ended := firedBy(e.Type); ended != 0 {
		c.mu.Lock()
		if left := c.watched[e.Path] &^ ended; left != 0 {
			c.watched[e.Path] = left
		} else {
			delete(c.watched, e.Path)
		}
		c.mu.Unlock()
	}
	c.Watches.notify(e)
}

// rewatch returns the packets that set all watches again, so that the server reports changes after
// the transaction since. They have the Java client's xid, whose answers zk.Conn ignores. The caller
// holds mu.
func (c *Conn) rewatch(since int64) [][]byte {
	var packets [][]byte
	var lists [3][]byte // of paths, by kind
	var counts [3]int32
	size := 0
	flush := func() {
		p := appendRewatch(make([]byte, 0, 64+size), since)
		for i, list := range lists {
			p = append(zkwire.AppendInt32(p, counts[i]), list...)
			lists[i], counts[i] = list[:0], 0
		}
		packets, size = append(packets, zkwire.SetLength(p)), 0
	}

	for path, kinds := range c.watched {
		for i := range lists {
			if kinds&(1<<i) == 0 {
				continue
			}
			if size > 0 && size+4+len(path) > rewatchSize {
				flush()
			}
			lists[i] = zkwire.AppendString(lists[i], path)
			counts[i]++
			size += 4 + len(path)
		}
	}

	if size > 0 {
		flush()
	}
	return packets
}
