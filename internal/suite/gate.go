package suite

import (
	"bytes"
	"net"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Gate holds back a client's requests of one kind while it is shut. It lets all others pass. It
// begins open. It is safe for concurrent use.
type Gate struct {
	Op recipestest.Op

	mu   sync.Mutex // protects the fields below
	shut bool
	due  []func()
}

// Option returns the option for a client whose requests go through the gate and then through link.
func (g *Gate) Option(link *recipestest.Link) protocol.ConnectOption {
	return Writing(link, func(conn net.Conn, p []byte) (int, error) {
		if g.holds(conn, p) {
			return len(p), nil
		}
		return conn.Write(p)
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

// holds reports whether a request must wait.
func (g *Gate) holds(conn net.Conn, p []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut || OpOf(p) != g.Op {
		return false
	}
	late := bytes.Clone(p)
	g.due = append(g.due, func() { conn.Write(late) })
	return true
}
