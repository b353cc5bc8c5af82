package line_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// Contenders of a kind that the line doesn't have (or whose name has a slash) wouldn't see each
// other.
func TestRequestOfAKindThatTheLineDoesNotHaveIsRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/kinds", srv.Client(t)
		l := lineAt(c, path)
		for _, kind := range []string{"", "lock", "read-", "a/lock-"} {
			for _, try := range []bool{false, true} {
				_, err := l.Enter(suite.Lasting(t), line.Request{Kind: kind, Try: try})
				require.ErrorIs(t, err, zk.ErrBadArguments)
				require.ErrorContains(t, err, "kind", kind)
			}
			_, _, err := l.Claim(suite.Lasting(t), suite.Session(t, c), &line.Request{Kind: kind})
			require.ErrorContains(t, err, "kind", kind)
		}
		require.Empty(t, suite.Children(t, c, path))
	})
}

// The name of a waiter's node is no proof, because another client can use the same name.
func TestNodeOfAnotherSessionIsNotGranted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, op := srv.Root(t)+"/line", srv.Client(t), srv.Client(t)
		held := take(t, lineAt(op, path))
		next := enter(suite.Lasting(t), lineAt(c, path), request)
		time.Sleep(time.Second) // it watches its own node by then
		pending(t, next)
		s := suite.Session(t, op)
		names := suite.Got(lineAt(op, path).Names(suite.Lasting(t), s))(t)
		node := path + "/" + names[1].Node
		_, err := s.Multi(suite.Lasting(t), &zk.DeleteRequest{Path: node, Version: -1},
			&zk.CreateRequest{Path: node, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path + "/" + held.Node(), Version: -1})
		require.NoError(t, err)

		g := suite.Wait(t, next)
		require.NotEqual(t, names[1].Node, g.Node())
		suite.Release(t, g)
	})
}

// These are the names of other libraries' nodes, before the sequence number.
const (
	curatorMutex  = "_c_2c9a3b2e-0ee3-4cdb-8d5e-5e0e3d8a1c70-lock-"
	curatorWriter = "_c_2c9a3b2e-0ee3-4cdb-8d5e-5e0e3d8a1c70-__WRIT__"
	curatorReader = "_c_2c9a3b2e-0ee3-4cdb-8d5e-5e0e3d8a1c70-__READ__"
	zkLock        = "_c_0123456789abcdef0123456789abcdef-lock-"
	kazooWriter   = "0123456789abcdef0123456789abcdef__lock__"
	kazooReader   = "0123456789abcdef0123456789abcdef__rlock__"
	javaWriteLock = "x-72057784831377419-"
	cWriteLock    = "x-0100a2b3c4d50000-"
)

// foreign creates a node of another library, and returns its path.
func foreign(t testing.TB, c *protocol.Client, path, prefix string) string {
	t.Helper()
	s := suite.Session(t, c)
	suite.Ensure(t, s, path)
	node := suite.Got(s.Conn().Create(s.Path(path)+"/"+prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)))(t)
	return node
}

func remove(t testing.TB, c *protocol.Client, node string) {
	t.Helper()
	require.NoError(t, suite.Session(t, c).Conn().Delete(node, -1))
}

// A verb acquires something at a path.
type verb func(context.Context, *protocol.Client, string) (interface{ Unlock(context.Context) error }, error)

func mutex(ctx context.Context, c *protocol.Client, path string) (interface{ Unlock(context.Context) error }, error) {
	return lock.New(c, path).Lock(ctx)
}

// of returns a verb of a lock for readers and writers.
func of(s rwlock.Spelling, take func(*rwlock.RWMutex, context.Context) (*rwlock.Lease, error)) verb {
	return func(ctx context.Context, c *protocol.Client, path string) (interface{ Unlock(context.Context) error }, error) {
		return take(rwlock.New(c, path, rwlock.WithSpelling(s)), ctx)
	}
}

