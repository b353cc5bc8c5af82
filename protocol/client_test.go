package protocol_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// noNetwork is a dialer that fails the test.
func noNetwork(t *testing.T) protocol.ConnectOption {
	return protocol.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		t.Error("dialed")
		return nil, errors.New("no network")
	})
}

func TestBadArgumentsOfConnectAreErrorsBeforeAnyIO(t *testing.T) {
	t.Parallel()

	require.ErrorContains(t, suite.Err(protocol.Connect(t.Context(), "a:b:c", noNetwork(t))), "too many colons")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("never mind"))
	_, err := protocol.Connect(ended, "zk", noNetwork(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "never mind")

	for want, o := range map[string]protocol.ConnectOption{
		"nil option":                      nil,
		"connect: nil option":             protocol.Option(nil),
		"timeout 0s out of range":         protocol.WithSessionTimeout(0),
		"timeout 1µs out of range":        protocol.WithSessionTimeout(time.Microsecond),
		"timeout -1s out of range":        protocol.WithSessionTimeout(-time.Second),
		"timeout 1281023h53m38.4":         protocol.WithSessionTimeout(1 << 62),
		"nil dialer":                      protocol.WithDialer(nil),
		"nil resolver":                    protocol.WithResolver(nil),
		"empty auth scheme":               protocol.WithAuth("", []byte("user:password")),
		"has no SASL":                     protocol.WithAuth("sasl", nil),
		"nil state listener":              protocol.WithStateListener(nil),
		"empty ACL":                       protocol.WithACL(nil),
		"nil function for ACLs":           protocol.WithACLFor(nil),
		"nil back-off":                    protocol.WithBackOff(nil),
		"nil logger":                      protocol.WithLogger(nil),
		"nil observer":                    protocol.WithObserver(nil),
		"request limit -1 out of range":   protocol.WithRequestLimit(-1),
		"request limit 1023 out of range": protocol.WithRequestLimit(1023),
		"request limit 1073741824 out of": protocol.WithRequestLimit(1 << 30),
		"owner data of 1025 bytes":        protocol.WithOwnerData(make([]byte, 1025)),
	} {
		require.ErrorContains(t, suite.Err(protocol.Connect(t.Context(), "zk", noNetwork(t), o)), want)
	}
}

func TestChrootThatMustExistIsNotCreated(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		dial := func() (*protocol.Client, error) {
			return protocol.Connect(suite.Lasting(t), srv.ConnectString()+root+"/app", protocol.WithDialer(srv.Dial), protocol.WithExistingChroot())
		}

		_, err := dial()
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, root+"/app")
		require.False(t, suite.Exists(t, srv.Client(t), root))

		suite.Keep(t, srv.Client(t), root+"/app/line")
		c := suite.Got(dial())(t)
		defer c.Close()
		suite.Release(t, suite.Hold(t, c, "/line"))

		// An operator deletes it later.
		s := suite.Session(t, srv.Client(t))
		require.NoError(t, s.Delete(suite.Lasting(t), root+"/app/line", -1))
		require.NoError(t, s.Delete(suite.Lasting(t), root+"/app", -1))
		_, err = suite.LineAt(c, "/line").Enter(suite.Lasting(t), suite.Request)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, root+"/app")
	})
}

var (
	alice     = protocol.WithAuth("digest", []byte("alice:secret"))
	aliceOnly = protocol.WithACL(zk.DigestACL(zk.PermAll, "alice", "secret"))
)

func TestCredentialsAndACLsOutliveConnectionsAndSessions(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, seen := srv.Link(t), srv.Root(t), make(states, 9)
		c, other := link.Client(t, alice, aliceOnly, seen.option()), suite.Session(t, srv.Client(t))
		first := suite.Session(t, c)
		suite.Ensure(t, first, root+"/own")
		requireOurs := func() {
			t.Helper()
			s := suite.Session(t, c)
			_, err := recipe.Do(suite.Lasting(t), s, func(conn *zk.Conn) (*zk.Stat, error) {
				return conn.Set(s.Path(root+"/own"), []byte("mine"), -1)
			})

			require.NoError(t, err)
			_, _, err = other.Conn().Get(other.Path(root + "/own"))
			require.ErrorIs(t, err, zk.ErrNoAuth)
		}

		requireOurs()
		seen.require(t, protocol.Connected)

		for range 3 {
			link.Cut()
			seen.require(t, protocol.Suspended)
			link.Heal()
			seen.require(t, protocol.Connected)
			requireOurs()
		}

		require.Equal(t, first, suite.Session(t, c))
		srv.ExpireSession(first.ID())
		suite.Wait(t, first.Done())
		requireOurs()
		s := suite.Session(t, c)
		require.NotEqual(t, first.ID(), s.ID())
		require.NoError(t, s.Conn().Delete(s.Path(root+"/own"), -1), "which the owner alone may do")
	})
}

