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
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// twoWays are two links to one server, which stand for two members of an ensemble.
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
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		root, s := srv.Root(t), suite.Session(t, c)
		g := suite.Hold(t, c, root)

		for range 4 {
			silent, _ := ways.used()
			silent.Stall()
			require.Less(t, took(func() { require.True(t, suite.Exists(t, c, root)) }), s.Timeout()/2)
			silent.Heal()
			time.Sleep(s.Timeout())
			require.NoError(t, g.Err())
		}

		require.NoError(t, g.Release(suite.Lasting(t)))
		require.Same(t, s, suite.Session(t, c))
		require.NoError(t, c.Close())
	})
}

func TestServersThatWereSlowAreLeftInTimeOnceTheyAreFast(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		s, g := suite.Session(t, c), suite.Hold(t, c, srv.Root(t))

		for _, delay := range []time.Duration{s.Timeout() * 8 / 100, 0} {
			for _, l := range ways.links {
				l.Delay(delay)
			}

			time.Sleep(2 * s.Timeout())
		}

		silent, _ := ways.used()
		silent.Stall()
		require.Less(t, took(func() { suite.Exists(t, c, "/") }), s.Timeout()*30/100)
		silent.Heal()
		require.NoError(t, g.Release(suite.Lasting(t)))
	})
}

// TestServerIsLeftInTimeAfterOneThatHungUp has a first server hang up on a request that was under
// way for long. That says nothing about the next server.
func TestServerIsLeftInTimeAfterOneThatHungUp(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, ways := overTwoWays(t, srv)
		s, g := suite.Session(t, c), suite.Hold(t, c, srv.Root(t))
		time.Sleep(2*s.Timeout() + time.Millisecond) // nothing is under way
		first, second := ways.used()
		lost := make(chan struct{})
		first.At(1, func() { first.Stall(); close(lost) })
		suite.Wait(t, lost)
		time.Sleep(s.Timeout() * 15 / 100)
		there := second.Answered(recipestest.OpConnect, 1)
		first.Cut()
		suite.Wait(t, there)
		second.Stall()
		first.Heal()
		require.Less(t, took(func() { suite.Exists(t, c, "/") }), s.Timeout()*27/100)
		second.Heal()
		require.NoError(t, g.Release(suite.Lasting(t)))
	})
}

// After an outage, a session that holds a lock is confirmed before other requests. Once it holds
// nothing, the requests go on at once.
func TestCallsGoOnAtOnceWhenWhatWasHeldIsGivenBackUnconfirmed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		confirming := &suite.Gate{Op: recipestest.OpDelete}
		c := link.Client(t, confirming.Option(link))
		g := suite.Hold(t, c, path)
		s := suite.Session(t, c)
		link.Stall()
		time.Sleep(s.Timeout()/2 + time.Millisecond)
		confirming.Shut()
		called := suite.Later(func() error { return s.Sync(suite.Lasting(t), "/") })
		link.Heal()
		suite.Wait(t, link.Answered(recipestest.OpConnect, 2))
		synctest.Wait()
		require.True(t, confirming.Holding())
		require.Empty(t, called)
		began := time.Now()
		released := suite.Later(func() error { return g.Release(suite.Lasting(t)) })
		require.NoError(t, suite.Wait(t, called))
		require.Zero(t, time.Since(began))

		confirming.Open()
		require.NoError(t, suite.Wait(t, released))
	})
}

// TestNodesOfALostSessionAreDeletedThoughTheServerStillKnowsIt is an outage of the whole ensemble,
// in which sessions do not age.
func TestNodesOfALostSessionAreDeletedThoughTheServerStillKnowsIt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c := srv.Client(t)
		s := suite.Session(t, c)
		g := suite.Hold(t, c, root)
		srv.Embedded().Stop()
		suite.Wait(t, g.Done())
		time.Sleep(10 * time.Second) // in a long outage the client looks for a server less often
		require.NoError(t, srv.Embedded().Resume())
		begin := time.Now()
		next := suite.Hold(t, c, root)
		require.Less(t, time.Since(begin), s.Timeout()/2)
		require.Greater(t, next.Token(), g.Token())
		require.False(t, suite.Exists(t, c, root+"/"+g.Node()))
		require.NoError(t, next.Release(suite.Lasting(t)))
	})
}

