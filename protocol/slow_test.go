package protocol_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// overSlow is a way through link with that many bytes a second, each way.
func overSlow(link *recipestest.Link, rate int) protocol.ConnectOption {
	takes := func(n int) { time.Sleep(time.Duration(n) * time.Second / time.Duration(rate)) }
	return suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
		return suite.Wire{
			Conn:    conn,
			OnWrite: func(p []byte) (int, error) { takes(len(p)); return conn.Write(p) },
			OnRead: func(p []byte) (int, error) {
				n, err := conn.Read(p[:min(len(p), 1400)])
				takes(n)
				return n, err
			},
		}
	})
}

// TestLongRequestsAndRepliesOverASlowLinkLoseNothing sends requests that take 4.5 of 10 s, during
// which nothing else passes. That can be more than the trust that is left when they begin. After a
// resumption it is less.
func TestLongRequestsAndRepliesOverASlowLinkLoseNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t, overSlow(link, 200_000))
		s := suite.Session(t, c)
		suite.Got(s.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll)))(t)
		g := suite.Hold(t, c, root+"/held")

		for range 12 { // in all phases
			time.Sleep(time.Minute + time.Second/10)
			connects := link.Count(recipestest.OpConnect)
			suite.Got(recipe.Do(suite.Lasting(t), s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(root, make([]byte, 900_000), -1) }))(t)
			time.Sleep(time.Minute)
			data := suite.Got(recipe.Do(suite.Lasting(t), s, func(c *zk.Conn) ([]byte, error) { data, _, err := c.Get(root); return data, err }))(t)
			require.Len(t, data, 900_000)
			require.LessOrEqual(t, link.Count(recipestest.OpConnect), connects+6, "connections")
			require.NoError(t, g.Err())
		}

		suite.Release(t, g)
	})
}

// TestReplyThatTakesLongerThanTrustLosesNothing reads for 7.5 of 10 s, after a quorum has agreed to
// a write. The client leaves the connection before trust runs out, because the next connection
// renews trust before it reads.
func TestReplyThatTakesLongerThanTrustLosesNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		suite.Got(suite.Session(t, srv.Client(t)).Conn().Create(root, make([]byte, 900_000), 0, zk.WorldACL(zk.PermAll)))(t)
		c := link.Client(t, overSlow(link, 120_000))
		s := suite.Session(t, c)
		g := suite.Hold(t, c, root+"/held")
		suite.Wait(t, link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)) // a quorum has agreed

		ctx := suite.Within(t, time.Minute)
		_, err := recipe.Do(ctx, s, func(c *zk.Conn) ([]byte, error) { data, _, err := c.Get(root); return data, err })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, g.Err())
		suite.Release(t, g)
	})
}

// TestSlowQuorumLosesNothing delays every write by a fifth of the timeout, and then by a quarter.
func TestSlowQuorumLosesNothing(t *testing.T) {
	for _, timeout := range []time.Duration{2 * time.Second, 10 * time.Second} {
		suite.Run(t, timeout.String(), func(t *testing.T, srv *recipestest.Server) {
			root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
			link.Move(f)
			c := link.Client(t, protocol.WithSessionTimeout(timeout))
			require.Equal(t, timeout, suite.Session(t, c).Timeout())
			g := suite.Hold(t, c, root)
			time.Sleep(timeout)
			f.Lag(timeout / 5)
			time.Sleep(20 * timeout)
			require.NoError(t, g.Err())
			require.LessOrEqual(t, link.Count(recipestest.OpConnect), 2, "connections, after which it is known to be slow")
			f.Lag(timeout / 4)
			time.Sleep(20 * timeout)
			require.NoError(t, g.Err())
			f.Lag(0)
			suite.Release(t, g)
		})
	}
}

// TestConnectionsThatEndAtOnceArePaced uses a server that answers the handshake and a request or
// two, and hangs up.
func TestConnectionsThatEndAtOnceArePaced(t *testing.T) {
	exists := func(conn *zk.Conn) error { _, _, err := conn.Exists("/"); return err }
	sync := func(conn *zk.Conn) error { _, err := conn.Sync("/"); return err }

	for name, test := range map[string]struct {
		spoil   func(net.Conn) suite.Wire
		request func(*zk.Conn) error
	}{
		"credential refused":       {misspelling, exists},
		"answer and hang-up":       {curt, exists},
		"leader's answer, hang-up": {curt, sync},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			link := srv.Link(t)
			var spoilt atomic.Bool
			dial := func(network, _ string, timeout time.Duration) (net.Conn, error) {
				time.Sleep(time.Millisecond)
				return link.Dial(network, srv.ConnectString(), timeout)
			}
			c := connect(t, "a:1,b:2,c:3", alice, suite.Over(dial, func(conn net.Conn) suite.Wire {
				if spoilt.Load() {
					return test.spoil(conn)
				}
				return suite.Wire{Conn: conn}
			}))
			s := suite.Session(t, c)
			before := link.Count(recipestest.OpConnect)
			spoilt.Store(true)
			suite.Blip(link)
			ctx := suite.Within(t, 2*time.Second)
			var err error
			for err == nil {
				_, err = recipe.Do(ctx, s, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, test.request(conn) })
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, link.Count(recipestest.OpConnect)-before, 60, "connections in 2 s")
			require.NoError(t, s.Err())
			if name == "credential refused" {
				require.ErrorIs(t, err, zk.ErrAuthFailed)
			}
			spoilt.Store(false)
			require.NoError(t, s.Sync(suite.Lasting(t), "/"))
			require.NoError(t, c.Close())
		})
	}
}

