package suite

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Gate holds back a client's requests of one kind while it is shut, and lets all others pass. It
// begins open. It is safe for concurrent use.
type Gate struct {
	Op recipestest.Op

	mu   sync.Mutex // protects the fields below
	shut bool
	due  []func()
}

// Option returns the option for a client whose requests go through the gate and then through link.
func (g *Gate) Option(link *recipestest.Link) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &gatedConn{conn, g}, nil
	})
}

// Shut holds back requests from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// Holding reports whether a request is held back.
func (g *Gate) Holding() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.due) > 0
}

// Open sends the requests that were held back, if their connection still exists.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	for _, send := range g.due {
		send()
	}
	g.due = nil
}

type gatedConn struct {
	net.Conn
	gate *Gate
}

func (c *gatedConn) Write(p []byte) (int, error) {
	if c.gate.holds(c, p) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// holds reports whether a request must wait.
func (g *Gate) holds(c *gatedConn, p []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut || len(p) < 12 || recipestest.Op(binary.BigEndian.Uint32(p[8:])) != g.Op {
		return false
	}
	late := bytes.Clone(p)
	g.due = append(g.due, func() { c.Conn.Write(late) })
	return true
}
