package main

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// A traffic counts the traffic of a contestant's connections: requests (in total and by kind,
// without pings and handshakes), and the bytes of each direction.
type traffic struct {
	requests, pings, packets atomic.Int64 // packets are answers and events
	sent, received           atomic.Int64 // bytes
	kinds                    [len(kinds)]atomic.Int64
	sessions                 atomic.Int64 // that were opened
}

// kinds are the names of requests, by their number in the protocol.
var kinds = [...]string{
	1: "create", 2: "delete", 3: "exists", 4: "read", 5: "set", 8: "list", 9: "sync", 12: "list", 13: "check", 14: "multi",
	15: "create", 19: "create", 22: "multiread",
}

func (t *traffic) request(op uint32) {
	if op == opPing {
		t.pings.Add(1)
		return
	}
	t.requests.Add(1)
	if int(op) < len(t.kinds) {
		t.kinds[op].Add(1)
	}
}

func (t *traffic) byKind() (n [len(kinds)]int64) {
	for i := range n {
		n[i] = t.kinds[i].Load()
	}
	return n
}

// dial is a zk.Dialer.
func (t *traffic) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: c, traffic: t}, nil
}

const (
	opPing   = 11
	xidPing  = 1<<32 - 2
	fromHead = 12 // the head of a request: length, xid, operation
	toHead   = 8  // the head of an answer: length, xid
)

// A countedConn follows the frames of both directions, however reads and writes cut them up.
type countedConn struct {
	net.Conn
	traffic *traffic
	out, in frames
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(int64(n))
	c.in.follow(p[:n], toHead, func(head []byte) {
		if binary.BigEndian.Uint32(head[4:]) != xidPing {
			c.traffic.packets.Add(1)
		}
	})
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.traffic.sent.Add(int64(len(p)))
	c.out.follow(p, fromHead, func(head []byte) { c.traffic.request(binary.BigEndian.Uint32(head[8:])) })
	return c.Conn.Write(p)
}

// frames follows the frames of a connection in one direction.
type frames struct {
	shaken bool // the first frame (the handshake) has passed
	head   []byte
	rest   int // bytes of the current frame that still have to come after its head
}

// follow calls seen with the head (that many bytes) of each frame except the first.
func (f *frames) follow(p []byte, headBytes int, seen func(head []byte)) {
	for len(p) > 0 {
		if f.rest > 0 {
			n := min(f.rest, len(p))
			f.rest -= n
			p = p[n:]
			continue
		}

		n := min(headBytes-len(f.head), len(p))
		f.head = append(f.head, p[:n]...)
		p = p[n:]
		if len(f.head) < headBytes {
			return
		}

		f.rest = int(binary.BigEndian.Uint32(f.head)) + 4 - headBytes
		if f.shaken {
			seen(f.head)
		}
		f.shaken, f.head = true, f.head[:0]
	}
}
