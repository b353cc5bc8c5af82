package recipestest

import (
	"net"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An Option changes the server that [Start] makes.
type Option func(*embedded.Config)

// InMemory has the server reached through memory instead of TCP, with
// [Server.Client], [Server.Dial] or a [Link]. In a testing/synctest bubble that
// is the only way; call Start in the bubble then, with the bubble's testing.T.
func InMemory() Option {
	return func(cfg *embedded.Config) { cfg.InMemory = true }
}

// WithConfig replaces the server's whole configuration; further options change that.
func WithConfig(cfg embedded.Config) Option {
	return func(c *embedded.Config) { *c = cfg }
}

// Start starts an embedded ZooKeeper for tb and its subtests, on a free port of
// its own. It is stopped when tb ends. Sessions may have timeouts of 1 to 10
// seconds, as with a real server whose tickTime is 500 ms.
// Start fails tb at once if the server cannot start.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	cfg := embedded.Config{
		TickTime:          500 * time.Millisecond,
		MinSessionTimeout: time.Second,
		MaxSessionTimeout: 10 * time.Second,
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	checkGoroutines(tb)
	e, err := embedded.Start(cfg)
	if err != nil {
		tb.Fatalf("recipestest: start: %v", err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("recipestest: stop the server: %v", err)
		}
	})
	dial := net.DialTimeout
	if cfg.InMemory {
		dial = e.Dial
	}
	s := newServer(tb, e.ConnectString(), dial)
	s.embedded = e
	s.tenantOf(tb)
	return s
}

// Embedded returns the server itself, for what a real one cannot be asked to do
// (stop and resume, drop all connections, reap containers, set a sequence
// number), or nil if s was made by [Attach]. A test that stops it need not
// resume it: that happens before the checks at the end of the test that started it.
func (s *Server) Embedded() *embedded.Server { return s.embedded }
