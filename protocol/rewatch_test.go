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
			suite.Wait(t, met)
			link.Heal()
		}},
		"and watches are not set again yet": {withheld: true, broken: func(t *testing.T, link *recipestest.Link, c *protocol.Client) {
			suite.Wait(t, link.Answered(recipestest.OpGetData, 1))
			synctest.Wait()
			suite.Reconnect(t, link, c)
		}},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
			gate := &suite.Gate{Op: recipestest.OpSetWatches}
			if c.withheld {
				gate.Shut()
			}
			client := link.Client(t, gate.Option(link))
			a := suite.Hold(t, client, root+"/a")
			if c.broken != nil {
				c.broken(t, link, client)
			}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()

			f.Lag(2 * time.Second)
			b := suite.Hold(t, client, root+"/b")
			time.Sleep(50 * time.Millisecond)
			connects := link.Count(recipestest.OpConnect)
			suite.Wait(t, link.Answered(recipestest.OpConnect, connects))
			resumed := link.Answered(recipestest.OpConnect, connects+1)
			link.Move(f)
			suite.Blip(link)
			begin := time.Now()
			suite.Wait(t, resumed)
			require.GreaterOrEqual(t, time.Since(begin), time.Second, "the follower has to catch up first")
			f.Lag(0)
			time.Sleep(time.Second)
			require.NoError(t, a.Err())
			require.NoError(t, b.Err())
			suite.Release(t, a)
			suite.Release(t, b)
		})
	}
}

// TestWatchesSurviveTwoCuts has a node change while the client is away. The connection breaks again
// after each packet of the next one: answers that are not covered by watches yet must not count.
func TestWatchesSurviveTwoCuts(t *testing.T) {
	set := func(c *zk.Conn, path string) error { _, err := c.Set(path, []byte("x"), -1); return err }
	create := func(c *zk.Conn, path string) error {
		_, err := c.Create(path+"/x", nil, 0, zk.WorldACL(zk.PermAll))
		return err
	}
	for name, c := range map[string]struct {
		watch  func(*zk.Conn, string) (<-chan zk.Event, error)
		change func(*zk.Conn, string) error
	}{
		"children": {func(c *zk.Conn, path string) (<-chan zk.Event, error) {
			_, _, ch, err := c.ChildrenW(path)
			return ch, err
		}, create},
		"data": {func(c *zk.Conn, path string) (<-chan zk.Event, error) {
			_, _, ch, err := c.GetW(path)
			return ch, err
		}, set},
		"existence": {func(c *zk.Conn, path string) (<-chan zk.Event, error) {
			_, _, ch, err := c.ExistsW(path)
			return ch, err
		}, set},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					root, link := srv.Root(t), srv.Link(t)
					s, other := suite.Session(t, link.Client(t)), suite.Session(t, srv.Client(t))
					require.NoError(t, other.Create(t.Context(), root, nil, 0))
					changed := suite.Got(c.watch(s.Conn(), root))(t)
					link.Cut()
					synctest.Wait()
					require.NoError(t, c.change(other.Conn(), root))
					for range 4 { // queued before zk.Conn sets its watches again
						go s.Conn().Exists("/")
					}
					synctest.Wait()
					stop := link.At(step, func() { time.Sleep(time.Millisecond); suite.Blip(link) })
					link.Heal()
					suite.Wait(t, changed)
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
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		conn := suite.Session(t, c).Conn()
		synctest.Wait() // zk.Conn can set very early watches twice
		created := suite.WatchAt(t, conn.ExistsW, root)
		suite.Got(conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll)))(t)
		suite.Wait(t, created)
		suite.Reconnect(t, link, c)
		synctest.Wait()
		suite.Got(conn.Set(root, []byte("new"), -1))(t)
		deleted := suite.WatchAt(t, conn.ExistsW, root)
		require.Zero(t, link.Count(recipestest.OpSetWatches), "none was left")
		suite.Reconnect(t, link, c)
		require.NoError(t, conn.Delete(root, -1))
		require.Equal(t, zk.EventNodeDeleted, suite.Wait(t, deleted).Type, "nothing else happened since it was set")
		require.Equal(t, 1, link.Count(recipestest.OpSetWatches))
	})
}

