package protocol_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A thin connection carries so many bytes a second, each way.
type thin struct {
	net.Conn
	rate int
}

// overSlow is a way through link with that many bytes a second.
func overSlow(link *recipestest.Link, rate int) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		return &thin{conn, rate}, err
	})
}

func (c *thin) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
	return c.Conn.Write(p)
}

func (c *thin) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 1400)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// TestLongRequestsAndRepliesOverASlowLinkLoseNothing sends requests that take 4.5 of 10 s, during
// which nothing else passes. That may be more than is left of trust when they begin. After a
// resumption it is less.
func TestLongRequestsAndRepliesOverASlowLinkLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t, overSlow(link, 200_000))
		s := session(t, c)
		_, err := s.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		g := hold(t, c, root+"/held")
		for range 12 { // in all phases
			time.Sleep(time.Minute + time.Second/10)
			connects := link.Count(recipestest.OpConnect)
			_, err := recipe.Do(lasting(t), s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(root, make([]byte, 900_000), -1) })
			require.NoError(t, err)
			time.Sleep(time.Minute)
			data, err := recipe.Do(lasting(t), s, func(c *zk.Conn) ([]byte, error) { data, _, err := c.Get(root); return data, err })
			require.NoError(t, err)
			require.Len(t, data, 900_000)
			require.LessOrEqual(t, link.Count(recipestest.OpConnect), connects+6, "connections")
			require.NoError(t, g.Err())
		}
		release(t, g)
	})
}

// TestReplyThatTakesLongerThanTrustLosesNothing reads what takes 7.5 of 10 s, after a quorum has
// agreed to a write. The connection is left before trust runs out, as the next one renews trust
// before it reads.
func TestReplyThatTakesLongerThanTrustLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		_, err := session(t, srv.Client(t)).Conn().Create(root, make([]byte, 900_000), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		c := link.Client(t, overSlow(link, 120_000))
		s := session(t, c)
		g := hold(t, c, root+"/held")
		wait(t, link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)) // a quorum has agreed

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = recipe.Do(ctx, s, func(c *zk.Conn) ([]byte, error) { data, _, err := c.Get(root); return data, err })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, g.Err())
		release(t, g)
	})
}

// TestSlowQuorumLosesNothing delays every write by a fifth of the timeout, and then by a quarter.
func TestSlowQuorumLosesNothing(t *testing.T) {
	for _, timeout := range []time.Duration{2 * time.Second, 10 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
				link.Move(f)
				c := link.Client(t, protocol.WithSessionTimeout(timeout))
				require.Equal(t, timeout, session(t, c).Timeout())
				g := hold(t, c, root)
				time.Sleep(timeout)
				f.Lag(timeout / 5)
				time.Sleep(20 * timeout)
				require.NoError(t, g.Err())
				require.LessOrEqual(t, link.Count(recipestest.OpConnect), 2, "connections, after which it is known to be slow")
				f.Lag(timeout / 4)
				time.Sleep(20 * timeout)
				require.NoError(t, g.Err())
				f.Lag(0)
				release(t, g)
			})
		})
	}
}

// TestConnectionsThatEndAtOnceArePaced uses a server that answers the handshake and a request or
// two, and hangs up.
func TestConnectionsThatEndAtOnceArePaced(t *testing.T) {
	exists := func(conn *zk.Conn) error { _, _, err := conn.Exists("/"); return err }
	sync := func(conn *zk.Conn) error { _, err := conn.Sync("/"); return err }
	for name, test := range map[string]struct {
		spoil   func(net.Conn) net.Conn
		request func(*zk.Conn) error
	}{
		"credential refused":       {func(c net.Conn) net.Conn { return misspelling{c} }, exists},
		"answer and hang-up":       {func(c net.Conn) net.Conn { return &curt{Conn: c, reads: 3} }, exists},
		"leader's answer, hang-up": {func(c net.Conn) net.Conn { return &curt{Conn: c, reads: 3} }, sync},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link := srv.Link(t)
				var spoilt atomic.Bool
				c := connect(t, "a:1,b:2,c:3", alice, protocol.WithDialer(
					func(network, address string, timeout time.Duration) (net.Conn, error) {
						time.Sleep(time.Millisecond)
						conn, err := link.Dial(network, srv.ConnectString(), timeout)
						if err == nil && spoilt.Load() {
							conn = test.spoil(conn)
						}
						return conn, err
					}))
				s := session(t, c)
				before := link.Count(recipestest.OpConnect)
				spoilt.Store(true)
				link.Cut()
				link.Heal()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
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
				_, err = recipe.Do(lasting(t), s, func(conn *zk.Conn) (string, error) { return conn.Sync("/") })
				require.NoError(t, err)
				require.NoError(t, c.Close())
			})
		})
	}
}

// A misspelling connection spoils the scheme of credentials, which the server then does not know.
type misspelling struct{ net.Conn }

func (c misspelling) Write(p []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(p, []byte("digest"), []byte("dogest")))
}

// A curt connection ends after so many reads.
type curt struct {
	net.Conn
	reads int
}

func (c *curt) Read(p []byte) (int, error) {
	if c.reads--; c.reads < 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

// TestSlowLinkLosesNothing delays every answer by almost a sixth of the timeout.
func TestSlowLinkLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		timeout := session(t, c).Timeout()
		g := hold(t, c, root)
		link.Delay(timeout * 8 / 100)
		time.Sleep(20 * timeout)
		require.NoError(t, g.Err())
		require.Equal(t, 1, link.Count(recipestest.OpConnect), "connections")
		release(t, g)
	})
}

// TestSlowLinkGrantsSoon takes what is free at all phases of the pings. An answer takes so long
// that after each listing less of trust is left than it should be when something is granted.
func TestSlowLinkGrantsSoon(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		timeout := session(t, c).Timeout()
		link.Delay(timeout * 775 / 10000)
		for phase := range 40 {
			time.Sleep(2*timeout + time.Duration(phase)*timeout/30)
			began := time.Now()
			g := hold(t, c, root)
			require.Less(t, time.Since(began), timeout, "phase %d", phase)
			release(t, g)
		}
	})
}

// TestWhatIsHeldIsConfirmedBeforeOtherRequests has requests wait for a connection that comes more
// than half the timeout after a quorum has last agreed to a write. A long one among them would keep
// a quorum from confirming the lease in time.
func TestWhatIsHeldIsConfirmedBeforeOtherRequests(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		var mu sync.Mutex
		var sent []recipestest.Op // over the newest connection
		c := link.Client(t, protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := link.Dial(network, address, timeout)
				mu.Lock()
				defer mu.Unlock()
				sent = nil
				return &notingConn{conn, func(op recipestest.Op) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, op)
				}}, err
			}))
		s := session(t, c)
		g := hold(t, c, root)
		time.Sleep(time.Minute)
		wait(t, link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)) // a quorum has agreed
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
		release(t, g)
	})
}

// A notingConn records which requests are sent.
type notingConn struct {
	net.Conn
	note func(recipestest.Op)
}

func (c *notingConn) Write(p []byte) (int, error) {
	if len(p) >= 12 {
		c.note(recipestest.Op(binary.BigEndian.Uint32(p[8:])))
	}
	return c.Conn.Write(p)
}