func TestRefusedCredentialFailsConnect(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		_, err := protocol.Connect(suite.Lasting(t), srv.ConnectString(), protocol.WithDialer(srv.Dial), alice,
			protocol.WithAuth("no-such-scheme", []byte("secret")))
		require.ErrorIs(t, err, zk.ErrAuthFailed)
		require.ErrorContains(t, err, "no-such-scheme")
		require.NotContains(t, err.Error(), "secret")
	})
}

// TestCredentialRefusedLaterIsTriedAgain ends the session while the servers refuse the credential,
// and later closes the client during such a time.
func TestCredentialRefusedLaterIsTriedAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var refused atomic.Bool
		var attempts atomic.Int32
		seen := make(states, 9)
		c := srv.Client(t, alice, seen.option(), suite.Over(srv.Dial, func(conn net.Conn) suite.Wire {
			if !refused.Load() {
				return suite.Wire{Conn: conn}
			}
			attempts.Add(1)
			return misspelling(conn)
		}))
		seen.require(t, protocol.Connected)
		refused.Store(true)
		endSessions(t, srv, c, 1)
		seen.require(t, protocol.Suspended, protocol.Lost)
		_, err := c.Session(suite.Within(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, zk.ErrAuthFailed)
		require.Less(t, attempts.Load(), int32(30), "attempts in a minute, at intervals of ten seconds")
		refused.Store(false)
		begin := time.Now()
		s := suite.Session(t, c)
		require.LessOrEqual(t, time.Since(begin), s.Timeout()+time.Second)
		seen.require(t, protocol.Connected)

		refused.Store(true)
		endSessions(t, srv, c, 1)
		time.Sleep(s.Timeout() / 2) // the pause lasts for a timeout
		synctest.Wait()
		require.Zero(t, took(func() { require.NoError(t, c.Close()) }))
		require.Empty(t, ourGoroutines(t))
	})
}

// TestCredentialsAreSentAgainOverAConnectionThatFailsToWrite has writes fail that would block
// zk.Conn for ever if it saw them.
func TestCredentialsAreSentAgainOverAConnectionThatFailsToWrite(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for failing := 1; failing <= 4; failing++ {
			var dials atomic.Int32
			c := srv.Client(t, alice, suite.Over(srv.Dial, func(conn net.Conn) suite.Wire {
				if n := dials.Add(1); n == 1 || n >= 5 {
					return suite.Wire{Conn: conn}
				}
				writes := 0
				return suite.Wire{Conn: conn, OnWrite: func(p []byte) (int, error) {
					if writes++; writes > failing {
						return 0, errFaulty
					}
					return conn.Write(p)
				}}
			}))
			s := suite.Session(t, c)

			for range 3 {
				srv.Embedded().DropConnections()
				require.False(t, suite.Exists(t, c, "/nothing"))
			}

			require.Equal(t, s, suite.Session(t, c))
		}
	})
}

func TestListenersGetEveryStateInOrder(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, one, two := srv.Link(t), make(states, 9), make(states, 9)
		c := link.Client(t, one.option(), two.option())
		suite.Hold(t, c, srv.Root(t))
		comes := func(state protocol.State) {
			t.Helper()
			one.require(t, state)
			require.Equal(t, state, c.State())
			require.Equal(t, state, c.With(protocol.WithACL(zk.WorldACL(zk.PermRead))).State())
		}

		comes(protocol.Connected)
		link.Cut()
		comes(protocol.Suspended)
		comes(protocol.Lost)
		link.Heal()
		suite.Session(t, c)
		comes(protocol.Connected)
		require.NoError(t, c.Close())
		comes(protocol.Closed)

		require.Empty(t, one)
		two.require(t, protocol.Connected, protocol.Suspended, protocol.Lost, protocol.Connected, protocol.Closed)
	})
}

