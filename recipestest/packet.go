package recipestest

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"
)

// maxPacket is far above what any server or client accepts. A longer one is not ZooKeeper's
// protocol.
const maxPacket = 64 << 20

var errNotZooKeeper = errors.New("recipestest: not a ZooKeeper packet")

// The xids of packets that answer no numbered request.
const (
	xidEvent = -1
	xidPing  = -2
)

// pong answers a ping: length, xid, no zxid, no error.
var pong = []byte{0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

type direction int

const (
	request direction = iota // to the server
	reply                    // to the client; watch events too
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

// A fifo is a queue of packets. Its zero value is ready for use.
type fifo struct {
	packets []packet
	head    int // the index of the first that has not been taken
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

// step reports whether [Link.At] counts p.
func (p *packet) step() bool { return p.end == nil && p.op != OpPing }

// cutPacket takes the first whole frame off buf. It returns a nil frame when there is none yet.
func cutPacket(buf []byte) (frame, rest []byte, err error) {
	if len(buf) < 4 {
		return nil, buf, nil
	}

	size := binary.BigEndian.Uint32(buf)
	if size > maxPacket {
		return nil, buf, errNotZooKeeper
	}

	end := 4 + int(size)
	if len(buf) < end {
		return nil, buf, nil
	}

	return buf[:end:end], buf[end:], nil
}

// readPacket reads one whole frame.
func readPacket(r io.Reader) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}

	size := binary.BigEndian.Uint32(prefix[:])
	if size > maxPacket {
		return nil, errNotZooKeeper
	}

	frame := make([]byte, 4+size)
	copy(frame, prefix[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// newRequest reads the head of a client's frame; first is true for the handshake.
func newRequest(frame []byte, first bool) packet {
	p := packet{direction: request, op: opUnknown, data: frame}
	switch {
	case first:
		p.op = OpConnect
	case len(frame) >= 12:
		p.xid = int32(binary.BigEndian.Uint32(frame[4:]))
		p.op = wireOp(int32(binary.BigEndian.Uint32(frame[8:])))
	}

	return p
}

// newReply reads the head of a server's frame; first is true for the handshake.
func newReply(frame []byte, first bool) packet {
	p := packet{direction: reply, op: opUnknown, data: frame}
	if first {
		p.op = OpConnect
		return p
	}

	if len(frame) >= 8 {
		p.xid = int32(binary.BigEndian.Uint32(frame[4:]))
		switch p.xid {
		case xidEvent:
			p.op = OpEvent
		case xidPing:
			p.op = OpPing
		}
	}

	return p
}
