package doctor

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// counting returns a dialer whose connections count the requests that they send.
func counting(dial zk.Dialer, requests *atomic.Int64) zk.Dialer {
	if dial == nil {
		dial = net.DialTimeout
	}
	return func(network, address string, limit time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, limit)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: conn, requests: requests}, nil
	}
}

// A counted is a connection of one client, whose writes come one after the other. Each request has
// its length in front.
type counted struct {
	net.Conn
	requests *atomic.Int64
	head     []byte
	rest     int // of the present request
}

func (c *counted) Write(b []byte) (int, error) {
	for p := b; len(p) > 0; {
		n := min(c.rest, len(p))
		if c.rest == 0 {
			n = min(4-len(c.head), len(p))
			if c.head = append(c.head, p[:n]...); len(c.head) == 4 {
				c.rest, c.head = int(binary.BigEndian.Uint32(c.head)), nil
				c.requests.Add(1)
			}
		} else {
			c.rest -= n
		}
		p = p[n:]
	}
	return c.Conn.Write(b)
}