// endSessions ends sessions one after the other.
func endSessions(t *testing.T, srv *recipestest.Server, c *protocol.Client, sessions int) {
	for range sessions {
		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		suite.Wait(t, s.Done())
	}
}

// The pause before the next session grows, and becomes short again after a session that has lasted.
// Close doesn't wait for its end.
func TestSessionsThatEndAtOnceAreNotOpenedWithoutAPause(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		timeout := suite.Session(t, c).Timeout()
		taken := took(func() { endSessions(t, srv, c, 20) })
		require.Greater(t, taken, timeout/2)
		require.Less(t, taken, 2*timeout)
		require.Greater(t, took(func() { suite.Session(t, c) }), 100*time.Millisecond)

		time.Sleep(timeout + time.Second)
		endSessions(t, srv, c, 1)
		require.Less(t, took(func() { suite.Session(t, c) }), 20*time.Millisecond)

		endSessions(t, srv, c, 10)
		synctest.Wait()
		before := link.Count(recipestest.OpConnect)
		require.Zero(t, took(func() { require.NoError(t, c.Close()) }))
		require.Empty(t, ourGoroutines(t))
		require.Equal(t, before, link.Count(recipestest.OpConnect))
	})
}

func TestWithSharesTheSessionsAndTheirEnd(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		view := c.With(protocol.WithACL(zk.WorldACL(zk.PermRead)), protocol.WithLogger(slog.New(slog.DiscardHandler)),
			protocol.WithBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }))
		require.Equal(t, suite.Session(t, c).ID(), suite.Session(t, view).ID())
		require.Same(t, suite.Session(t, view), suite.Session(t, view))
		require.NoError(t, view.Close())
		require.ErrorIs(t, suite.Err(c.Session(t.Context())), protocol.ErrClosed)
	})
}

func TestBadViewIsReportedByTheFirstOperation(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		sound := protocol.WithLogger(slog.Default())

		for _, bad := range []struct {
			view *protocol.Client
			says string
		}{
			{(*protocol.Client)(nil).With(sound), "Connect"},
			{new(protocol.Client).With(sound), "Connect"},
			{c.With(nil), "nil option"},
			{c.With(protocol.WithACL(nil)), "empty ACL"},
			{c.With(protocol.WithBackOff(nil)), "nil back-off"},
			{c.With(protocol.WithLogger(nil)), "nil logger"},
			{c.With(protocol.WithObserver(nil)), "nil observer"},
		} {
			l := suite.LineAt(bad.view, root)
			require.ErrorContains(t, suite.Err(bad.view.Session(t.Context())), bad.says)
			require.ErrorContains(t, suite.Err(l.Enter(t.Context(), suite.Request)), bad.says)
			require.ErrorContains(t, suite.Err(l.Contenders(t.Context())), bad.says)
			require.ErrorContains(t, l.Break(t.Context(), "lock-0000000001"), bad.says)
		}

		suite.Release(t, suite.Hold(t, c, root)) // the client itself is sound
	})
}

func TestServersWithoutContainersAreAskedOnce(t *testing.T) {
	// asked returns how often a client asks for containers in two sessions, and how often it
	// connects again.
	asked := func(t *testing.T, srv *recipestest.Server) (requests, connects int) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		before := link.Count(recipestest.OpConnect)

		for _, path := range []string{root + "/a/b/c", root + "/d/e/f"} {
			require.NoError(t, suite.Hold(t, c, path).Release(suite.Lasting(t)))
		}

		return link.Count(recipestest.OpCreateContainer), link.Count(recipestest.OpConnect) - before
	}

	suite.Run(t, "embedded", func(t *testing.T, srv *recipestest.Server) {
		var requests, connects int
		require.Less(t, took(func() { requests, connects = asked(t, srv) }), 200*time.Millisecond)
		require.Equal(t, 1, requests)
		require.LessOrEqual(t, connects, 1)
	}, recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.NoContainers = true }))

	t.Run("real", func(t *testing.T) {
		srv := suite.Real(t)
		if suite.Has(t, srv, suite.Containers) {
			t.Skipf("ZooKeeper %s has container nodes", srv.Version())
		}

		requests, connects := asked(t, srv)
		require.LessOrEqual(t, requests, 2, "the connection may end before the answer is read")
		require.LessOrEqual(t, connects, requests)
	})
}

