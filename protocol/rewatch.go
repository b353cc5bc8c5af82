package protocol

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// watchKinds says in which lists of a setWatches request a path stands, as bits.
type watchKinds uint8

const (
	dataWatch watchKinds = 1 << iota
	existWatch
	childWatch
)

// setBy returns the kind of watch that zk.Conn sets on an answer with this code to a request that
// asked for a watch.
func setBy(op zkwire.Op, code zkwire.Code) watchKinds {
	switch {
	case code == zkwire.CodeOK && (op == zkwire.OpGetData || op == zkwire.OpExists):
		return dataWatch
	case code == zkwire.CodeNoNode && op == zkwire.OpExists:
		return existWatch
	case code == zkwire.CodeOK && (op == zkwire.OpGetChildren || op == zkwire.OpGetChildren2):
		return childWatch
	}
	return 0
}

// firedBy returns the kinds of watches that an event ends in zk.Conn.
func firedBy(e zk.EventType) watchKinds {
	switch e {
	case zk.EventNodeCreated:
		return existWatch
	case zk.EventNodeDataChanged:
		return existWatch | dataWatch
	case zk.EventNodeChildrenChanged:
		return childWatch
	case zk.EventNodeDeleted:
		return existWatch | dataWatch | childWatch
	}
	return 0
}

// watching notes a watch that zk.Conn is about to note, too. The connection calls it with the last
// byte of the answer.
func (s *session) watching(path string, kind watchKinds) {
	path = s.watches.sole(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		s.watched = make(map[string]watchKinds)
	}
	s.watched[path] |= kind
}

// event is zk.Conn's callback for events. It must not block. zk.Conn forgets the watches that have
// fired after it.
func (s *session) event(e zk.Event) {
	if ended := firedBy(e.Type); ended != 0 {
		s.mu.Lock()
		if left := s.watched[e.Path] &^ ended; left != 0 {
			s.watched[e.Path] = left
		} else {
			delete(s.watched, e.Path)
		}
		s.mu.Unlock()
	}
	s.watches.notify(e)
}

// rewatchSize bounds the packets that set watches again. Those of zk.Conn have 128 KiB. A server
// with a small jute.maxbuffer refuses them by ending the connection. A packet with one long path
// may be larger.
const rewatchSize = 32 << 10

// rewatch returns the packets that set all watches again, for the server to report what has
// happened since a transaction. Their xid is that of the Java client, whose answers zk.Conn
// ignores. The caller holds mu.
func (s *session) rewatch(since int64) [][]byte {
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

	for path, kinds := range s.watched {
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

// rewatchWindow is how many packets that set watches again may be unanswered. The requests that
// renew trust wait for those only, and not for the watches of 100,000 leases on a slow network.
const rewatchWindow = 4

// sendRewatch sends the next packet that sets watches again, for one that was answered.
func (w *connection) sendRewatch() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	next := w.takeRewatch(1)
	w.mu.Unlock()
	w.sendAll(next)
}

// takeRewatch returns the next packets that set watches again, n at most, and notes them as sent.
// The caller holds mu and writing.
func (w *connection) takeRewatch(n int) (next [][]byte) {
	if w.closed {
		return nil
	}
	n = min(n, len(w.rewatch))
	next, w.rewatch = w.rewatch[:n], w.rewatch[n:]
	for _, p := range next {
		head, _ := zkwire.ParseRequestHeader(p)
		w.sent = append(w.sent, sentRequest{xid: head.Xid, op: head.Op, at: time.Now(), size: len(p) - 4})
	}
	return next
}

// ownRewatch reports whether zk.Conn knows nothing of a packet that sets watches.
func ownRewatch(p []byte) bool {
	head, _ := zkwire.ParseRequestHeader(p)
	return head.Xid == zkwire.XidWatches
}

// appendRewatch appends the beginning of a packet that sets watches. Three lists of paths follow.
func appendRewatch(b []byte, since int64) []byte {
	b = zkwire.AppendRequest(b, zkwire.RequestHeader{Xid: zkwire.XidWatches, Op: zkwire.OpSetWatches})
	return zkwire.AppendInt64(b, since)
}

// emptyRewatch returns a packet that sets no watches.
func emptyRewatch() []byte {
	p := appendRewatch(nil, 0)
	for range 3 {
		p = zkwire.AppendInt32(p, 0)
	}
	return zkwire.SetLength(p)
}
