package protocol_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
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
	for _, connectString := range []string{"", ",", "zk,", "zk:0", "zk:99999", "zk/a//b", "zk/../a", "zk/a\x00"} {
		_, err := protocol.Connect(t.Context(), connectString, noNetwork(t))
		require.Error(t, err, "%q", connectString)
	}
	_, err := protocol.Connect(t.Context(), "a:b:c", noNetwork(t))
	require.ErrorContains(t, err, "too many colons")
	for name, o := range map[string]protocol.ConnectOption{
		"nil":               nil,
		"no timeout":        protocol.WithSessionTimeout(0),
		"short timeout":     protocol.WithSessionTimeout(time.Microsecond),
		"negative timeout":  protocol.WithSessionTimeout(-time.Second),
		"long timeout":      protocol.WithSessionTimeout(1 << 62),
		"nil dialer":        protocol.WithDialer(nil),
		"nil resolver":      protocol.WithResolver(nil),
		"no scheme":         protocol.WithAuth("", []byte("user:password")),
		"nil listener":      protocol.WithStateListener(nil),
		"empty ACL":         protocol.WithACL(nil),
		"nil back-off":      protocol.WithBackOff(nil),
		"nil logger":        protocol.WithLogger(nil),
		"nil observer":      protocol.WithObserver(nil),
		"several, one nil":  protocol.WithLogger(nil),
		"nil logger option": protocol.Option(nil),
	} {
		_, err := protocol.Connect(t.Context(), "zk", noNetwork(t), o)
		require.Error(t, err, name)
	}
}

func TestConnectDoesNothingForAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("never mind"))
	_, err := protocol.Connect(ctx, "zk", noNetwork(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "never mind")
}

func TestConnectBlocksUntilItsContextEndsWhereNothingListens(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		link.Cut()
		begin := time.Now()
		_, err := protocol.Connect(within(t, 5*time.Second), srv.ConnectString(), protocol.WithDialer(link.Dial))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, srv.ConnectString())
		require.InDelta(t, 5, time.Since(begin).Seconds(), 0.1)
		require.Empty(t, ourGoroutines())
	})
}

func TestConnectKeepsItsDeadlineAtASilentServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		link.Stall()
		for _, timeout := range []time.Duration{time.Second, 40 * time.Second} {
			begin := time.Now()
			_, err := protocol.Connect(within(t, 500*time.Millisecond), srv.ConnectString(),
				protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(timeout))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.InDelta(t, 0.5, time.Since(begin).Seconds(), 0.1)
		}
	})
}

func TestConnectSucceedsAsSoonAsThereIsAServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for _, fault := range []func(*recipestest.Link){(*recipestest.Link).Cut, (*recipestest.Link).Stall} {
			link := srv.Link(t)
			fault(link)
			time.AfterFunc(15*time.Second, link.Heal)
			begin := time.Now()
			connect(t, srv.ConnectString(), protocol.WithDialer(link.Dial))
			require.Less(t, time.Since(begin), 19*time.Second)
		}
	})
}

func TestConnectTriesEveryServer(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		mute, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer mute.Close()
		servers := "127.0.0.1:1," + mute.Addr().String() + "," + srv.ConnectString()
		for range 3 { // for the mute one alone zk.Conn would have forty seconds
			session(t, connect(t, servers, protocol.WithDialer(srv.Dial), protocol.WithSessionTimeout(6*time.Second)))
		}
	})
}

func TestGrantedTimeoutIsTheServers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for asked, granted := range map[time.Duration]time.Duration{
			time.Millisecond: time.Second,
			3 * time.Second:  3 * time.Second,
			time.Hour:        10 * time.Second,
		} {
			c := srv.Client(t, protocol.WithSessionTimeout(asked))
			require.Equal(t, granted, session(t, c).Timeout())
		}
	})
}

func TestChrootIsInFrontOfPathsAndCreatedOnDemand(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c := connect(t, srv.ConnectString()+root+"/app/x", protocol.WithDialer(srv.Dial))
		s := session(t, c)
		require.True(t, strings.HasSuffix(s.Path("/a"), root+"/app/x/a"))
		require.Equal(t, s.Path("/a"), s.Path("/")+"/a")

		other := srv.Client(t)
		require.False(t, exists(t, other, root), "Connect creates nothing")
		created, err := s.EnsurePath(lasting(t), "/a/b")
		require.NoError(t, err)
		require.True(t, created)
		created, err = s.EnsurePath(lasting(t), "/a/b")
		require.NoError(t, err)
		require.False(t, created)
		require.True(t, exists(t, other, root+"/app/x/a/b"))
		created, err = s.EnsurePath(lasting(t), "/")
		require.NoError(t, err)
		require.False(t, created)

		g := hold(t, c, "/lock")
		require.True(t, exists(t, other, root+"/app/x/lock/"+g.Node()))
		require.NoError(t, g.Release(lasting(t)))
	})
}