// TestManyWatchesAreSetAgainWhereRequestsMustBeSmall holds more than fits into one request of a
// server.
func TestManyWatchesAreSetAgainWhereRequestsMustBeSmall(t *testing.T) {
	eachWith(t, suite.SmallRequests, maxPacket(64<<10), func(t *testing.T, srv *recipestest.Server) {
		const n = 350 // with long names: zk.Conn needs two requests
		root, link := srv.Root(t), srv.Link(t)
		s, other := suite.Session(t, link.Client(t)), suite.Session(t, srv.Client(t))
		require.NoError(t, other.Create(suite.Lasting(t), root, nil, 0))
		parent := root + "/" + strings.Repeat("x", 400)
		var created []<-chan zk.Event
		for i := range n {
			ch := suite.WatchAt(t, s.Conn().ExistsW, fmt.Sprintf("%s%04d", parent, i))
			created = append(created, ch)
		}

		connects := link.Count(recipestest.OpConnect)
		link.Cut()

		for i := range n / 2 { // half of them while it is away
			require.NoError(t, other.Create(suite.Lasting(t), fmt.Sprintf("%s%04d", parent, i), nil, 0))
		}

		link.Heal()

		for _, ch := range created[:n/2] {
			require.Equal(t, zk.EventNodeCreated, suite.Wait(t, ch).Type)
		}

		for i := n / 2; i < n; i++ {
			require.NoError(t, other.Create(suite.Lasting(t), fmt.Sprintf("%s%04d", parent, i), nil, 0))
			require.Equal(t, zk.EventNodeCreated, suite.Wait(t, created[i]).Type)
		}

		require.Equal(t, connects+1, link.Count(recipestest.OpConnect), "connections")
		require.NoError(t, s.Err())
	})
}

// After watches were set again in several requests, the server reports nothing once more that
// happened since.
func TestEventsAreNotRepeatedThoughWatchesAreMany(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c, other := link.Client(t), suite.Session(t, srv.Client(t))
		conn := suite.Session(t, c).Conn()
		suite.Got(conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll)))(t)

		for i := range 350 { // with long names: zk.Conn needs two requests
			suite.WatchAt(t, conn.ExistsW, fmt.Sprintf("%s/%s%d", root, strings.Repeat("x", 400), i))
		}

		suite.Reconnect(t, link, c)
		synctest.Wait()

		changed := suite.WatchAt(t, conn.GetW, root)
		suite.Got(other.Conn().Set(root, []byte("new"), -1))(t)
		suite.Wait(t, changed)
		changed = suite.WatchAt(t, conn.GetW, root)
		suite.Reconnect(t, link, c)
		synctest.Wait()
		require.Empty(t, changed)
	})
}

// TestConnectionOverWhichWatchesAreNotSetAgainIsCut uses a server that refuses to set them. zk.Conn
// would only log that.
func TestConnectionOverWhichWatchesAreNotSetAgainIsCut(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		s := suite.Session(t, link.Client(t))
		synctest.Wait() // otherwise zk.Conn can set the watch twice on its first connection
		created := suite.WatchAt(t, s.Conn().ExistsW, root)
		link.Fail(recipestest.OpSetWatches, "", -101, 1)
		suite.Blip(link)
		time.Sleep(time.Second)
		require.Equal(t, 3, link.Count(recipestest.OpConnect))
		require.Equal(t, 2, link.Count(recipestest.OpSetWatches))
		require.Empty(t, created)
	})
}

// TestLeasesAreKeptWhereItTakesLongToWatchThemAgain has a network on which the watches of a session
// take longer to set again than its trust lasts.
func TestLeasesAreKeptWhereItTakesLongToWatchThemAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		n := suite.Size(700, 300)
		root, link := srv.Root(t), srv.Link(t)
		slow := new(slowNetwork)
		c, other := link.Client(t, slow.option(link)), srv.Client(t)
		root += "/" + strings.Repeat("x", 2000)
		grants := holdMany(t, c, link, root, n)
		synctest.Wait() // an unread answer would need another request
		timeout, connects := suite.Session(t, c).Timeout(), link.Count(recipestest.OpConnect)
		slow.rate = n * 2000 / int(timeout.Seconds())

		suite.Blip(link)

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

// A slowNetwork accepts all bytes of a client at once, and delivers so many of them a second. Its
// zero value is fast.
type slowNetwork struct{ rate int }

