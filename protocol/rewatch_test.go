package protocol_test

import (
	"bytes"
	"encoding/binary"
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
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestSessionIsNotResumedWhereItWouldGoBackInTime moves a client to a follower that has not heard
// of its newest lock. The connection before has broken, at different moments.
func TestSessionIsNotResumedWhereItWouldGoBackInTime(t *testing.T) {
	for name, c := range map[string]struct {
		withheld bool // watches are not set again
		broken   func(*testing.T, *recipestest.Link, *protocol.Client)
	}{
		"not broken": {},
		"while the first watch is on its way": {broken: func(t *testing.T, link *recipestest.Link, _ *protocol.Client) {
			met := make(chan struct{})
			link.At(1, func() { link.Cut(); close(met) })
			wait(t, met)
			link.Heal()
		}},
		"and watches are not set again yet": {withheld: true, broken: func(t *testing.T, link *recipestest.Link, c *protocol.Client) {
			wait(t, link.Answered(recipestest.OpGetData, 1))
			synctest.Wait()
			resume(t, link, c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
				var opts []protocol.ConnectOption
				if c.withheld {
					withhold := new(atomic.Bool)
					withhold.Store(true)
					opts = append(opts, withheld(link, withhold))
				}
				client := link.Client(t, opts...)
				a := hold(t, client, root+"/a")
				if c.broken != nil {
					c.broken(t, link, client)
				}
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()

				f.Lag(2 * time.Second)
				b := hold(t, client, root+"/b")
				time.Sleep(50 * time.Millisecond)
				connects := link.Count(recipestest.OpConnect)
				wait(t, link.Answered(recipestest.OpConnect, connects))
				resumed := link.Answered(recipestest.OpConnect, connects+1)
				link.Move(f)
				link.Cut()
				link.Heal()
				begin := time.Now()
				wait(t, resumed)
				require.GreaterOrEqual(t, time.Since(begin), time.Second, "the follower has to catch up first")
				f.Lag(0)
				time.Sleep(time.Second)
				require.NoError(t, a.Err())
				require.NoError(t, b.Err())
				release(t, a)
				release(t, b)
			})
		})
	}
}

// TestWatchesSurviveTwoCuts has a node change while the client is away. The connection breaks again
// after each packet of the next one: answers that are not covered by watches yet must not count.
func TestWatchesSurviveTwoCuts(t *testing.T) {
	for name, c := range map[string]struct {
		watch  func(*zk.Conn, string) (<-chan zk.Event, error)
		change func(*zk.Conn, string) error
	}{
		"children": {
			func(c *zk.Conn, path string) (<-chan zk.Event, error) {
				_, _, ch, err := c.ChildrenW(path)
				return ch, err
			},
			func(c *zk.Conn, path string) error {
				_, err := c.Create(path+"/x", nil, 0, zk.WorldACL(zk.PermAll))
				return err
			},
		},
		"data": {
			func(c *zk.Conn, path string) (<-chan zk.Event, error) { _, _, ch, err := c.GetW(path); return ch, err },
			func(c *zk.Conn, path string) error { _, err := c.Set(path, []byte("x"), -1); return err },
		},
		"existence": {
			func(c *zk.Conn, path string) (<-chan zk.Event, error) {
				_, _, ch, err := c.ExistsW(path)
				return ch, err
			},
			func(c *zk.Conn, path string) error { _, err := c.Set(path, []byte("x"), -1); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					root, link := srv.Root(t), srv.Link(t)
					s, other := session(t, link.Client(t)), session(t, srv.Client(t))
					_, err := other.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
					changed, err := c.watch(s.Conn(), root)
					require.NoError(t, err)
					link.Cut()
					synctest.Wait()
					require.NoError(t, c.change(other.Conn(), root))
					for range 4 { // queued before zk.Conn sets its watches again
						go s.Conn().Exists("/")
					}
					synctest.Wait()
					stop := link.At(step, func() { time.Sleep(time.Millisecond); link.Cut(); link.Heal() })
					link.Heal()
					wait(t, changed)
					time.Sleep(time.Second)
					met = !stop()
					require.NoError(t, s.Err())
				})
				return met
			})
		})
	}
}

// TestWatchThatHasFiredIsNotSetAgain counts the requests that set watches after a reconnect.
func TestWatchThatHasFiredIsNotSetAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		conn := session(t, c).Conn()
		synctest.Wait() // zk.Conn may set watches that are set very soon again
		_, _, created, err := conn.ExistsW(root)
		require.NoError(t, err)
		_, err = conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		wait(t, created)
		resume(t, link, c)
		synctest.Wait()
		_, err = conn.Set(root, []byte("new"), -1)
		require.NoError(t, err)
		_, _, deleted, err := conn.ExistsW(root)
		require.NoError(t, err)
		require.Zero(t, link.Count(recipestest.OpSetWatches), "none was left")
		resume(t, link, c)
		require.NoError(t, conn.Delete(root, -1))
		require.Equal(t, zk.EventNodeDeleted, wait(t, deleted).Type, "nothing else happened since it was set")
		require.Equal(t, 1, link.Count(recipestest.OpSetWatches))
	})
}

