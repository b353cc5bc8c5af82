package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestCallsKeepTheirDeadlineAtASilentServerAndTheSessionIsResumed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		g := hold(t, c, root)
		link.Stall()
		time.AfterFunc(3*time.Second, link.Heal)
		read := func(conn *zk.Conn) (bool, error) { found, _, err := conn.Exists(s.Path(root)); return found, err }
		for range 4 {
			d := took(func() {
				_, err := recipe.Do(within(t, 500*time.Millisecond), s, read)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				_, err = lineAt(c, root).Enter(within(t, 0), request)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
			require.InDelta(t, 0.5, d.Seconds(), 0.1)
		}
		found, err := recipe.Do(within(t, 5*time.Second), s, read)
		require.NoError(t, err)
		require.True(t, found)
		require.NoError(t, g.Err(), "3 s of 10 s were silent")
		require.Same(t, s, session(t, c))
		require.NoError(t, g.Release(lasting(t)))
	})
}

// twoWays are two links to one server, as to two members of an ensemble.
type twoWays struct {
	links [2]*recipestest.Link
	last  atomic.Int32 // which one was dialled last
}

func overTwoWays(t *testing.T, srv *recipestest.Server) (*protocol.Client, *twoWays) {
	w := &twoWays{links: [2]*recipestest.Link{srv.Link(t), srv.Link(t)}}
	return connect(t, "a:1,b:2", protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		at := int32(strings.Index("ab", address[:1]))
		w.last.Store(at)
		return w.links[at].Dial(network, srv.ConnectString(), timeout)
	})), w
}

// used returns the link that was dialled last, and the other one.
func (w *twoWays) used() (used, other *recipestest.Link) {
	at := w.last.Load()
	return w.links[at], w.links[1-at]
}

func TestSilentServerIsLeftForAnother(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		root, s := srv.Root(t), session(t, c)
		g := hold(t, c, root)
		for range 4 {
			silent, _ := ways.used()
			silent.Stall()
			require.Less(t, took(func() { require.True(t, exists(t, c, root)) }), s.Timeout()/2)
			silent.Heal()
			time.Sleep(s.Timeout())
			require.NoError(t, g.Err())
		}
		require.NoError(t, g.Release(lasting(t)))
		require.Same(t, s, session(t, c))
		require.NoError(t, c.Close())
	})
}

func TestServersThatWereSlowAreLeftInTimeOnceTheyAreFast(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		s, g := session(t, c), hold(t, c, srv.Root(t))
		for _, delay := range []time.Duration{s.Timeout() * 8 / 100, 0} {
			for _, l := range ways.links {
				l.Delay(delay)
			}
			time.Sleep(2 * s.Timeout())
		}

		silent, _ := ways.used()
		silent.Stall()
		require.Less(t, took(func() { exists(t, c, "/") }), s.Timeout()*30/100)
		silent.Heal()
		require.NoError(t, g.Release(lasting(t)))
	})
}

// TestServerIsLeftInTimeAfterOneThatHungUp has a first server hang up on a request that was under
// way for long. That says nothing about how long the second one may take.
func TestServerIsLeftInTimeAfterOneThatHungUp(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		s, g := session(t, c), hold(t, c, srv.Root(t))
		time.Sleep(2*s.Timeout() + time.Millisecond) // nothing is under way
		first, second := ways.used()
		lost := make(chan struct{})
		first.At(1, func() { first.Stall(); close(lost) })
		wait(t, lost)
		time.Sleep(s.Timeout() * 15 / 100)
		there := second.Answered(recipestest.OpConnect, 1)
		first.Cut()
		wait(t, there)
		second.Stall()
		first.Heal()
		require.Less(t, took(func() { exists(t, c, "/") }), s.Timeout()*27/100)
		second.Heal()
		require.NoError(t, g.Release(lasting(t)))
	})
}

// TestCallsMadeWhileSuspendedGoOnAfterTheReconnect has them wait while several attempts to connect
// fail.
func TestCallsMadeWhileSuspendedGoOnAfterTheReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s := session(t, link.Client(t))
		link.Cut()
		var answers []<-chan error
		for range 20 {
			answers = append(answers, later(func() error {
				_, err := recipe.Do(context.Background(), s, func(conn *zk.Conn) (string, error) { return conn.Sync("/") })
				return err
			}))
			time.Sleep(100 * time.Millisecond)
		}
		link.Heal()
		for _, answer := range answers {
			require.NoError(t, wait(t, answer))
		}
		require.NoError(t, s.Err())
	})
}

