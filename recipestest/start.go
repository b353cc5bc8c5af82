package recipestest

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An Option changes the server that [Start] makes. If an option is invalid, Start fails its test.
type Option func(*settings) error

type settings struct {
	embedded.Config
	lag       time.Duration
	followers int
	tls       *secrecy
}

// WithInMemory makes the server reachable through memory instead of TCP, by [Server.Client],
// [Server.Dial] or a [Link]. A testing/synctest bubble needs it. There, call Start in the bubble,
// with the bubble's testing.T.
func WithInMemory() Option {
	return func(s *settings) error {
		s.InMemory = true
		return nil
	}
}

// WithConfig replaces the whole configuration of the server. Options after it can change cfg
// further.
func WithConfig(cfg embedded.Config) Option {
	return func(s *settings) error {
		s.Config = cfg
		s.tls = nil
		return nil
	}
}

// WithConfigFunc calls change with the server's configuration: the defaults of Start, changed by
// earlier options.
func WithConfigFunc(change func(*embedded.Config)) Option {
	return func(s *settings) error {
		change(&s.Config)
		return nil
	}
}

// Lagging spreads clients over servers that lag. In an ensemble, the server of one client can know
// less than another client's server, and Lagging imitates that: connections go in turn to four
// followers, which lag behind their leader by nothing, a third of d, two thirds of d, and d. If one
// client has seen a change, all others can read it after d, or after a Sync. A client gets the
// answer to a write once its own follower has applied the write. d must not be negative.
//
// Lagging applies to [Server.Client], [Server.Dial] and links without [Link.Move].
// [Server.Embedded] is the leader: clients see its changes late, and the effect of
// [Server.ExpireSession] too. A few milliseconds are enough to find a program that mistakes an
// ensemble for one server.
func Lagging(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("lag must not be negative, got %v", d)
		}
		s.lag = d
		return nil
	}
}

// WithFollowers makes clients reach the server through n followers, each at an address of its own
// (as they reach the members of an ensemble). [Server.ConnectString] lists the addresses. A test
// can stop the followers, isolate them or make them lag: see [Server.Followers]. If a client's
// follower is stopped, the client goes on at another follower. n must be positive. WithFollowers
// can't be combined with [Lagging].
//
// The leader, [Server.Embedded], has no address in that list. If it is stopped, so are all
// followers.
func WithFollowers(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return fmt.Errorf("there must be a follower at least, got %d", n)
		}
		s.followers = n
		return nil
	}
}

// WithTLS makes the server speak only TLS. Its certificate is for "localhost" and 127.0.0.1, signed
// by a CA that is made for this server alone. [Server.Client], [Server.Conn], [Server.Dial] and all
// clients of a [Link] need no changes: their dialer speaks TLS, so that a link can still tell
// packets apart. [Server.TLSConfig] is for programs that speak TLS themselves.
func WithTLS() Option {
	return func(s *settings) error { return s.secure(tls.NoClientCert) }
}

// WithMutualTLS is [WithTLS], and the server demands a client certificate signed by the same CA.
// [Server.TLSConfig] has such a certificate.
func WithMutualTLS() Option {
	return func(s *settings) error { return s.secure(tls.RequireAndVerifyClientCert) }
}

func (s *settings) secure(clients tls.ClientAuthType) (err error) {
	if s.tls, err = newSecrecy(clients); err == nil {
		s.TLS = s.tls.server
	}
	return err
}

// Start starts an embedded ZooKeeper for tb and its subtests, on a free port of its own. It is
// stopped when tb ends. Sessions can have timeouts of 1 to 10 seconds (as with a real server whose
// tickTime is 500 ms). Start fails tb at once if an option is invalid or the server can't start.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	cfg := settings{Config: embedded.Config{
		TickTime:          500 * time.Millisecond,
		MinSessionTimeout: time.Second,
		MaxSessionTimeout: 10 * time.Second,
	}}

	for _, opt := range opts {
		if err := opt(&cfg); err != nil {
			tb.Fatalf("recipestest: start: %v", err)
		}
	}
	if cfg.lag > 0 && cfg.followers > 0 {
		tb.Fatalf("recipestest: start: Lagging and WithFollowers cannot be combined: call Follower.Lag")
	}

	// Goroutines of the server count too, so begin before it starts.
	checkGoroutines(tb)
	e, err := embedded.Start(cfg.Config)
	if err != nil {
		tb.Fatalf("recipestest: start: %v", err)
	}

	// Cleanups run in reverse order: the checks that resourcesOf registers come before this.
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("recipestest: stop the server: %v", err)
		}
	})

	dial := net.DialTimeout
	if cfg.InMemory {
		dial = e.Dial
	}

	followers, connectString, err := follow(e, cfg.followers)
	if err != nil {
		tb.Fatalf("recipestest: start: %v", err)
	}
	s := newServer(tb, connectString, cfg.tls.over(dial))
	s.embedded, s.followers, s.tls = e, followers, cfg.tls
	if cfg.lag > 0 {
		s.spread = cfg.tls.over(spread(e, cfg.lag))
	}

	s.resourcesOf(tb)
	return s
}

// follow returns n followers of e that listen, and their addresses.
func follow(e *embedded.Server, n int) ([]*embedded.Follower, string, error) {
	if n == 0 {
		return nil, e.ConnectString(), nil
	}
	followers, addresses := make([]*embedded.Follower, n), make([]string, n)
	for i := range followers {
		followers[i] = e.Follower()
		address, err := followers[i].Listen()
		if err != nil {
			return nil, "", err
		}
		addresses[i] = address
	}

	return followers, strings.Join(addresses, ","), nil
}

// spread dials the followers of e in turn. The first follower has no lag, and the last lags by d.
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

// Embedded returns the server itself, or nil if [Attach] made s. It can do things that a real
// server can't: stop and resume, drop all connections, reap containers, set a sequence number. A
// test that stops it needn't resume it. The server is resumed for the checks at the end of the test
// that started it.
func (s *Server) Embedded() *embedded.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faulty = true
	return s.embedded
}

// Followers returns the followers in the order of [Server.ConnectString]. Without [WithFollowers]
// there are none. Like the server, they are made whole for the checks at the end of the test that
// started it.
func (s *Server) Followers() []*embedded.Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faulty = true
	return slices.Clone(s.followers)
}
