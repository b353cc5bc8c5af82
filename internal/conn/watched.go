package conn

import "github.com/go-zookeeper/zk"

// watching notes a watch that zk.Conn is about to note too. The connection calls it with the last
// byte of the answer.
func (c *Conn) watching(path string, kind watchKinds) {
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

// rewatch returns the packets that set all watches again. They have the Java client's xid, whose
// answers zk.Conn ignores. The caller holds mu.
func (c *Conn) rewatch() (packets [][]byte) {
	var lists [3][]string
	size := 0
	flush := func() {
		packets = append(packets, rewatchPacket(c.settled, lists))
		lists, size = [3][]string{}, 0
	}

	for path, kinds := range c.watched {
		for i := range lists {
			if kinds&(1<<i) == 0 {
				continue
			}
			// A path that is too long for any packet gets a packet of its own.
			if size > 0 && size+4+len(path) > rewatchSize {
				flush()
			}
			lists[i] = append(lists[i], path)
			size += 4 + len(path)
		}
	}

	if size > 0 {
		flush()
	}

	return packets
}