// TestReconnectOvertakesTheCutOfTheOldConnection makes a new connection while the old one is still
// being closed, which takes a while.
func TestReconnectOvertakesTheCutOfTheOldConnection(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := srv.Client(t, suite.Over(frozenFirst(link.Dial, srv.Dial), func(conn net.Conn) suite.Wire {
			return suite.Wire{Conn: conn, OnClose: func() error {
				err := conn.Close()
				time.Sleep(100 * time.Millisecond)
				return err
			}}
		}))
		s := suite.Session(t, c)
		g := suite.Hold(t, c, root)
		link.Stall()
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())
		require.Same(t, s, suite.Session(t, c))
		require.NoError(t, g.Release(suite.Lasting(t)))
		require.NoError(t, c.Close())
		time.Sleep(time.Second) // zk.Conn closes a connection after it has reported its end
	})
}

// TestTrustIsRenewedWithoutPermissionsOnTheChroot uses a chroot whose ACL allows to create and
// delete nodes below one node only.
func TestTrustIsRenewedWithoutPermissionsOnTheChroot(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		owner := suite.Session(t, srv.Client(t))
		suite.Keep(t, srv.Client(t), root+"/open")
		suite.Got(owner.Conn().SetACL(owner.Path(root), zk.WorldACL(zk.PermRead|zk.PermAdmin), -1))(t)
		c := connect(t, srv.ConnectString()+root, protocol.WithDialer(link.Dial))
		timeout := suite.Session(t, c).Timeout()
		g := suite.Hold(t, c, "/open/lock")
		before := link.Count(recipestest.OpAny)

		time.Sleep(2 * timeout)

		require.NoError(t, g.Err())
		require.Less(t, link.Count(recipestest.OpAny)-before, 2*12, "twelve per timeout")
		suite.Release(t, g)
	})
}

// A network is a link whose dials, and writes to it, may not return before the connection is
// closed.
type network struct {
	*recipestest.Link
	hangs, full atomic.Bool
}

func (n *network) client(t *testing.T) *protocol.Client {
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		if n.hangs.Load() {
			time.Sleep(timeout)
		}
		return n.Dial(network, address, timeout)
	}
	return n.Client(t, suite.Over(dial, func(conn net.Conn) suite.Wire {
		closed := make(chan struct{})
		return suite.Wire{
			Conn: conn,
			OnWrite: func(p []byte) (int, error) {
				if n.full.Load() { // its peer has stopped to read
					<-closed
				}
				return conn.Write(p)
			},
			OnClose: sync.OnceValue(func() error { close(closed); return conn.Close() }),
		}
	}))
}

// full returns what fills the buffers of a network while there are so many calls.
func full(calls int) func(*network, *recipe.Session) {
	return func(n *network, s *recipe.Session) {
		n.full.Store(true)
		for range calls {
			go s.Conn().Get("/")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// networks are the states in which Close has to work.
var networks = map[string]func(*network, *recipe.Session){
	"sound":    func(*network, *recipe.Session) {},
	"cut":      func(n *network, _ *recipe.Session) { n.Cut() },
	"cut long": func(n *network, _ *recipe.Session) { n.Cut(); time.Sleep(time.Second) },
	"silent":   func(n *network, _ *recipe.Session) { n.Stall() },
	"silent handshake": func(n *network, _ *recipe.Session) {
		n.Cut()
		time.Sleep(time.Second)
		n.Stall()
		time.Sleep(500 * time.Millisecond)
	},
	"mute":      func(n *network, _ *recipe.Session) { n.StallReplies() },
	"deaf":      func(n *network, _ *recipe.Session) { n.StallRequests() },
	"slow":      func(n *network, _ *recipe.Session) { n.Delay(5 * time.Second) },
	"lost":      func(n *network, s *recipe.Session) { n.Stall(); <-s.Done() },
	"lost, cut": func(n *network, s *recipe.Session) { n.Cut(); <-s.Done() },
	"calls in the queue": func(n *network, s *recipe.Session) {
		n.Cut()
		time.Sleep(time.Second)
		for range 40 {
			go s.Conn().Sync("/")
		}
		n.Stall()
		time.Sleep(time.Second)
	},
	"full, 1 call":   full(1),
	"full, 17 calls": full(17),
	"full, 40 calls": full(40),
	hanging: func(n *network, _ *recipe.Session) {
		n.hangs.Store(true)
		n.Cut()
		time.Sleep(300 * time.Millisecond)
	},
}

const hanging = "a dialer that does not return"

func TestCloseEndsEverythingWithinTwoSeconds(t *testing.T) {
	for name, fault := range networks {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			n, root := &network{Link: srv.Link(t)}, srv.Root(t)
			c := n.client(t)
			s := suite.Session(t, c)
			g := suite.Hold(t, c, root)
			waiting := suite.Later(func() error { _, err := suite.LineAt(c, root).Enter(context.Background(), suite.Request); return err })
			time.Sleep(time.Minute)
			fault(n, s)
			synctest.Wait()

			begin := time.Now()
			var closed []<-chan error
			for range 3 {
				closed = append(closed, suite.Later(c.Close))
			}
			require.ErrorIs(t, suite.Wait(t, waiting), protocol.ErrClosed)
			require.Zero(t, time.Since(begin), "a waiter is told at once")
			want := suite.Wait(t, closed[0])
			require.Equal(t, want, suite.Wait(t, closed[1]))
			require.Equal(t, want, suite.Wait(t, closed[2]))
			require.Equal(t, want, c.Close())
			require.LessOrEqual(t, time.Since(begin), 2*time.Second)
			if name != hanging {
				require.Empty(t, ourGoroutines(t))
			}
			require.Equal(t, name == "sound", want == nil && time.Since(begin) == 0)
			require.ErrorIs(t, g.Err(), protocol.ErrLost)
			require.Error(t, s.Err())
		})
	}
}

// A user who closes the zk.Conn of a session ends that session. The client opens another
// session, and can be closed.
func TestClosedConnEndsTheSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for _, stalled := range []bool{false, true} {
			link := srv.Link(t)
			c := link.Client(t)
			s := suite.Session(t, c)
			if stalled {
				link.Stall()
			}

			s.Conn().Close()
			suite.Wait(t, s.Done())
			require.ErrorIs(t, s.Err(), protocol.ErrLost)
			if stalled {
				link.Heal()
			}

			require.NotEqual(t, s.ID(), suite.Session(t, c).ID())
			suite.Session(t, c).Conn().Close()
			require.LessOrEqual(t, took(func() { c.Close() }), 2*time.Second)
		}
	})
}