// New nodes are for the identities of the credentials that were given, and for no other identity of
// the connection.
func TestNewNodesAreForTheGivenIdentitiesAlone(t *testing.T) {
	srv := recipestest.Start(t)
	aclOf := func(c *protocol.Client, path string) []zk.ACL {
		s := suite.Session(t, c)
		require.NoError(t, s.Create(suite.Lasting(t), path, nil, 0))
		return suite.ReadAt(t, s.Conn().GetACL, s.Path(path))
	}

	root := srv.Root(t)
	suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
	alice, bob := zk.DigestACL(zk.PermAll, "alice", "se:cret"), zk.DigestACL(zk.PermAll, "bob", "")
	asAlice, asBob := protocol.WithAuth("digest", []byte("alice:se:cret")), protocol.WithAuth("digest", []byte("bob:"))

	require.Equal(t, alice, aclOf(srv.Client(t, asAlice), root+"/one"))
	require.Equal(t, append(alice, bob...), aclOf(srv.Client(t, asAlice, asBob), root+"/two"))
	require.Equal(t, alice, aclOf(srv.Client(t, asAlice, protocol.WithAuth("ip", nil)), root+"/address"))
	require.Equal(t, zk.WorldACL(zk.PermAll), aclOf(srv.Client(t, protocol.WithAuth("ip", nil)), root+"/open"))

	// The connection has another identity (a shared certificate, for example).
	c := srv.Client(t, asAlice)
	require.NoError(t, suite.Session(t, c).Conn().AddAuth("digest", []byte("shared:certificate")))
	require.Equal(t, alice, aclOf(c, root+"/beside"))

	// It is not this credential that the server knows the connection by.
	link := srv.Link(t)
	link.Fail(recipestest.OpWhoAmI, "", int32(zkwire.CodeUnimplemented), 1)
	other := []protocol.ConnectOption{accepting(link), protocol.WithAuth("other", nil)}
	for range 2 {
		_, err := protocol.Connect(suite.Lasting(t), srv.ConnectString(), other...)
		require.ErrorContains(t, err, "give WithACL")
	}
	given := link.Client(t, append(other, protocol.WithACL(alice))...)
	require.NoError(t, given.Close())
}

// accepting is a way through link on which the server takes any credential for an address.
func accepting(link *recipestest.Link) protocol.ConnectOption {
	return suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
		frame := bytes.Replace(p, []byte("\x00\x00\x00\x05other"), []byte("\x00\x00\x00\x02ip"), 1)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		_, err := conn.Write(frame)
		return len(p), err
	})
}

// A back-off, an ACL function or a dialer that panics, ends its goroutine or returns nil ends the
// call that needs it with an error, and no other.
func TestFailingFunctionIsAnErrorWithAName(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, broken := srv.Root(t), srv.Link(t)
		c := broken.Client(t)

		for want, option := range map[string]protocol.Option{
			"back-off is nil":                  protocol.WithBackOff(func() backoff.BackOff { return nil }),
			"back-off panicked: x":             protocol.WithBackOff(func() backoff.BackOff { panic("x") }),
			"ACL function panicked: x":         protocol.WithACLFor(func(string) []zk.ACL { panic("x") }),
			"ACL function ended its goroutine": protocol.WithACLFor(func(string) []zk.ACL { runtime.Goexit(); return nil }),
		} {
			s := suite.Session(t, c.With(option))
			if strings.Contains(want, "back-off") {
				broken.Fail(recipestest.OpCreate, root+"/x", int32(-4), 1)
			}

			require.ErrorContains(t, s.Create(suite.Lasting(t), root+"/x", nil, 0), want)
			broken.Fail(recipestest.OpAny, "", 0, 0)
		}

		_, err := suite.LineAt(c.With(protocol.WithACLFor(func(string) []zk.ACL { panic("x") })), root).Enter(suite.Lasting(t), suite.Request)
		require.ErrorContains(t, err, "ACL function panicked: x")
		suite.Release(t, suite.Hold(t, c, root))

		for want, d := range map[string]zk.Dialer{
			"dialer panicked: x":            func(string, string, time.Duration) (net.Conn, error) { panic("x") },
			"dialer ended its goroutine":    func(string, string, time.Duration) (net.Conn, error) { runtime.Goexit(); return nil, nil },
			"dialer returned no connection": func(string, string, time.Duration) (net.Conn, error) { return nil, nil },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := protocol.Connect(ctx, srv.ConnectString(), protocol.WithDialer(d))
			cancel()
			require.ErrorContains(t, err, want)
		}
	})
}
