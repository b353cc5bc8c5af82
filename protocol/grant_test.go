package protocol_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
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

// A liar is a server that says of nodes that they do not exist, as one that lags may.
type liar struct {
	mu    sync.Mutex
	lies  map[recipestest.Op]int // how many answers of each kind are to be wrong
	wrong map[int32]bool         // those requests
}

func (l *liar) dial(link *recipestest.Link) protocol.ConnectOption {
	l.lies, l.wrong = make(map[recipestest.Op]int), make(map[int32]bool)
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		return &lyingConn{Conn: conn, liar: l}, err
	})
}

// lie has the next answers to requests of a kind be wrong.
func (l *liar) lie(op recipestest.Op, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies[op] = n
}

// lied reports whether all lies have been told.
func (l *liar) lied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.lies {
		if n > 0 {
			return false
		}
	}
	return len(l.wrong) == 0
}

type lyingConn struct {
	net.Conn
	liar *liar
	rest bytes.Buffer
}

func (c *lyingConn) Write(p []byte) (int, error) {
	if len(p) >= 12 {
		c.liar.mu.Lock()
		if op := recipestest.Op(binary.BigEndian.Uint32(p[8:])); c.liar.lies[op] > 0 {
			c.liar.lies[op]--
			c.liar.wrong[int32(binary.BigEndian.Uint32(p[4:]))] = true
		}
		c.liar.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *lyingConn) Read(p []byte) (int, error) {
	if c.rest.Len() == 0 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		c.liar.mu.Lock()
		if xid := int32(binary.BigEndian.Uint32(frame)); c.liar.wrong[xid] {
			delete(c.liar.wrong, xid)
			const noNode = -101
			code := int32(noNode)
			frame = frame[:16]
			binary.BigEndian.PutUint32(frame[12:], uint32(code))
			binary.BigEndian.PutUint32(head, 16)
		}
		c.liar.mu.Unlock()
		c.rest.Write(head)
		c.rest.Write(frame)
	}
	return c.rest.Read(p)
}

// TestNodeThatSeemsToBeMissingIsLookedForAgain has a server be wrong about a holder's node once.
func TestNodeThatSeemsToBeMissingIsLookedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, l := srv.Root(t), srv.Link(t), new(liar)
		c := link.Client(t, l.dial(link))
		l.lie(recipestest.OpGetData, 1)
		g := hold(t, c, root)
		requireSoon(t, l.lied, "the node is read to be watched")
		time.Sleep(time.Second)
		require.NoError(t, g.Err())

		l.lie(recipestest.OpExists, 1)
		require.NoError(t, g.SetData(lasting(t), []byte("new")))
		require.True(t, l.lied())
		require.NoError(t, g.Err())

		require.NoError(t, lineAt(c, root).Break(lasting(t), g.Node()))
		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.ErrorIs(t, g.SetData(lasting(t), nil), protocol.ErrLost)
	})
}

// TestNodeThatIsBelievedMissingIsDeleted has a server be wrong however often it is asked.
func TestNodeThatIsBelievedMissingIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, l := srv.Root(t), srv.Link(t), new(liar)
		c := link.Client(t, l.dial(link))
		l.lie(recipestest.OpGetData, 1)
		l.lie(recipestest.OpExists, 1)
		g := hold(t, c, root)
		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.NoError(t, session(t, c).Err())
		release(t, hold(t, srv.Client(t), root))
	})
}

// TestNodeIsLookedForBehindASync has a session come back at a follower that does not know the node
// yet. Servers refuse that to a session that says what it has seen, so this one's handshakes say
// that it has seen nothing.
func TestNodeIsLookedForBehindASync(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		c := connect(t, srv.ConnectString(), protocol.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := link.Dial(network, address, timeout)
				if err != nil {
					return nil, err
				}
				return &forgetfulConn{Conn: conn}, nil
			}))
		require.NoError(t, hold(t, c, root+"/line").Release(lasting(t)))
		f.Lag(300 * time.Millisecond)
		time.Sleep(time.Second)

		g := hold(t, c, root+"/line")
		link.Move(f)
		link.Cut()
		link.Heal()
		time.Sleep(200 * time.Millisecond) // the node is looked at now
		f.Lag(0)
		time.Sleep(time.Second)

		require.NoError(t, g.Err())
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, c.Close())
	})
}