// TestManyWatchesAreSetAgainWhereRequestsMustBeSmall holds more than fits into one request of a
// server.
func TestManyWatchesAreSetAgainWhereRequestsMustBeSmall(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithConfig(embedded.Config{MaxPacket: 64 << 10}), recipestest.WithInMemory())
			manyWatches(t, srv)
		})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		manyWatches(t, suite.RealWith(t, suite.SmallRequests))
	})
}

func manyWatches(t *testing.T, srv *recipestest.Server) {
	const n = 350 // with long names: zk.Conn needs two requests
	root, link := srv.Root(t), srv.Link(t)
	s, other := session(t, link.Client(t)), session(t, srv.Client(t))
	_, err := other.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	parent := root + "/" + strings.Repeat("x", 400)
	var created []<-chan zk.Event
	for i := range n {
		_, _, ch, err := s.Conn().ExistsW(fmt.Sprintf("%s%04d", parent, i))
		require.NoError(t, err)
		created = append(created, ch)
	}
	connects := link.Count(recipestest.OpConnect)
	link.Cut()
	for i := range n / 2 { // half of them while it is away
		_, err := other.Conn().Create(fmt.Sprintf("%s%04d", parent, i), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	link.Heal()
	for _, ch := range created[:n/2] {
		require.Equal(t, zk.EventNodeCreated, wait(t, ch).Type)
	}
	for i := n / 2; i < n; i++ {
		_, err := other.Conn().Create(fmt.Sprintf("%s%04d", parent, i), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.Equal(t, zk.EventNodeCreated, wait(t, created[i]).Type)
	}
	require.Equal(t, connects+1, link.Count(recipestest.OpConnect), "connections")
	require.NoError(t, s.Err())
}

// After watches were set again in several requests, the server reports nothing once more that
// happened since.
func TestEventsAreNotRepeatedThoughWatchesAreMany(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c, other := link.Client(t), session(t, srv.Client(t))
		conn := session(t, c).Conn()
		_, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for i := range 350 { // with long names: zk.Conn needs two requests
			_, _, _, err := conn.ExistsW(fmt.Sprintf("%s/%s%d", root, strings.Repeat("x", 400), i))
			require.NoError(t, err)
		}
		resume(t, link, c)
		synctest.Wait()

		_, _, changed, err := conn.GetW(root)
		require.NoError(t, err)
		_, err = other.Conn().Set(root, []byte("new"), -1)
		require.NoError(t, err)
		wait(t, changed)
		_, _, changed, err = conn.GetW(root)
		require.NoError(t, err)
		resume(t, link, c)
		synctest.Wait()
		require.Empty(t, changed)
	})
}

// TestConnectionOverWhichWatchesAreNotSetAgainIsCut uses a server that refuses to set them. zk.Conn
// would only log that.
func TestConnectionOverWhichWatchesAreNotSetAgainIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, l := srv.Root(t), srv.Link(t), new(liar)
		s := session(t, link.Client(t, l.dial(link)))
		synctest.Wait() // otherwise zk.Conn may set the watch again on its first connection
		_, _, created, err := s.Conn().ExistsW(root)
		require.NoError(t, err)
		l.lie(recipestest.OpSetWatches, 1)
		link.Cut()
		link.Heal()
		time.Sleep(time.Second)
		require.True(t, l.lied())
		require.Equal(t, 3, link.Count(recipestest.OpConnect))
		require.Equal(t, 2, link.Count(recipestest.OpSetWatches))
		require.Empty(t, created)
	})
}

// TestWatchesSurviveTwoCutsThoughTheyAreMany has more watches than are set again at once.
func TestWatchesSurviveTwoCutsThoughTheyAreMany(t *testing.T) {
	t.Parallel()
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			root, link := srv.Root(t), srv.Link(t)
			s, other := session(t, link.Client(t)), session(t, srv.Client(t))
			var nodes []string
			var changed []<-chan zk.Event
			for i := range 60 {
				node := fmt.Sprintf("%s%d%s", root, i, strings.Repeat("x", 3000))
				_, err := other.Conn().Create(node, nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				_, _, ch, err := s.Conn().GetW(node)
				require.NoError(t, err)
				nodes, changed = append(nodes, node), append(changed, ch)
			}
			link.Cut()
			for _, node := range nodes {
				_, err := other.Conn().Set(node, nil, -1)
				require.NoError(t, err)
			}
			before := link.Count(recipestest.OpSetWatches)
			stop := link.At(step, func() { link.Cut(); link.Heal() })
			link.Heal()
			for _, ch := range changed {
				wait(t, ch)
			}
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, link.Count(recipestest.OpSetWatches)-before, 5)
			met = !stop()
			require.NoError(t, s.Err())
		})
		return met
	})
}