func TestCallsCancelledWhileSuspendedNeverAct(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c, seen := srv.Client(t), make(states, 9)
		away := link.Client(t, seen.option())
		s := session(t, away)
		victim, err := create(s, root, zk.FlagEphemeral)(s.Conn())
		require.NoError(t, err)
		link.Cut()
		seen.require(t, protocol.Connected, protocol.Suspended)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				_, err := recipe.Do(ctx, s, create(s, fmt.Sprintf("%s-%d", root, i), zk.FlagEphemeral))
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				_, err = recipe.Do(ctx, s, func(conn *zk.Conn) (int, error) { return 0, conn.Delete(victim, -1) })
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		cancel()
		calls.Wait()
		before := link.Count(recipestest.OpCreate) + link.Count(recipestest.OpDelete)
		link.Heal()
		seen.require(t, protocol.Connected)
		_, err = s.Conn().Sync("/")
		require.NoError(t, err)
		require.Equal(t, before, link.Count(recipestest.OpCreate)+link.Count(recipestest.OpDelete))
		require.True(t, exists(t, c, root))
		require.NoError(t, s.Conn().Delete(victim, -1))
	})
}

func TestSessionIsLostBeforeTheServerExpiresIt(t *testing.T) {
	for name, fault := range map[string]func(*recipestest.Link){
		"stall":         (*recipestest.Link).Stall,
		"cut":           (*recipestest.Link).Cut,
		"requests lost": (*recipestest.Link).StallRequests,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c := link.Client(t)
				s := session(t, c)
				g := hold(t, c, root)
				time.Sleep(time.Minute)
				deleted := gone(t, srv.Client(t), root+"/"+g.Node())
				fault(link)
				begin := time.Now()
				wait(t, g.Done())
				lost := time.Since(begin)
				require.ErrorIs(t, g.Err(), protocol.ErrLost)
				require.ErrorIs(t, s.Err(), protocol.ErrLost)
				require.Greater(t, lost, s.Timeout()/3)
				require.LessOrEqual(t, lost, s.Timeout()*2/3)
				wait(t, deleted)
				require.GreaterOrEqual(t, time.Since(begin), s.Timeout()*2/3)
				require.Greater(t, time.Since(begin)-lost, s.Timeout()/12, "in which others may not have it yet")
				link.Heal()
				require.NotEqual(t, s.ID(), session(t, c).ID())
			})
		})
	}
}

// TestErrAndDeadlineAgreeToTheNanosecond calls Err at the moment at which trust runs out.
func TestErrAndDeadlineAgreeToTheNanosecond(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		g := hold(t, c, root)
		ctx, cancel := g.Context(t.Context())
		defer cancel()
		time.Sleep(time.Minute)
		link.Stall()
		synctest.Wait() // what the link has let through is taken note of
		end := s.Deadline()
		time.Sleep(time.Until(end) - 1)
		synctest.Wait()
		require.NoError(t, g.Err())
		require.NoError(t, ctx.Err())
		require.Equal(t, end, s.Deadline())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), protocol.ErrLost)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.ErrorIs(t, s.Err(), protocol.ErrLost)
		link.Heal()
		session(t, c)
	})
}

// TestBlipShorterThanTheWindowLosesNothing repeats it, so that nothing adds up.
func TestBlipShorterThanTheWindowLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		g := hold(t, c, root)
		for range 10 {
			for _, fault := range []func(*recipestest.Link){(*recipestest.Link).Stall, (*recipestest.Link).Cut} {
				fault(link)
				time.Sleep(s.Timeout() / 4)
				link.Heal()
				time.Sleep(s.Timeout() / 2)
				require.NoError(t, g.Err())
			}
		}
		require.NoError(t, g.Release(lasting(t)))
	})
}

// After an outage what is held is confirmed before anything else is asked for. Once nothing is held
// any more there is nothing to wait for.
func TestCallsGoOnAtOnceWhenWhatWasHeldIsGivenBackUnconfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		confirming := &suite.Gate{Op: recipestest.OpDelete}
		c := link.Client(t, confirming.Option(link))
		g := hold(t, c, path)
		s := session(t, c)
		link.Stall()
		time.Sleep(s.Timeout()/2 + time.Millisecond)
		confirming.Shut()
		called := later(func() error { return s.Sync(lasting(t), "/") })
		link.Heal()
		suite.Wait(t, link.Answered(recipestest.OpConnect, 2))
		synctest.Wait()
		require.True(t, confirming.Holding())
		require.Empty(t, called)
		began := time.Now()
		released := later(func() error { return g.Release(lasting(t)) })
		require.NoError(t, wait(t, called))
		require.Zero(t, time.Since(began))

		confirming.Open()
		require.NoError(t, wait(t, released))
	})
}