// misspelling spoils the scheme of credentials, which the server then does not know.
func misspelling(conn net.Conn) suite.Wire {
	return suite.Wire{Conn: conn, OnWrite: func(p []byte) (int, error) {
		return conn.Write(bytes.ReplaceAll(p, []byte("digest"), []byte("dogest")))
	}}
}

// curt ends a connection after three reads.
func curt(conn net.Conn) suite.Wire {
	reads := 3
	return suite.Wire{Conn: conn, OnRead: func(p []byte) (int, error) {
		if reads--; reads < 0 {
			conn.Close()
			return 0, net.ErrClosed
		}
		return conn.Read(p)
	}}
}

// TestSlowLinkGrantsSoon takes a free lock at all phases of the pings. An answer takes so long
// that after each listing less of trust is left than it should be when something is granted.
func TestSlowLinkGrantsSoon(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		timeout := suite.Session(t, c).Timeout()
		link.Delay(timeout * 775 / 10000)
		for phase := range 40 {
			time.Sleep(2*timeout + time.Duration(phase)*timeout/30)
			began := time.Now()
			g := suite.Hold(t, c, root)
			require.Less(t, time.Since(began), timeout, "phase %d", phase)
			suite.Release(t, g)
		}
	})
}

// TestWhatIsHeldIsConfirmedBeforeOtherRequests has requests wait for a connection that comes more
// than half the timeout after a quorum has last agreed to a write. A long one among them would keep
// a quorum from confirming the lease in time.
func TestWhatIsHeldIsConfirmedBeforeOtherRequests(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		var mu sync.Mutex
		var newest net.Conn
		var sent []recipestest.Op // over the newest connection
		c := link.Client(t, protocol.WithSessionTimeout(10*time.Second), suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
			mu.Lock()
			if conn != newest {
				newest, sent = conn, nil
			}
			sent = append(sent, suite.OpOf(p))
			mu.Unlock()
			return conn.Write(p)
		}))
		s := suite.Session(t, c)
		g := suite.Hold(t, c, root)
		time.Sleep(time.Minute)
		suite.Wait(t, link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)) // a quorum has agreed
		time.Sleep(2200 * time.Millisecond)

		link.Cut()
		time.Sleep(100 * time.Millisecond) // or requests would be handed to zk.Conn, which keeps them
		var reads sync.WaitGroup
		for range 20 {
			reads.Go(func() {
				_, err := recipe.Do(t.Context(), s, func(c *zk.Conn) (bool, error) { there, _, err := c.Exists(root); return there, err })
				assert.NoError(t, err)
			})
		}

		time.Sleep(3 * time.Second)
		link.Heal()
		reads.Wait()

		require.NoError(t, g.Err())
		mu.Lock()
		written, read := slices.Index(sent, recipestest.OpDelete), slices.Index(sent, recipestest.OpExists)
		mu.Unlock()
		require.GreaterOrEqual(t, written, 0)
		require.Greater(t, read, written)
		suite.Release(t, g)
	})
}

// TestHolderSurvivesBlipsOfEveryPhase begins a fault at each phase of the cycle of proofs. The
// lengths, in twelfths of the timeout, are the longest that are survived at all phases. After a cut
// the pause before the next attempt to connect is random.
func TestHolderSurvivesBlipsOfEveryPhase(t *testing.T) {
	stall, cut := (*recipestest.Link).Stall, (*recipestest.Link).Cut

	for _, blip := range []struct {
		name   string
		begin  func(*recipestest.Link)
		delay  time.Duration
		length float64
	}{
		{"cut", cut, time.Millisecond, 4},
		{"cut of a slow link", cut, 150 * time.Millisecond, 3.25},
		{"stall", stall, time.Millisecond, 4.75},
		{"stall of a slow link", stall, 150 * time.Millisecond, 4.25},
		{"no leader", (*recipestest.Link).Isolate, time.Millisecond, 4.75},
		{"requests lost", (*recipestest.Link).StallRequests, time.Millisecond, 4.75},
		{"replies lost", (*recipestest.Link).StallReplies, time.Millisecond, 4.75},
	} {
		suite.Run(t, blip.name, func(t *testing.T, srv *recipestest.Server) {
			link, root := srv.Link(t), srv.Root(t)
			c := link.Client(t)
			link.Delay(blip.delay)
			twelfth := suite.Session(t, c).Timeout() / 12
			g := suite.Hold(t, c, root)
			for phase := 0; phase < 28; phase += suite.Size(1, 4) {
				time.Sleep(24 * twelfth)
				awaitWrite(t, link)
				time.Sleep(time.Duration(phase) * twelfth / 4)
				blip.begin(link)
				time.Sleep(time.Duration(blip.length * float64(twelfth)))
				link.Heal()
				time.Sleep(12 * twelfth)
				require.NoError(t, g.Err(), "phase %d", phase)
			}
			suite.Release(t, g)
		})
	}
}