func TestChrootThatMustExistIsNotCreated(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		dial := func() (*protocol.Client, error) {
			return protocol.Connect(lasting(t), srv.ConnectString()+root+"/app", protocol.WithDialer(srv.Dial), protocol.WithExistingChroot())
		}
		_, err := dial()
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, root+"/app")
		require.False(t, exists(t, srv.Client(t), root))

		_, err = session(t, srv.Client(t)).EnsurePath(lasting(t), root+"/app")
		require.NoError(t, err)
		c, err := dial()
		require.NoError(t, err)
		defer c.Close()
		release(t, hold(t, c, "/line"))

		// Somebody deletes it later.
		s := session(t, srv.Client(t))
		require.NoError(t, s.Delete(lasting(t), root+"/app/line", -1))
		require.NoError(t, s.Delete(lasting(t), root+"/app", -1))
		_, err = lineAt(c, "/line").Enter(lasting(t), request)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, root+"/app")
	})
}

func TestWithoutAChrootPathsStayAsTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t))
		require.Equal(t, "/", s.Path("/"))
		require.Equal(t, "/a/b", s.Path("/a/b"))
	})
}

func TestEnsurePathCreatesWhatVanishesMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		s, root := session(t, srv.Client(t)), srv.Root(t)
		vandal := session(t, srv.Client(t))
		stop := make(chan struct{})
		done := later(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
					vandal.Conn().Delete(vandal.Path(root+"/a"), -1)
					vandal.Conn().Delete(vandal.Path(root), -1)
				}
			}
		})
		for range 50 {
			_, err := s.EnsurePath(lasting(t), root+"/a/b")
			require.NoError(t, err)
			if err := s.Conn().Delete(s.Path(root+"/a/b"), -1); !errors.Is(err, zk.ErrNoNode) {
				require.NoError(t, err)
			}
		}
		close(stop)
		require.NoError(t, wait(t, done))
	})
}

var (
	alice     = protocol.WithAuth("digest", []byte("alice:secret"))
	aliceOnly = protocol.WithACL(zk.DigestACL(zk.PermAll, "alice", "secret"))
)

func TestCredentialsAndACLsOutliveConnectionsAndSessions(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, seen := srv.Link(t), srv.Root(t), make(states, 9)
		c, other := link.Client(t, alice, aliceOnly, seen.option()), session(t, srv.Client(t))
		first := session(t, c)
		_, err := first.EnsurePath(lasting(t), root+"/own")
		require.NoError(t, err)
		requireOurs := func() {
			t.Helper()
			s := session(t, c)
			_, err := recipe.Do(lasting(t), s, func(conn *zk.Conn) (*zk.Stat, error) {
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
		require.Equal(t, first, session(t, c))
		srv.ExpireSession(first.ID())
		wait(t, first.Done())
		requireOurs()
		s := session(t, c)
		require.NotEqual(t, first.ID(), s.ID())
		require.NoError(t, s.Conn().Delete(s.Path(root+"/own"), -1), "which the owner alone may do")
	})
}

func TestRefusedCredentialFailsConnect(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		_, err := protocol.Connect(lasting(t), srv.ConnectString(), protocol.WithDialer(srv.Dial), alice,
			protocol.WithAuth("no-such-scheme", []byte("secret")))
		require.ErrorIs(t, err, zk.ErrAuthFailed)
		require.ErrorContains(t, err, "no-such-scheme")
		require.NotContains(t, err.Error(), "secret")
	})
}

// TestCredentialRefusedLaterIsTriedAgain ends the session while the servers refuse the credential.
func TestCredentialRefusedLaterIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var refused atomic.Bool
		var attempts atomic.Int32
		seen := make(states, 9)
		c := srv.Client(t, alice, seen.option(), protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := srv.Dial(network, address, timeout)
			if refused.Load() {
				attempts.Add(1)
				conn = misspelling{conn}
			}
			return conn, err
		}))
		seen.require(t, protocol.Connected)
		refused.Store(true)
		srv.ExpireSession(session(t, c).ID())
		seen.require(t, protocol.Suspended, protocol.Lost)
		_, err := c.Session(within(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, zk.ErrAuthFailed)
		require.Less(t, attempts.Load(), int32(30), "attempts in a minute, at intervals of ten seconds")
		refused.Store(false)
		begin := time.Now()
		s := session(t, c)
		require.LessOrEqual(t, time.Since(begin), s.Timeout()+time.Second)
		seen.require(t, protocol.Connected)
	})
}