func (s *slowNetwork) option(link *recipestest.Link) protocol.ConnectOption {
	return suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
		if s.rate == 0 {
			return suite.Wire{Conn: conn}
		}
		writes, closed, rate := make(chan []byte, 1000), make(chan struct{}), s.rate
		go func() {
			for {
				select {
				case p := <-writes:
					time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(rate))
					conn.Write(p)
				case <-closed:
					return
				}
			}
		}()
		return suite.Wire{
			Conn:    conn,
			OnWrite: func(p []byte) (int, error) { writes <- bytes.Clone(p); return len(p), nil },
			OnClose: sync.OnceValue(func() error { close(closed); return conn.Close() }),
		}
	})
}

// TestUnreadAnswerKeepsItsWatchWhenTheConnectionIsCut has a client cut its connection after an
// answer has arrived (the first one with the data of a node), and before the answer is read.
func TestUnreadAnswerKeepsItsWatchWhenTheConnectionIsCut(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		g := suite.Hold(t, srv.Client(t), path)
		var late atomic.Bool
		c := link.Client(t, suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
			var asked atomic.Uint32
			closed := make(chan struct{})
			return suite.Wire{
				Conn: conn,
				OnWrite: func(p []byte) (int, error) {
					if suite.OpOf(p) == recipestest.OpGetData && strings.HasSuffix(string(p[:len(p)-1]), g.Node()) {
						asked.Store(binary.BigEndian.Uint32(p[4:]))
					}
					return conn.Write(p)
				},
				OnRead: suite.Frames(conn, func(frame []byte) []byte {
					if xid := asked.Load(); xid != 0 && binary.BigEndian.Uint32(frame[4:]) == xid && late.CompareAndSwap(false, true) {
						<-closed
					}
					return frame
				}),
				OnClose: sync.OnceValue(func() error { close(closed); return conn.Close() }),
			}
		}))
		waiter := suite.Later(func() *recipe.Grant { return suite.Hold(t, c, path) })
		suite.Soon(t, late.Load, "the answer arrives")
		suite.Wait(t, link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1))
		synctest.Wait()

		suite.Release(t, g)

		suite.Release(t, suite.Wait(t, waiter))
	})
}

// holdMany holds n locks below root, which are watched when it returns.
func holdMany(t testing.TB, c *protocol.Client, link *recipestest.Link, root string, n int) []*recipe.Grant {
	t.Helper()
	watched := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+n)
	grants := make([]*recipe.Grant, n)
	var group suite.Group
	for first := range 16 {
		group.Go(func() (err error) {
			for i := first; i < n && err == nil; i += 16 {
				grants[i], err = suite.LineAt(c, lockAt(root, i)).Enter(suite.Lasting(t), suite.Request)
			}

			return err
		})
	}

	require.NoError(t, group.Wait())
	suite.Wait(t, watched)
	suite.Settle() // the last answers can still be on their way
	return grants
}

func lockAt(root string, i int) string { return fmt.Sprintf("%s/%d", root, i) }

// breakOne deletes the node of one of the locks below root. Its holder must lose the lock.
func breakOne(t testing.TB, other *protocol.Client, root string, grants []*recipe.Grant, i int) {
	t.Helper()
	require.NoError(t, grants[i].Err())
	require.NoError(t, suite.LineAt(other, lockAt(root, i)).Break(suite.Lasting(t), grants[i].Node()))
	suite.Wait(t, grants[i].Done())
	require.ErrorIs(t, grants[i].Err(), protocol.ErrLost)
}

// TestReconnectKeepsManyLeases has other clients delete the nodes of some while the holder is away.
func TestReconnectKeepsManyLeases(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		const broken = 20
		n := suite.Size(2000, 500)
		root, link := srv.Root(t), srv.Link(t)
		c, other := link.Client(t), srv.Client(t)
		grants := holdMany(t, c, link, root, n)
		reads := link.Count(recipestest.OpGetData) + link.Count(recipestest.OpExists)

		link.Cut()

		for i := range broken {
			require.NoError(t, suite.LineAt(other, lockAt(root, i)).Break(suite.Lasting(t), grants[i].Node()))
		}

		link.Heal()

		for _, g := range grants[:broken] {
			suite.Wait(t, g.Done())
			require.ErrorIs(t, g.Err(), protocol.ErrLost)
		}

		for _, g := range grants[broken:] {
			require.NoError(t, g.Err())
		}

		// Two for each node that is gone, and those that were under way.
		require.Less(t, link.Count(recipestest.OpGetData)+link.Count(recipestest.OpExists), reads+n/10)

		for i := broken; i < n; i += n / 10 {
			breakOne(t, other, root, grants, i)
		}

		suite.Close(t, c)
	})
}