// One of two members is frozen: it accepts connections and says nothing.
func TestFrozenMemberCostsAFewSeconds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		frozen := srv.Link(t)
		frozen.Stall()
		began := time.Now()
		c := srv.Client(t, protocol.WithSessionTimeout(2*time.Minute), protocol.WithDialer(frozenFirst(frozen.Dial, srv.Dial)))
		require.NotNil(t, suite.Session(t, c))
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
	})
}

// frozenFirst dials with first, and then with the other one.
func frozenFirst(first, other zk.Dialer) zk.Dialer {
	var tried atomic.Bool
	return func(network, address string, d time.Duration) (net.Conn, error) {
		if tried.CompareAndSwap(false, true) {
			return first(network, address, d)
		}
		return other(network, address, d)
	}
}

// Waits that end with their ctx leave neither nodes, nor watches on the server, nor goroutines.
func TestWaitsThatAreGivenUpLeaveNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t), srv.Link(t)
		holder := suite.Hold(t, srv.Client(t), path)
		c := link.Client(t)
		s := suite.Session(t, c)
		giveUp := func(rounds int) (left []string) {
			for range rounds {
				var waits suite.Group
				for range 100 {
					waits.Go(func() error {
						ctx := suite.Within(t, time.Second)
						_, err := suite.LineAt(c, path).Enter(ctx, suite.Request)
						if errors.Is(err, context.DeadlineExceeded) {
							return nil
						}
						return fmt.Errorf("not given up: %w", err)
					})
				}
				require.NoError(t, waits.Wait())
				suite.Soon(t, func() bool { return len(suite.Children(t, c, path)) == 1 }, "all are out of line")
			}
			time.Sleep(time.Second) // deletions of nodes end the watches on them, and goroutines stay for a moment
			synctest.Wait()
			watches := suite.Got(watchesOn(srv.Dial, srv.ConnectString()))(t)
			left = []string{watches}
			for _, stack := range ourGoroutines(t) {
				number, _, _ := strings.Cut(stack, " @ ")
				left = append(left, number)
			}
			return left
		}

		left := giveUp(1)
		require.Greater(t, len(left), 1)
		require.Equal(t, left, giveUp(suite.Size(20, 3)))

		packets := link.Count(recipestest.OpSetWatches)
		srv.Embedded().DropConnections()
		suite.Soon(t, func() bool { return s.Conn().State() == zk.StateHasSession }, "back")
		require.Equal(t, left, giveUp(1))
		require.Equal(t, packets+1, link.Count(recipestest.OpSetWatches), "packets to set the watches again")
		suite.Release(t, holder)
	})
}

// An observer or a listener that is being called does not hold up Close.
func TestCloseDoesNotWaitForACallUnderWay(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		release := make(chan struct{})
		c := srv.Client(t, protocol.WithStateListener(func(protocol.State) { <-release }))
		suite.Session(t, c)
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(began), time.Second)
		close(release)
	})
}
