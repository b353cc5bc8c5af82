package recipestest

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An Option changes the server that [Start] makes.
type Option func(*start)

type start struct {
	embedded.Config
	lag time.Duration
}

// InMemory has the server reached through memory instead of TCP, with
// [Server.Client], [Server.Dial] or a [Link]. In a testing/synctest bubble that
// is the only way; call Start in the bubble then, with the bubble's testing.T.
func InMemory() Option {
	return func(s *start) { s.InMemory = true }
}

// WithConfig replaces the server's whole configuration; further options change that.
func WithConfig(cfg embedded.Config) Option {
	return func(s *start) { s.Config = cfg }
}

// Configure calls change with the server's configuration, which has Start's values and those of the options before.
func Configure(change func(*embedded.Config)) Option {
	return func(s *start) { change(&s.Config) }
}

// Lagging has clients meet what they meet in an ensemble, where another client's server may know less than their own:
// connections are spread over followers in turn, which lag behind their leader by nothing, a third of d, two thirds of
// d, and d. What one client was told to be done, another one reads d later at the latest, or after a Sync. A client
// that is connected to a follower waits for the answer to a write until that follower has carried it out.
//
// It applies to [Server.Client], [Server.Dial] and links that were not told to [Link.Move]. [Server.Embedded] is the
// leader; what it does is heard of by clients as late as the rest, and so is [Server.ExpireSession]. A few
// milliseconds are enough to tell a program that takes an ensemble for one server from one that does not.
func Lagging(d time.Duration) Option {
	return func(s *start) { s.lag = d }
}

// Start starts an embedded ZooKeeper for tb and its subtests, on a free port of
// its own. It is stopped when tb ends. Sessions may have timeouts of 1 to 10
// seconds, as with a real server whose tickTime is 500 ms.
// Start fails tb at once if the server cannot start.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	cfg := start{Config: embedded.Config{
		TickTime:          500 * time.Millisecond,
		MinSessionTimeout: time.Second,
		MaxSessionTimeout: 10 * time.Second,
	}}
	for _, opt := range opts {
		opt(&cfg)
	}
	checkGoroutines(tb)
	e, err := embedded.Start(cfg.Config)
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
	if cfg.lag > 0 {
		s.spread = spread(e, cfg.lag)
	}
	s.tenantOf(tb)
	return s
}

// spread dials the followers of e in turn. The first knows what e knows, and the last lags behind by d.
func spread(e *embedded.Server, d time.Duration) zk.Dialer {
	followers := make([]*embedded.Follower, 4)
	for i := range followers {
		followers[i] = e.Follower()
		followers[i].Lag(d * time.Duration(i) / time.Duration(len(followers)-1))
	}
	var dialled atomic.Uint32
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return followers[int(dialled.Add(1)-1)%len(followers)].Dial(network, address, timeout)
	}
}

// Embedded returns the server itself, for what a real one cannot be asked to do
// (stop and resume, drop all connections, reap containers, set a sequence
// number), or nil if s was made by [Attach]. A test that stops it need not
// resume it: that happens before the checks at the end of the test that started it.
func (s *Server) Embedded() *embedded.Server { return s.embedded }