// TestNodesOfALostSessionAreDeletedThoughTheServerStillKnowsIt is an outage of the whole ensemble,
// in which sessions do not age.
func TestNodesOfALostSessionAreDeletedThoughTheServerStillKnowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c := srv.Client(t)
		s := session(t, c)
		g := hold(t, c, root)
		srv.Embedded().Stop()
		wait(t, g.Done())
		time.Sleep(10 * time.Second) // in a long outage the client looks for a server less often
		require.NoError(t, srv.Embedded().Resume())
		begin := time.Now()
		next := hold(t, c, root)
		require.Less(t, time.Since(begin), s.Timeout()/2)
		require.Greater(t, next.Token(), g.Token())
		require.False(t, exists(t, c, root+"/"+g.Node()))
		require.NoError(t, next.Release(lasting(t)))
	})
}

func TestCloseClosesAnOrphanedSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c, other := srv.Client(t), srv.Client(t)
		g := hold(t, c, root)
		srv.Embedded().Stop()
		wait(t, g.Done())
		time.Sleep(time.Minute)
		require.NoError(t, srv.Embedded().Resume())
		require.NoError(t, c.Close())
		require.False(t, exists(t, other, root+"/"+g.Node()))
	})
}

// TestReconnectOvertakesTheCutOfTheOldConnection makes a new connection while the old one is still
// being closed, which takes a while.
func TestReconnectOvertakesTheCutOfTheOldConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		var dial atomic.Value
		dial.Store(link.Dial)
		c := srv.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial.Load().(func(string, string, time.Duration) (net.Conn, error))(network, address, timeout)
			return lingering{conn}, err
		}))
		s := session(t, c)
		g := hold(t, c, root)
		link.Stall()
		dial.Store(srv.Dial)
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())
		require.Same(t, s, session(t, c))
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, c.Close())
		time.Sleep(time.Second) // zk.Conn closes a connection after it has reported its end
	})
}

// A lingering connection is closed at once, but Close takes its time to return.
type lingering struct{ net.Conn }

func (c lingering) Close() error {
	err := c.Conn.Close()
	time.Sleep(100 * time.Millisecond)
	return err
}

func TestSessionThatHoldsNothingSendsNoProofs(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		questions := func() int {
			before := link.Count(recipestest.OpAny)
			time.Sleep(s.Timeout())
			return link.Count(recipestest.OpAny) - before
		}
		require.Zero(t, questions(), "nothing was held yet")
		released, broken := hold(t, c, root+"/a"), hold(t, c, root+"/b")
		require.InDelta(t, 11, questions(), 3, "with those to watch what is held, and make up for seldom pings")
		require.NoError(t, released.Release(lasting(t)))
		require.InDelta(t, 8, questions(), 1, "one is held still")
		require.NoError(t, lineAt(c, root+"/b").Break(lasting(t), broken.Node()))
		wait(t, broken.Done())
		require.ErrorIs(t, broken.Err(), protocol.ErrLost)
		require.ErrorIs(t, broken.Release(lasting(t)), protocol.ErrLost)

		holder := hold(t, srv.Client(t), root+"/c")
		_, err := lineAt(c, root+"/c").Enter(within(t, s.Timeout()), request)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = lineAt(c, root+"/c").Enter(lasting(t), line.Request{Kind: request.Kind, Try: true})
		require.ErrorIs(t, err, line.ErrBusy)
		_, err = lock.NewSimple(c, root+"/d").Lock(within(t, 0))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		claim, err := lock.NewSimple(c, root+"/d").Lock(lasting(t))
		require.NoError(t, err)
		require.NoError(t, claim.Unlock(lasting(t)))
		time.Sleep(time.Second)
		require.Zero(t, questions(), "all is given back, lost or given up")
		require.NoError(t, holder.Release(lasting(t)))
	})
}