// TestLeasesAreKeptWhereItTakesLongToWatchThemAgain has a network on which the watches of a session
// take longer to set again than its trust lasts.
func TestLeasesAreKeptWhereItTakesLongToWatchThemAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 700
		root, link := srv.Root(t), srv.Link(t)
		slow := new(slowNetwork)
		c, other := link.Client(t, slow.dial(link)), srv.Client(t)
		root += "/" + strings.Repeat("x", 2000)
		grants := holdMany(t, c, link, root, n)
		synctest.Wait() // what was not read yet would have to be asked for again
		timeout, connects := session(t, c).Timeout(), link.Count(recipestest.OpConnect)
		slow.rate = n * 2000 / int(timeout.Seconds())

		link.Cut()
		link.Heal()

		time.Sleep(2 * timeout)
		for _, g := range grants {
			require.NoError(t, g.Err())
		}
		require.Equal(t, connects+1, link.Count(recipestest.OpConnect), "connections")
		for i := 0; i < n; i += n / 10 {
			breakOne(t, other, root, grants, i)
		}
		suite.Close(t, c)
	})
}

// A slowNetwork delivers so many bytes a second of what a client sends, and takes all at once. Its
// zero value is fast.
type slowNetwork struct{ rate int }

func (s *slowNetwork) dial(link *recipestest.Link) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		if err != nil || s.rate == 0 {
			return conn, err
		}
		c := &slowConn{Conn: conn, rate: s.rate, frames: make(chan []byte, 1000), closed: make(chan struct{})}
		go c.deliver()
		return c, nil
	})
}

type slowConn struct {
	net.Conn
	rate   int
	frames chan []byte
	close  sync.Once
	closed chan struct{}
}

func (c *slowConn) Write(p []byte) (int, error) {
	select {
	case c.frames <- bytes.Clone(p):
		return len(p), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) deliver() {
	for {
		select {
		case p := <-c.frames:
			time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
			if _, err := c.Conn.Write(p); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *slowConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// withheld is a way through link on which requests to set watches again are not sent while withhold
// is true.
func withheld(link *recipestest.Link, withhold *atomic.Bool) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return withholdingConn{c, withhold}, nil
	})
}

type withholdingConn struct {
	net.Conn
	withhold *atomic.Bool
}

func (c withholdingConn) Write(p []byte) (int, error) {
	if c.withhold.Load() && len(p) >= 12 && recipestest.Op(binary.BigEndian.Uint32(p[8:])) == recipestest.OpSetWatches {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestUnreadAnswerKeepsItsWatchWhenTheConnectionIsCut cuts the connection after an answer has
// arrived and before it is read.
func TestUnreadAnswerKeepsItsWatchWhenTheConnectionIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		g := hold(t, srv.Client(t), path)
		late := make(chan struct{}, 1)
		c := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			return &lateConn{Conn: conn, path: g.Node(), late: late, closed: make(chan struct{})}, err
		}))
		waiter := later(func() *recipe.Grant { return hold(t, c, path) })
		wait(t, late)
		resumed := link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1)
		wait(t, resumed)
		synctest.Wait()

		release(t, g)

		release(t, wait(t, waiter))
	})
}

// A lateConn hands over the answer to the first request for the data of a node only when it has
// been closed.
type lateConn struct {
	net.Conn
	path   string // how that of the node ends
	late   chan struct{}
	asked  atomic.Uint32
	close  sync.Once
	closed chan struct{}
}

func (c *lateConn) Write(p []byte) (int, error) {
	if len(p) > 12 && recipestest.Op(binary.BigEndian.Uint32(p[8:])) == recipestest.OpGetData && strings.HasSuffix(string(p[:len(p)-1]), c.path) {
		c.asked.Store(binary.BigEndian.Uint32(p[4:]))
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	xid := c.asked.Load()
	for rest := p[:n]; xid != 0 && len(rest) > 8; rest = rest[min(len(rest), 4+int(binary.BigEndian.Uint32(rest))):] {
		if binary.BigEndian.Uint32(rest[4:]) != xid {
			continue
		}
		select {
		case c.late <- struct{}{}:
			<-c.closed
		default:
		}
	}
	return n, err
}

func (c *lateConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