// TestCredentialsAreSentAgainOverAConnectionThatFailsToWrite is what blocks zk.Conn for ever, if it
// gets to see it.
func TestCredentialsAreSentAgainOverAConnectionThatFailsToWrite(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for failing := 1; failing <= 4; failing++ {
			var dials atomic.Int32
			c := srv.Client(t, alice, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, address, timeout)
				if n := dials.Add(1); n > 1 && n < 5 {
					conn = &failingConn{Conn: conn, writes: failing}
				}
				return conn, err
			}))
			s := session(t, c)
			for range 3 {
				srv.Embedded().DropConnections()
				require.False(t, exists(t, c, "/nothing"))
			}
			require.Equal(t, s, session(t, c))
		}
	})
}

// A failingConn fails to write after some writes.
type failingConn struct {
	net.Conn
	writes int
}

func (c *failingConn) Write(b []byte) (int, error) {
	if c.writes--; c.writes < 0 {
		return 0, errors.New("injected")
	}
	return c.Conn.Write(b)
}

func TestCutKeepsTheSessionAndWhatItHolds(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, seen := srv.Link(t), srv.Root(t), make(states, 9)
		c := link.Client(t, seen.option())
		s := session(t, c)
		g := hold(t, c, root)
		seen.require(t, protocol.Connected)
		for range 5 {
			link.Cut()
			seen.require(t, protocol.Suspended)
			require.NoError(t, s.Err())
			require.NoError(t, g.Err())
			link.Heal()
			seen.require(t, protocol.Connected)
		}
		require.Equal(t, s, session(t, c))
		require.NoError(t, g.Err())
		require.True(t, exists(t, c, root+"/"+g.Node()))
		require.NoError(t, g.Release(lasting(t)))
	})
}

func TestListenersGetEveryStateInOrder(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		one, two := make(states, 9), make(states, 9)
		c := srv.Client(t, one.option(), two.option())
		s := session(t, c)
		srv.ExpireSession(s.ID())
		wait(t, s.Done())
		session(t, c)
		for _, seen := range []states{one, two} {
			seen.require(t, protocol.Connected, protocol.Suspended, protocol.Lost, protocol.Connected)
		}
		require.NoError(t, closed(c))
		one.require(t, protocol.Closed)
		two.require(t, protocol.Closed)
		require.Empty(t, one)
	})
}

func TestStateIsThatOfTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, seen := srv.Link(t), make(states, 9)
		c := link.Client(t, seen.option())
		hold(t, c, srv.Root(t))
		require.Equal(t, protocol.Connected, c.State())
		seen.require(t, protocol.Connected)

		link.Cut()
		seen.require(t, protocol.Suspended)
		require.Equal(t, protocol.Suspended, c.State())
		require.Equal(t, protocol.Suspended, c.With(protocol.WithACL(zk.WorldACL(zk.PermRead))).State())
		seen.require(t, protocol.Lost)
		require.Equal(t, protocol.Lost, c.State())

		link.Heal()
		session(t, c)
		require.Equal(t, protocol.Connected, c.State())
		require.NoError(t, closed(c))
		require.Equal(t, protocol.Closed, c.State())
	})
}

func TestSessionsThatEndAtOnceAreNotOpenedWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		began, s := time.Now(), session(t, c)
		for range 20 {
			srv.ExpireSession(s.ID())
			wait(t, s.Done())
			s = session(t, c)
		}
		require.Greater(t, time.Since(began), s.Timeout()/2)
		require.Less(t, time.Since(began), 2*s.Timeout())
	})
}

// endSessions ends sessions, so that the pauses before the next ones become long.
func endSessions(t *testing.T, srv *recipestest.Server, c *protocol.Client, sessions int) {
	for range sessions {
		s := session(t, c)
		srv.ExpireSession(s.ID())
		wait(t, s.Done())
	}
}

func TestPauseIsShortAfterASessionThatHasLasted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		endSessions(t, srv, c, 11)
		require.Greater(t, took(func() { session(t, c) }), 100*time.Millisecond)
		time.Sleep(session(t, c).Timeout() + time.Second)
		endSessions(t, srv, c, 1)
		require.Less(t, took(func() { session(t, c) }), 20*time.Millisecond)
	})
}

func TestCloseDuringThePauseBeforeASessionEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		endSessions(t, srv, c, 10)
		synctest.Wait()
		before := link.Count(recipestest.OpConnect)
		require.Zero(t, took(func() { require.NoError(t, c.Close()) }))
		require.Empty(t, strings.Join(ourGoroutines(), "\n\n"))
		require.Equal(t, before, link.Count(recipestest.OpConnect))
	})
}

func TestCloseDuringThePauseAfterARefusedCredentialEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var refused atomic.Bool
		c := srv.Client(t, alice, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := srv.Dial(network, address, timeout)
			if refused.Load() {
				conn = misspelling{conn}
			}
			return conn, err
		}))
		s := session(t, c)
		refused.Store(true)
		endSessions(t, srv, c, 1)
		time.Sleep(s.Timeout() / 2) // the pause lasts for a timeout
		synctest.Wait()
		require.Zero(t, took(func() { require.NoError(t, c.Close()) }))
		require.Empty(t, strings.Join(ourGoroutines(), "\n\n"))
	})
}

