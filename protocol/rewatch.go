package protocol

import (
	"encoding/binary"

	"github.com/go-zookeeper/zk"
)

// watchKinds are the lists of a setWatches request in which a path stands, as bits.
type watchKinds uint8

const (
	dataWatch watchKinds = 1 << iota
	existWatch
	childWatch
)

// setBy returns the kind of watch that zk.Conn has set with a request, given the answer's code.
func setBy(op, code int32) watchKinds {
	switch {
	case code == 0 && (op == opGetData || op == opExists):
		return dataWatch
	case code == codeNoNode && op == opExists:
		return existWatch
	case code == 0 && (op == opGetChildren || op == opGetChildren2):
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

// watching notes a watch that zk.Conn is about to note, too. The wire calls it with the last byte of the answer.
func (s *session) watching(path string, kind watchKinds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		s.watched = make(map[string]watchKinds)
	}
	s.watched[path] |= kind
}

// event is zk.Conn's callback, which runs before zk.Conn forgets the watches that have fired. It must not block.
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

// rewatchSize bounds the packets that set watches again. zk.Conn's own are 128 KiB long, which a server with a
// small jute.maxbuffer refuses by cutting the connection. One path may be longer than that.
const rewatchSize = 32 << 10

// rewatch returns the packets that set all watches again, for the server to report what has happened since a
// transaction. Their xid is the one that the Java client uses, whose answers zk.Conn ignores. The caller holds mu.
func (s *session) rewatch(since int64) [][]byte {
	var packets [][]byte
	var lists [3][]byte
	var counts [3]uint32
	size := 0
	flush := func() {
		xid, op := int32(xidRewatch), uint32(opSetWatches)
		p := binary.BigEndian.AppendUint32(make([]byte, 4, 32+size), uint32(xid))
		p = binary.BigEndian.AppendUint32(p, op)
		p = binary.BigEndian.AppendUint64(p, uint64(since))
		for i, list := range lists {
			p = binary.BigEndian.AppendUint32(p, counts[i])
			p = append(p, list...)
			lists[i], counts[i] = list[:0], 0
		}
		binary.BigEndian.PutUint32(p, uint32(len(p)-4))
		packets, size = append(packets, p), 0
	}
	for path, kinds := range s.watched {
		for i := range lists {
			if kinds&(1<<i) == 0 {
				continue
			}
			if size > 0 && size+4+len(path) > rewatchSize {
				flush()
			}
			lists[i] = binary.BigEndian.AppendUint32(lists[i], uint32(len(path)))
			lists[i] = append(lists[i], path...)
			counts[i]++
			size += 4 + len(path)
		}
	}
	if size > 0 {
		flush()
	}
	return packets
}

// emptyRewatch returns a packet that sets no watches.
func emptyRewatch() []byte {
	p := make([]byte, 4+4+4+8+3*4)
	binary.BigEndian.PutUint32(p, uint32(len(p)-4))
	binary.BigEndian.PutUint32(p[8:], opSetWatches)
	return p
}