// awaitWrite waits until a write to renew trust is sent.
func awaitWrite(t *testing.T, link *recipestest.Link) {
	suite.Wait(t, link.Sent(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1))
}

// TestQuorumThatSuddenlySlowsDownLosesNothing makes writes take almost a quarter of the timeout,
// without notice.
func TestQuorumThatSuddenlySlowsDownLosesNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		link.Move(f)
		link.Delay(time.Millisecond)

		for phase := 0; phase < 28; phase += suite.Size(1, 4) {
			c := link.Client(t)
			twelfth := suite.Session(t, c).Timeout() / 12
			g := suite.Hold(t, c, root)
			time.Sleep(24 * twelfth)
			awaitWrite(t, link)
			time.Sleep(time.Duration(phase) * twelfth / 4)
			f.Lag(11 * twelfth / 4)
			time.Sleep(36 * twelfth)
			f.Lag(0)
			require.NoError(t, g.Err(), "phase %d", phase)
			suite.Release(t, g)
			require.NoError(t, c.Close())
		}
	})
}

// TestRequestsAtRest counts all that a session sends in ten minutes, pings included.
func TestRequestsAtRest(t *testing.T) {
	for leases, want := range map[int]struct{ requests, writes int }{
		0:  {180, 0}, // a ping every third of the timeout
		1:  {480, 120},
		50: {480, 120},
	} {
		suite.Run(t, fmt.Sprint(leases, " leases"), func(t *testing.T, srv *recipestest.Server) {
			link, root := srv.Link(t), srv.Root(t)
			c := link.Client(t, protocol.WithSessionTimeout(10*time.Second))
			require.Equal(t, 10*time.Second, suite.Session(t, c).Timeout())
			var held []*recipe.Grant
			for i := range leases {
				held = append(held, suite.Hold(t, c, fmt.Sprint(root, "/", i)))
			}
			time.Sleep(time.Minute + 100*time.Millisecond)

			requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
			syncs, writes := link.Count(recipestest.OpSync), link.Count(recipestest.OpDelete)
			time.Sleep(10 * time.Minute)
			requests, pings = link.Count(recipestest.OpAny)-requests, link.Count(recipestest.OpPing)-pings
			syncs, writes = link.Count(recipestest.OpSync)-syncs, link.Count(recipestest.OpDelete)-writes
			require.Equal(t, want.requests, requests+pings)
			require.Equal(t, want.writes, writes)
			require.Equal(t, requests, syncs+writes)
			for _, g := range held {
				suite.Release(t, g)
			}
		})
	}
}

// TestRefusedProofsArePaced calls a session that has been idle, so that a write is due just after a
// sync. In virtual time both are sent at the same moment.
func TestRefusedProofsArePaced(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s := suite.Session(t, link.Client(t))
		time.Sleep(time.Minute)
		link.Fail(recipestest.OpDelete, "", int32(zkwire.CodeThrottled), 1000)
		require.Error(t, s.Fence(suite.Within(t, time.Second)))
		require.Less(t, link.Count(recipestest.OpDelete), 30)
	})
}

// TestGrantAfterAnIdleWait grants a lock to a waiter at each phase of the pings. Until then the
// leader has learnt of the session from pings alone.
func TestGrantAfterAnIdleWait(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		holder, c := srv.Client(t), link.Client(t)
		link.Delay(time.Millisecond)
		s := suite.Session(t, c)
		twelfth := s.Timeout() / 12

		for wait := range 60 {
			held := suite.Hold(t, holder, root)
			granted := suite.Later(func() *recipe.Grant { return suite.Hold(t, c, root) })
			time.Sleep(2*twelfth + time.Duration(wait)*twelfth/4)
			suite.Release(t, held)
			g := suite.Wait(t, granted)
			require.Greater(t, time.Until(s.Deadline()), twelfth*29/10, "wait %d", wait)

			for range 40 {
				require.Greater(t, time.Until(s.Deadline()), 2*twelfth, "wait %d", wait)
				time.Sleep(twelfth / 5)
			}

			for range 40 {
				require.Greater(t, time.Until(s.Deadline()), twelfth*49/10, "wait %d", wait)
				time.Sleep(twelfth / 5)
			}

			suite.Release(t, g)
		}
	})
}

// TestPingsGoOnWhileNothingIsHeld reads now and then. If reads replaced pings, contacts could be
// further apart than pings when a contender's turn comes.
func TestPingsGoOnWhileNothingIsHeld(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		pings := link.Count(recipestest.OpPing)
		for range 120 {
			time.Sleep(s.Timeout() / 12)
			suite.ReadAt(t, s.Conn().Exists, "/")
		}
		require.InDelta(t, 30, link.Count(recipestest.OpPing)-pings, 1)
	})
}