func TestListenerMayCallTheClientAndCloseIt(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		var c *protocol.Client
		begun, first, last := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		c = srv.Client(t, protocol.WithStateListener(func(state protocol.State) {
			switch state {
			case protocol.Connected:
				<-begun // c is set
				s, err := recipe.SessionOf(context.Background(), c)
				if err == nil {
					_, err = recipe.Do(context.Background(), s, func(conn *zk.Conn) (string, error) { return conn.Sync("/") })
				}
				first <- errors.Join(err, closed(c))
			case protocol.Closed:
				c.Close() // returns what the first one does
				last <- nil
			}
		}))
		close(begun)
		require.NoError(t, wait(t, first))
		require.NoError(t, wait(t, last))
	})
}

func TestExpiredSessionRunsNothingInTheNext(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		old := session(t, c)
		g := hold(t, c, root)
		link.Cut()
		requireSoon(t, func() bool { return old.Conn().State() != zk.StateHasSession }, "suspended")

		// More than zk.Conn queues, and both ways to ask for something.
		var calls sync.WaitGroup
		errs := make(chan error, 40)
		for i := range 20 {
			node := root + "/zombie" + string(rune('a'+i))
			calls.Go(func() { _, err := create(old, node, zk.FlagEphemeral)(old.Conn()); errs <- err })
			calls.Go(func() {
				_, err := recipe.Do(context.Background(), old, create(old, node, zk.FlagEphemeral))
				errs <- err
			})
		}
		srv.ExpireSession(old.ID())
		link.Heal()
		wait(t, old.Done())
		calls.Wait()
		close(errs)
		for err := range errs {
			require.Error(t, err)
		}
		require.ErrorIs(t, old.Err(), protocol.ErrLost)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		_, err := recipe.Do(t.Context(), old, func(*zk.Conn) (int, error) { t.Error("called"); return 0, nil })
		require.ErrorIs(t, err, protocol.ErrLost)

		next := session(t, c)
		require.NotEqual(t, old.ID(), next.ID())
		children, _, err := next.Conn().Children(next.Path(root))
		if !errors.Is(err, zk.ErrNoNode) { // an empty container may be gone
			require.NoError(t, err)
		}
		require.Empty(t, children)
		require.NoError(t, next.Err())
	})
}

func TestAnswersMoveTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		for range 30 {
			time.Sleep(time.Second)
			require.Greater(t, time.Until(s.Deadline()), s.Timeout()/2, "nothing is held")
		}
		g := hold(t, c, root)
		require.Greater(t, time.Until(s.Deadline()), s.Timeout()/4, "the last ping may be a third old, and a third not reported")
		time.Sleep(s.Timeout() / 2)
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			require.GreaterOrEqual(t, time.Until(s.Deadline()), s.Timeout()*5/12)
			require.LessOrEqual(t, time.Until(s.Deadline()), s.Timeout()*2/3)
		}
		require.NoError(t, g.Release(lasting(t)))
	})
}

func TestWithSharesTheSessionsAndTheirEnd(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		view := c.With(protocol.WithACL(zk.WorldACL(zk.PermRead)), protocol.WithLogger(slog.New(slog.DiscardHandler)),
			protocol.WithBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }))
		require.Equal(t, session(t, c).ID(), session(t, view).ID())
		require.Same(t, session(t, view), session(t, view))
		require.NoError(t, view.Close())
		_, err := c.Session(t.Context())
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}

func TestWithOfNoClientIsReportedByTheFirstOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []*protocol.Client{nil, new(protocol.Client)} {
		view := c.With(protocol.WithLogger(slog.Default()), protocol.WithACL(nil))
		_, err := view.Session(t.Context())
		require.ErrorContains(t, err, "Connect")
		_, err = lineAt(view, "/line").Enter(t.Context(), request)
		require.ErrorContains(t, err, "Connect")
	}
}

func TestBadOptionOfWithIsReportedByTheFirstOperation(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		for _, o := range []protocol.Option{nil, protocol.WithACL(nil), protocol.WithBackOff(nil), protocol.WithLogger(nil), protocol.WithObserver(nil)} {
			bad := c.With(o)
			_, err := bad.Session(t.Context())
			require.Error(t, err)
			_, err = lineAt(bad, root).Enter(t.Context(), request)
			require.Error(t, err)
			_, err = lineAt(bad, root).Contenders(t.Context())
			require.Error(t, err)
			require.Error(t, lineAt(bad, root).Break(t.Context(), "lock-0000000001"))
		}
		require.NoError(t, hold(t, c, root).Release(lasting(t)), "the client itself is sound")
	})
}
