package recipestest

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// maxPacket is far more than any server or client accepts. A longer packet isn't ZooKeeper's
// protocol.
const maxPacket = 64 << 20

// pong is a server's answer to a ping.
var pong = func() []byte {
	frame := make([]byte, zkwire.ReplyBody)
	zkwire.PutReplyHeader(frame, zkwire.ReplyHeader{Xid: zkwire.XidPing})
	return frame
}()

type direction int

const (
	request direction = iota // to the server
	reply                    // to the client (watch events too)
)

// A packet is one frame on its way through a link, or the end of all frames in its direction.
type packet struct {
	direction direction
	op        Op // opUnknown in most replies until they are matched by xid
	xid       int32
	data      []byte // the frame with its length prefix
	end       error  // set instead of data if the sender has hung up
	due       time.Time
}

// A fifo is a queue of packets.
type fifo struct {
	change  *sync.Cond // signals that there is a packet, or that no more packets will come
	packets []packet
	head    int // the index of the first packet that wasn't taken
}

func (q *fifo) empty() bool { return q.head == len(q.packets) }

func (q *fifo) push(p packet) {
	if q.head > len(q.packets)/2 { // otherwise packets that were taken would pile up
		q.packets = slices.Delete(q.packets, 0, q.head)
		q.head = 0
	}
	q.packets = append(q.packets, p)
}

func (q *fifo) pop() packet {
	p := q.packets[q.head]
	q.packets[q.head] = packet{}
	if q.head++; q.empty() {
		q.packets, q.head = q.packets[:0], 0
	}
	return p
}

// drop empties the queue, and wakes the goroutine that waits for a packet.
func (q *fifo) drop() {
	q.packets, q.head = nil, 0
	q.change.Broadcast()
}

// step reports whether [Link.At] counts p.
func (p *packet) step() bool { return p.end == nil && p.op != OpPing }

// path returns the path at the beginning of a request or an event, or an empty string. A
// transaction has the path of its first operation.
func (p *packet) path() string {
	skip := zkwire.RequestBody
	switch p.op {
	case OpConnect, OpPing, OpClose, OpAuth, OpSetWatches, opUnknown:
		return ""
	case OpEvent:
		skip = zkwire.ReplyBody + 8 // the event's type, and the state of the session
	case OpMulti, OpMultiRead:
		skip += 9 // the header of the operation: its number, whether it is the last, an error code
	}

	if len(p.data) < skip {
		return ""
	}
	d := zkwire.Decoder{Rest: p.data[skip:]}
	if path := d.String(); !d.Bad {
		return path
	}

	return ""
}

// parts returns the operations of a transaction ("setData /path", for example).
func (p *packet) parts() (all []string) {
	d := zkwire.Decoder{Rest: p.data[min(zkwire.RequestBody, len(p.data)):]}
	for {
		op, done := zkwire.Op(d.Int32()), d.Bool()
		d.Int32()
		if d.Bad || done {
			return all
		}
		all = append(all, op.String()+" "+d.String())

		// Skip the rest of the operation.
		switch op {
		case zkwire.OpDelete, zkwire.OpCheck:
			d.Int32()
		case zkwire.OpSetData:
			d.Buffer()
			d.Int32()
		default: // a create
			d.Buffer()
			for n := d.Int32(); n > 0 && !d.Bad; n-- {
				d.Int32()
				d.Buffer()
				d.Buffer()
			}
			d.Int32()
			if op == zkwire.OpCreateTTL {
				d.Int64()
			}
		}
	}
}

// names reports whether a request is about the node at path. For a transaction, one operation is
// enough.
func (p *packet) names(path string) bool {
	if p.op == OpMulti {
		return bytes.Contains(p.data, zkwire.AppendString(nil, path))
	}
	return p.path() == path
}

// newRequest reads the head of a client's frame; first is true for the handshake.
func newRequest(frame []byte, first bool) packet {
	p := packet{direction: request, op: opUnknown, data: frame}
	if first {
		p.op = OpConnect
	} else if head, ok := zkwire.ParseRequestHeader(frame); ok {
		p.xid, p.op = head.Xid, opOf(head.Op)
	}

	return p
}

// newReply reads the head of a server's frame; first is true for the handshake.
func newReply(frame []byte, first bool) packet {
	p := packet{direction: reply, op: opUnknown, data: frame}
	if first {
		p.op = OpConnect
	} else if head, ok := zkwire.ParseReplyHeader(frame); ok {
		p.xid = head.Xid
		switch p.xid {
		case zkwire.XidEvent:
			p.op = OpEvent
		case zkwire.XidPing:
			p.op = OpPing
		}
	}

	return p
}
