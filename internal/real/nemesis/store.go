package main

import (
	"net"
	"net/rpc"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/must"
)

// A store is the resource that holders write to. For each recipe it remembers the highest token it
// has seen, and refuses lower tokens. It runs in the parent, and listens on a socket.
type store struct {
	listener net.Listener
	now      func() Stamp

	mu      sync.Mutex // protects the fields below
	highest map[string]int64
	writes  []Write
}

// writeMethod is Write, as clients call it.
const writeMethod = "store.Write"

// newStore fails by package must.
func newStore(socket string, now func() Stamp) *store {
	l := must.Get(net.Listen("unix", socket))
	s := &store{listener: l, now: now, highest: make(map[string]int64)}
	server := rpc.NewServer()
	must.Succeed(server.RegisterName("store", s))
	// Accept fails when the listener is closed.
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(c)
		}
	}()
	return s
}

// Write decides about a write, and says whether it is accepted.
func (s *store) Write(w Write, accepted *bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.At, w.Highest = s.now(), s.highest[w.Recipe]
	// A holder may write several times, so its own token is high enough.
	w.Accepted = w.Token >= w.Highest
	s.highest[w.Recipe] = max(w.Highest, w.Token)
	s.writes = append(s.writes, w)
	*accepted = w.Accepted
	return nil
}

// take returns the writes since the last call.
func (s *store) take() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

func (s *store) close() { s.listener.Close() }
