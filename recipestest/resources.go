package recipestest

import (
	"io"
	"slices"
	"sync"
	"testing"
)

// resources are the things that one test uses of one server.
type resources struct {
	tb     testing.TB
	server *Server

	mu      sync.Mutex // protects the fields below
	roots   []string
	links   []*Link
	clients []io.Closer
}

// resourcesOf returns the resources of tb. The first call registers their release, which runs after
// the test's own clean-up functions and before clean-ups registered earlier.
func (s *Server) resourcesOf(tb testing.TB) *resources {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	r, ok := s.tests[tb]
	if !ok {
		checkGoroutines(tb)
		r = &resources{tb: tb, server: s}
		s.tests[tb] = r
		tb.Cleanup(r.release)
	}

	return r
}

// release checks what the test has left behind, and then closes and removes everything. It works in
// any state of the network.
func (r *resources) release() {
	r.tb.Helper()
	r.server.mu.Lock()
	delete(r.server.tests, r.tb)
	r.server.mu.Unlock()

	r.mu.Lock()
	roots, links, clients := r.roots, r.links, r.clients
	r.mu.Unlock()

	// Make the server and the networks whole.
	if e := r.server.embedded; e != nil && r.tb == r.server.tb {
		if err := e.Resume(); err != nil {
			r.tb.Logf("recipestest: resume the server: %v", err)
		}
		for _, f := range r.server.followers {
			f.Rejoin()
			f.Lag(0)
			if err := f.Resume(); err != nil {
				r.tb.Logf("recipestest: resume a follower: %v", err)
			}
		}
	}

	for _, l := range links {
		if r.tb.Failed() {
			r.tb.Logf("recipestest: packets of a link:\n%s", l.Trace())
		}
		l.healForGood()
	}

	// Look for leftovers while the clients are open, because closing them would delete ephemeral
	// nodes.
	reachable := r.server.checkLeftovers(r.tb, roots, clients)

	// Close the clients, remove the nodes and then close the networks that all of this needs.
	for _, c := range slices.Backward(clients) {
		if err := c.Close(); err != nil {
			r.tb.Logf("recipestest: close a client: %v", err)
		}
	}

	if reachable {
		r.server.removeRoots(r.tb, roots)
	}

	for _, l := range links {
		l.close()
	}
}