// A forgetfulConn is a connection whose handshake claims that the session has seen nothing.
type forgetfulConn struct {
	net.Conn
	shaken bool
}

func (c *forgetfulConn) Write(p []byte) (int, error) {
	if !c.shaken && len(p) >= 16 {
		c.shaken = true
		clear(p[8:16]) // length, protocol version, last zxid seen
	}
	return c.Conn.Write(p)
}

// A node that may not be read is watched by asking whether it is there. Servers like 3.9 refuse to
// answer that, which says as much.
func TestGrantOfANodeThatMayNotBeRead(t *testing.T) {
	inBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/line", srv.Client(t)
		suite.Keep(t, other, path)
		g := hold(t, srv.Client(t).With(protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead))), path)
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())
		require.NoError(t, g.Verify(t.Context()))

		require.NoError(t, session(t, other).Delete(t.Context(), path+"/"+g.Node(), -1))
		time.Sleep(time.Minute)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
	})
}

// The name of a grant's node is taken by a node that may not be read. Servers like 3.9 do not even
// say that it is another one.
func TestNamedGrantWhoseNameIsTakenIsLost(t *testing.T) {
	inBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		root, c, other := srv.Root(t), srv.Client(t), session(t, srv.Client(t))
		path, s := root+"/name", session(t, c)
		suite.Keep(t, c, root)
		require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
		stat, err := s.Exists(t.Context(), path)
		require.NoError(t, err)
		g, err := recipe.New(c, "test", path).NewNamedGrant(t.Context(), s, path, stat.Czxid,
			func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
		require.NoError(t, err)
		_, err = other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
			&zk.CreateRequest{Path: path, Flags: zk.FlagEphemeral, Acl: zk.WorldACL(zk.PermAll &^ zk.PermRead)})
		require.NoError(t, err)
		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.NoError(t, other.Delete(t.Context(), path, -1))
	})
}

// The holder has not heard yet that its node is gone.
func TestReleaseOfADeletedNodeReportsTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s := session(t, c)
		g, err := recipe.New(c, "test", path).NewGrant(t.Context(), s, path, 1,
			func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
		require.NoError(t, err)
		err = g.Release(t.Context())
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorIs(t, err, protocol.ErrNodeDeleted)
	})
}

// A holder that has its node guarded hears of a deletion at once. Again, and after the usual time,
// that costs nothing.
func TestGuardedNodeIsWatchedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/x"
		c, other := link.Client(t), session(t, srv.Client(t))
		g := hold(t, c, path)
		before := link.Count(recipestest.OpAny)
		g.Guard()
		g.Guard()
		time.Sleep(50 * time.Millisecond)
		g.Guard()
		synctest.Wait()
		require.Equal(t, before+1, link.Count(recipestest.OpAny))
		release(t, g)

		g = hold(t, c, path)
		g.Guard()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, other.Delete(t.Context(), path+"/"+g.Node(), -1))
		wait(t, g.Done())
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, g.Err(), protocol.ErrNodeDeleted)
		g.Guard() // has nothing to watch any more
	})
}

// Nothing else would make the session look at its clocks at that moment: it was engaged before, and
// has no connection.
func TestGrantWithoutAConnectionEndsWithTrust(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/x"
		c := link.Client(t)
		s := session(t, c)
		defer s.KeepAlive()()
		link.Cut()
		synctest.Wait()
		g, err := recipe.New(c, "test", path).NewGrant(t.Context(), s, path, 1,
			func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
		require.NoError(t, err)
		end := s.Deadline()
		wait(t, g.Done())
		require.WithinDuration(t, end, time.Now(), 10*time.Millisecond)
		require.ErrorIs(t, g.Err(), protocol.ErrUntrusted)
		link.Heal()
	})
}
