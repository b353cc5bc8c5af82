package main

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// A traffic counts what goes over the connections of a contestant. It counts requests, in all and
// of each kind, without pings and handshakes, and the bytes of both directions.
type traffic struct {
	requests, bytes atomic.Int64
	kinds           [len(kinds)]atomic.Int64
}

// kinds are the names of requests, by their number in the protocol.
var kinds = [...]string{
	1: "create", 2: "delete", 3: "exists", 4: "read", 5: "set", 8: "list", 9: "sync", 12: "list", 13: "check", 14: "multi",
	15: "create", 19: "create", 22: "multiread",
}

func (t *traffic) request(op uint32) {
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
	opPing      = 11
	headerBytes = 12 // the head of a frame: length, xid, operation
)

// A countedConn follows the frames that are written, however they are cut into writes.
type countedConn struct {
	net.Conn
	traffic *traffic
	shaken  bool // the first frame, a connect request, is over
	head    []byte
	rest    int // bytes of the current frame that are still to come after its head
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.bytes.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.follow(p)
	c.traffic.bytes.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func (c *countedConn) follow(p []byte) {
	for len(p) > 0 {
		if c.rest > 0 {
			n := min(c.rest, len(p))
			c.rest -= n
			p = p[n:]
			continue
		}

		n := min(headerBytes-len(c.head), len(p))
		c.head = append(c.head, p[:n]...)
		p = p[n:]
		if len(c.head) < headerBytes {
			return
		}

		c.rest = int(binary.BigEndian.Uint32(c.head)) + 4 - headerBytes
		if op := binary.BigEndian.Uint32(c.head[8:]); c.shaken && op != opPing {
			c.traffic.request(op)
		}

		c.shaken, c.head = true, c.head[:0]
	}
}