// A contender waits for all earlier contenders of any library. If a later contender would not wait
// for it, that contender may hold by then. So the contender is refused.
func TestContenderThatAnotherLibraryOverlooksIsRefused(t *testing.T) {
	native, curator, kazoo := rwlock.Native, rwlock.Curator, rwlock.Kazoo
	all := []string{
		curatorMutex, curatorWriter, curatorReader, zkLock, kazooWriter, kazooReader, javaWriteLock, cWriteLock,
	}

	for name, us := range map[string]struct {
		acquire   verb
		respected []string // by these
	}{
		"mutex":          {mutex, []string{curatorMutex, zkLock, kazooWriter, kazooReader, javaWriteLock, cWriteLock}},
		"writer":         {of(native, (*rwlock.RWMutex).Lock), []string{zkLock, javaWriteLock, cWriteLock}},
		"Curator writer": {of(curator, (*rwlock.RWMutex).Lock), []string{zkLock, curatorWriter, curatorReader}},
		"kazoo writer":   {of(kazoo, (*rwlock.RWMutex).Lock), []string{zkLock, kazooWriter, kazooReader}},
		"reader":         {of(native, (*rwlock.RWMutex).RLock), []string{zkLock, javaWriteLock, cWriteLock, curatorReader, kazooReader}},
		"Curator reader": {of(curator, (*rwlock.RWMutex).RLock), []string{zkLock, curatorWriter, curatorReader, kazooReader}},
		"kazoo reader":   {of(kazoo, (*rwlock.RWMutex).RLock), []string{zkLock, kazooWriter, kazooReader, curatorReader}},
	} {
		for _, other := range all {
			t.Run(fmt.Sprintf("%s and %s", name, other), func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					overlooked(t, srv, us.acquire, other, slices.Contains(us.respected, other))
				})
			})
		}
	}
}

// overlooked makes a contender of ours wait for two others. A contender of the other library lines
// up behind it.
func overlooked(t *testing.T, srv *recipestest.Server, acquire verb, other string, respected bool) {
	path, c, operator := srv.Root(t)+"/mixed", srv.Client(t), srv.Client(t)
	first, second := foreign(t, operator, path, kazooWriter), foreign(t, operator, path, javaWriteLock)
	ctx := suite.Lasting(t)
	var held interface{ Unlock(context.Context) error }
	granted := suite.Later(func() (err error) {
		held, err = acquire(ctx, c, path)
		return err
	})
	time.Sleep(time.Second)
	behind := foreign(t, operator, path, other)
	remove(t, operator, first)
	time.Sleep(time.Second)
	synctest.Wait()
	require.Empty(t, granted)
	remove(t, operator, second) // it lists the line, as there is no marker

	err := suite.Wait(t, granted)
	if respected {
		require.NoError(t, err)
		require.NoError(t, held.Unlock(ctx))
	} else {
		require.ErrorIs(t, err, protocol.ErrMixed)
		require.ErrorContains(t, err, behind[strings.LastIndex(behind, "/")+1:])
		require.ErrorContains(t, err, path)
	}
	remove(t, operator, behind)
	require.Empty(t, suite.Children(t, operator, path))
}

// If the only predecessor overlooks ours, its end is no proof that the lock is free: another
// contender of its library can be behind.
func TestEndOfAContenderThatOverlooksOursIsNoProof(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, operator := srv.Root(t)+"/mixed", srv.Client(t), srv.Client(t)
		holder := foreign(t, operator, path, curatorMutex)
		ctx := suite.Lasting(t)
		refused := suite.Later(func() error {
			_, err := rwlock.New(c, path).Lock(ctx)
			return err
		})
		time.Sleep(time.Second)
		next := foreign(t, operator, path, curatorMutex)
		synctest.Wait()

		remove(t, operator, holder)

		require.ErrorIs(t, suite.Wait(t, refused), protocol.ErrMixed)
		remove(t, operator, next)
	})
}

