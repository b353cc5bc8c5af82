package recipestest

import (
	"io"
	"slices"
	"sync"
	"testing"
)

// A tenant is what one test has taken of one server.
type tenant struct {
	tb     testing.TB
	server *Server

	mu      sync.Mutex // guards what follows
	roots   []string
	links   []*Link
	clients []io.Closer
}

// tenantOf returns tb's tenant. The first call has tb move out when it ends:
// after the test's own clean-up functions, and before what was registered earlier.
func (s *Server) tenantOf(tb testing.TB) *tenant {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tenants[tb]
	if !ok {
		checkGoroutines(tb)
		t = &tenant{tb: tb, server: s}
		s.tenants[tb] = t
		tb.Cleanup(t.moveOut)
	}
	return t
}

// moveOut checks what the test has left behind and takes everything down, so
// that it works whatever state the test has left the network in.
func (t *tenant) moveOut() {
	t.tb.Helper()
	t.server.mu.Lock()
	delete(t.server.tenants, t.tb)
	t.server.mu.Unlock()

	t.mu.Lock()
	roots, links, clients := t.roots, t.links, t.clients
	t.mu.Unlock()

	if e := t.server.embedded; e != nil && t.tb == t.server.tb {
		if err := e.Resume(); err != nil {
			t.tb.Logf("recipestest: %v", err)
		}
	}
	for _, l := range links {
		l.calm()
	}
	reachable := t.server.checkLeftovers(t.tb, roots)
	for _, c := range slices.Backward(clients) {
		if err := c.Close(); err != nil {
			t.tb.Logf("recipestest: close a client: %v", err)
		}
	}
	if reachable {
		t.server.removeRoots(t.tb, roots)
	}
	for _, l := range links {
		l.close()
	}
}
