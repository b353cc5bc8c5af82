package main

import (
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A traffic counts the traffic of a contestant's connections: requests (without pings and
// handshakes), and the bytes of each direction.
type traffic struct {
	requests       atomic.Int64
	sent, received atomic.Int64 // bytes
	sessions       atomic.Int64 // that were opened
}

// dial is a zk.Dialer.
func (t *traffic) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: c, traffic: t}, nil
}

// A countedConn follows the frames that it sends, however writes cut them up.
type countedConn struct {
	net.Conn
	traffic *traffic

	shaken  bool   // the first frame (the handshake) has passed
	partial []byte // the beginning of a frame, whose rest still has to come
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.traffic.sent.Add(int64(len(p)))
	// Count before the write: the server could answer before the write returns.
	c.count(p)
	return c.Conn.Write(p)
}

// count counts the requests that end in p.
func (c *countedConn) count(p []byte) {
	c.partial = append(c.partial, p...)
	frame, rest, _ := zkwire.CutFrame(c.partial, math.MaxInt32)
	// After an error there is no frame.
	for ; frame != nil; frame, rest, _ = zkwire.CutFrame(rest, math.MaxInt32) {
		if head, _ := zkwire.ParseRequestHeader(frame); c.shaken && head.Op != zkwire.OpPing {
			c.traffic.requests.Add(1)
		}
		c.shaken = true
	}
	c.partial = append(c.partial[:0], rest...)
}