// TestTrustIsRenewedWithoutPermissionsOnTheChroot uses a chroot whose ACL allows to create and
// delete nodes below one node only.
func TestTrustIsRenewedWithoutPermissionsOnTheChroot(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		owner := session(t, srv.Client(t, alice, protocol.WithACL(zk.WorldACL(zk.PermAll))))
		_, err := owner.EnsurePath(lasting(t), root+"/open")
		require.NoError(t, err)
		lock := func(perms int32) {
			_, err := owner.Conn().SetACL(owner.Path(root), append(zk.WorldACL(perms), zk.DigestACL(zk.PermAll, "alice", "secret")...), -1)
			if !errors.Is(err, zk.ErrNoNode) { // in the end, as all are empty containers
				require.NoError(t, err)
			}
		}
		lock(zk.PermRead)
		defer lock(zk.PermAll)
		link := srv.Link(t)
		c := connect(t, srv.ConnectString()+root, protocol.WithDialer(link.Dial))
		keeps := func() bool {
			timeout := session(t, c).Timeout()
			g := hold(t, c, "/open/lock")
			before, begin := link.Count(recipestest.OpAny), time.Now()
			select {
			case <-g.Done():
				return false
			case <-time.After(timeout * 6 / 5):
			}
			questions := link.Count(recipestest.OpAny) - before
			require.Less(t, questions, int(24*time.Since(begin)/timeout), "twelve per timeout")
			return g.Release(lasting(t)) == nil
		}
		// Once, it may have been a server that took its time.
		require.True(t, inThree(keeps), "lost each time")
	})
}

// TestCauseThatLooksLikeAnOutageIsNotRepeated cancels with the cause that an errgroup gives whose
// other member has met an outage, while an acquisition is under way.
func TestCauseThatLooksLikeAnOutageIsNotRepeated(t *testing.T) {
	for _, cause := range []error{nil, zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrNoNode} {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(fmt.Sprint(want, " by ", cause), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *recipestest.Server) {
					link, root := srv.Link(t), srv.Root(t)
					c := link.Client(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					if errors.Is(want, context.DeadlineExceeded) {
						late, stop := context.WithTimeoutCause(t.Context(), time.Second, cause)
						defer stop()
						ctx, cancel = late, func(error) { <-late.Done() }
					}
					link.At(1, func() { cancel(cause); link.Cut() })
					_, err := lineAt(c, root).Enter(ctx, request)
					require.ErrorIs(t, err, want)
					link.Heal()
					time.Sleep(3 * time.Second)
					before := link.Count(recipestest.OpAny)
					time.Sleep(10 * time.Second)
					require.Equal(t, before, link.Count(recipestest.OpAny), "it has come to rest")
					cancel(nil)
				})
			})
		}
	}
}

// networks are the states in which Close has to work.
var networks = map[string]func(*recipestest.Link, *recipe.Session){
	"sound":    func(*recipestest.Link, *recipe.Session) {},
	"cut":      func(l *recipestest.Link, _ *recipe.Session) { l.Cut() },
	"cut long": func(l *recipestest.Link, _ *recipe.Session) { l.Cut(); time.Sleep(time.Second) },
	"silent":   func(l *recipestest.Link, _ *recipe.Session) { l.Stall() },
	"silent handshake": func(l *recipestest.Link, _ *recipe.Session) {
		l.Cut()
		time.Sleep(time.Second)
		l.Stall()
		time.Sleep(500 * time.Millisecond)
	},
	"mute":      func(l *recipestest.Link, _ *recipe.Session) { l.StallReplies() },
	"deaf":      func(l *recipestest.Link, _ *recipe.Session) { l.StallRequests() },
	"slow":      func(l *recipestest.Link, _ *recipe.Session) { l.Delay(5 * time.Second) },
	"lost":      func(l *recipestest.Link, s *recipe.Session) { l.Stall(); <-s.Done() },
	"lost, cut": func(l *recipestest.Link, s *recipe.Session) { l.Cut(); <-s.Done() },
	"calls in the queue": func(l *recipestest.Link, s *recipe.Session) {
		l.Cut()
		time.Sleep(time.Second)
		for range 40 {
			go s.Conn().Sync("/")
		}
		l.Stall()
		time.Sleep(time.Second)
	},
}