// A mutex begins to watch its predecessor, a writer, and finds it gone. A reader has taken its
// place.
func TestMutexWaitsForAReaderThatHasReplacedAWriter(t *testing.T) {
	for _, spelling := range []rwlock.Spelling{rwlock.Native, rwlock.Curator, rwlock.Kazoo} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link := srv.Root(t)+"/mixed", srv.Link(t)
			gate := &suite.Gate{Op: recipestest.OpGetData} // by which a node is watched
			c := link.Client(t, gate.Option(link))
			suite.Session(t, c)
			writing := suite.Got(rwlock.New(srv.Client(t), path, rwlock.WithSpelling(spelling)).Lock(suite.Lasting(t)))(t)

			gate.Shut()
			granted := enter(suite.Lasting(t), lineAt(c, path), request)
			synctest.Wait()
			require.True(t, gate.Holding())
			reading := suite.Got(writing.Downgrade(suite.Lasting(t)))(t)
			gate.Open()
			time.Sleep(time.Second)
			pending(t, granted)

			require.NoError(t, reading.Unlock(suite.Lasting(t)))
			suite.Release(t, suite.Wait(t, granted))
		})
	}
}

// Lines of different kinds at a path don't share a listing under one session, because each line
// parses the names by its own kinds.
func TestListingIsNotSharedBetweenKinds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const latency = 10 * time.Millisecond
		path, link, ctx := srv.Root(t)+"/mixed", srv.Link(t), suite.Lasting(t)
		held := suite.Got(rwlock.New(srv.Client(t), path).RLock(ctx))(t)
		c := link.Client(t)
		suite.Session(t, c)
		link.Delay(latency)

		reading := suite.Later(func() *rwlock.Lease {
			l := suite.Got(rwlock.New(c, path).RLock(ctx))(t)
			return l
		})
		time.Sleep(latency / 2) // so the mutex asks for a listing while that of the reader is under way
		granted := enter(ctx, lineAt(c, path), request)
		time.Sleep(time.Second)
		pending(t, granted)

		require.NoError(t, held.Unlock(ctx))
		require.NoError(t, suite.Wait(t, reading).Unlock(ctx))
		suite.Release(t, suite.Wait(t, granted))
	})
}

// A node with a number after the counter's end comes after all of ours. The session in a
// WriteLock's name is decimal, or has 16 hex digits.
func TestNodesThatAreNotInLineAreIgnored(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/line", srv.Client(t)
		for _, name := range []string{
			"lock--2147483648", "lock--000000001", "lock-",
			"x-", "x-0000000000", "x--0000000000", "x-1-000000000", "x-1-00000000001", "x-abc-0000000000",
			"x-0100a2b3c4d5000-0000000000", "x-0100a2b3c4d5000g-0000000000", "y-1-0000000000", "x-1_0000000000",
			"x-1--000000001",
		} {
			suite.Keep(t, c, path+"/"+name)
		}
		g := take(t, lineAt(c, path))
		contenders := suite.Got(lineAt(c, path).Contenders(suite.Lasting(t)))(t)
		require.Len(t, contenders, 1)
		require.Equal(t, g.Node(), contenders[0].Node)
		suite.Release(t, g)
	})
}

// The rules of its own library decide whether a contender holds.
func TestContenderHoldsByTheRulesOfItsLibrary(t *testing.T) {
	const ours = "0123456789abcdef-01234567-"
	for name, test := range map[string]struct {
		nodes []string
		holds []bool
	}{
		"mutexes":                 {[]string{ours + "lock-", ours + "lock-"}, []bool{true, false}},
		"readers and a writer":    {[]string{ours + "read-", "x__READ__", ours + "write-", ours + "read-"}, []bool{true, true, false, false}},
		"reader behind a mutex":   {[]string{ours + "lock-", ours + "read-"}, []bool{true, false}},
		"LeaderLatch behind ours": {[]string{ours + "lock-", "_c_x-latch-", "_c_x-latch-"}, []bool{true, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, c := srv.Root(t)+"/lock", srv.Client(t)
				suite.Keep(t, c, path)
				for _, node := range test.nodes {
					suite.Got(suite.Session(t, c).Conn().Create(path+"/"+node, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
				}
				line := suite.Got(lock.New(c, path).Contenders(t.Context()))(t)
				var holds []bool
				for _, c := range line {
					holds = append(holds, c.Holds)
				}
				require.Equal(t, test.holds, holds)
			})
		})
	}
}