func TestCloseEndsEverythingWithinTwoSeconds(t *testing.T) {
	for name, fault := range networks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c := link.Client(t)
				s := session(t, c)
				g := hold(t, c, root)
				waiting := later(func() error { _, err := lineAt(c, root).Enter(context.Background(), request); return err })
				time.Sleep(time.Minute)
				fault(link, s)
				synctest.Wait()

				begin := time.Now()
				var closed []<-chan error
				for range 3 {
					closed = append(closed, later(c.Close))
				}
				require.ErrorIs(t, wait(t, waiting), protocol.ErrClosed)
				require.Zero(t, time.Since(begin), "a waiter is told at once")
				want := wait(t, closed[0])
				require.Equal(t, want, wait(t, closed[1]))
				require.Equal(t, want, wait(t, closed[2]))
				require.Equal(t, want, c.Close())
				require.LessOrEqual(t, time.Since(begin), 2*time.Second)
				require.Empty(t, strings.Join(ourGoroutines(), "\n\n"))
				if name == "sound" {
					require.NoError(t, want)
					require.Zero(t, time.Since(begin))
				}
				require.ErrorIs(t, g.Err(), protocol.ErrLost)
				require.Error(t, s.Err())
			})
		})
	}
}

// TestCloseDuringTheFirstHandshakeLeavesNothing closes while Connect waits.
func TestCloseDoesNotWaitForADialerThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var hang atomic.Bool
		c := srv.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			if hang.Load() {
				time.Sleep(timeout)
				return nil, errors.New("timeout")
			}
			return srv.Dial(network, address, timeout)
		}))
		hold(t, c, srv.Root(t))
		hang.Store(true)
		srv.Embedded().DropConnections()
		time.Sleep(300 * time.Millisecond)
		d := took(func() { require.Error(t, c.Close(), "the session could not be closed") })
		require.LessOrEqual(t, d, 2*time.Second)
	})
}

func TestAfterCloseEverythingReturnsErrClosedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		s := session(t, c)
		g := hold(t, c, root)
		require.NoError(t, c.Close())
		packets := link.Packets()
		background := context.Background()
		nothing := func(*zk.Conn) (int, error) { t.Error("called"); return 0, nil }
		d := took(func() {
			_, err := c.Session(background)
			require.ErrorIs(t, err, protocol.ErrClosed)
			_, err = c.With().Session(background)
			require.ErrorIs(t, err, protocol.ErrClosed)
			_, err = recipe.Do(background, s, nothing)
			require.ErrorIs(t, err, protocol.ErrClosed)
			_, err = s.EnsurePath(background, root+"/a")
			require.ErrorIs(t, err, protocol.ErrClosed)
			_, err = lineAt(c, root).Enter(background, request)
			require.ErrorIs(t, err, protocol.ErrClosed)
			_, err = lineAt(c, root).Contenders(background)
			require.ErrorIs(t, err, protocol.ErrClosed)
			require.ErrorIs(t, lineAt(c, root).Break(background, "lock-0000000001"), protocol.ErrClosed)
			_, err = lock.NewSimple(c, root).Lock(background)
			require.ErrorIs(t, err, protocol.ErrClosed)
			require.ErrorIs(t, g.Release(background), protocol.ErrClosed)
			require.ErrorIs(t, g.Err(), protocol.ErrLost)
			require.ErrorIs(t, s.Err(), protocol.ErrClosed)
			wait(t, s.Done())
			wait(t, g.Done())
			require.NoError(t, c.Close())
		})
		require.Zero(t, d)
		time.Sleep(time.Minute)
		require.Equal(t, packets, link.Packets(), "nothing was sent after Close")
	})
}

func TestCloseDeletesWhatWasHeldAtOnce(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c, other := srv.Client(t), srv.Client(t)
		hold(t, c, root)
		next := later(func() *recipe.Grant {
			g, err := lineAt(other, root).Enter(context.Background(), request)
			if err != nil {
				t.Error(err)
			}
			return g
		})
		require.NoError(t, closed(c))
		require.NoError(t, wait(t, next).Release(lasting(t)))
	})
}

// TestClientReturnsToAServerThatHasLostItsData starts a server again that refuses clients which
// have seen more than it knows.
func TestClientReturnsToAServerThatHasLostItsData(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		fresh := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		var dial atomic.Value
		dial.Store(srv.Dial)
		c := srv.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			return dial.Load().(func(string, string, time.Duration) (net.Conn, error))(network, address, timeout)
		}))
		old := session(t, c)
		g := hold(t, c, root)
		dial.Store(fresh.Dial)
		srv.Embedded().DropConnections()
		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.NotSame(t, old, session(t, c))
		g = hold(t, c, fresh.Root(t))
		require.NoError(t, g.Release(lasting(t)))
	})
}
