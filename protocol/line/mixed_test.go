package line_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// What other libraries call their nodes, before the sequence number.
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
	_, err := s.EnsurePath(suite.Lasting(t), path)
	require.NoError(t, err)
	node, err := s.Conn().Create(s.Path(path)+"/"+prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return node
}

func remove(t testing.TB, c *protocol.Client, node string) {
	t.Helper()
	require.NoError(t, suite.Session(t, c).Conn().Delete(node, -1))
}

// A verb acquires something at a path.
type verb func(context.Context, *protocol.Client, string) (give func(context.Context) error, err error)

func mutex(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
	g, err := lineAt(c, path).Enter(ctx, request)
	if err != nil {
		return nil, err
	}
	return g.Release, nil
}

func reads(s rwlock.Spelling) verb {
	return func(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(s)).RLock(ctx)
		return l.Unlock, err
	}
}

func writes(s rwlock.Spelling) verb {
	return func(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(s)).Lock(ctx)
		return l.Unlock, err
	}
}

// A contender waits for all that are ahead of it, of any library. If one behind it would not wait
// for it, that one may hold by then, and the contender is refused.
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
		"writer":         {writes(native), []string{zkLock, javaWriteLock, cWriteLock}},
		"Curator writer": {writes(curator), []string{curatorWriter, curatorReader}},
		"kazoo writer":   {writes(kazoo), []string{kazooWriter, kazooReader}},
		"reader":         {reads(native), []string{zkLock, javaWriteLock, cWriteLock, curatorReader, kazooReader}},
		"Curator reader": {reads(curator), []string{curatorWriter, curatorReader, kazooReader}},
		"kazoo reader":   {reads(kazoo), []string{kazooWriter, kazooReader, curatorReader}},
	} {
		respected := make(map[string]bool)
		for _, other := range us.respected {
			respected[other] = true
		}
		for _, other := range all {
			t.Run(fmt.Sprintf("%s and %s", name, other), func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					overlooked(t, srv, us.acquire, other, respected[other])
				})
			})
		}
	}
}

// overlooked makes a contender of ours wait for two others, and one of the other library line up
// behind it.
func overlooked(t *testing.T, srv *recipestest.Server, acquire verb, other string, respected bool) {
	path, c, operator := srv.Root(t)+"/mixed", srv.Client(t), srv.Client(t)
	first, second := foreign(t, operator, path, kazooWriter), foreign(t, operator, path, javaWriteLock)
	ctx := suite.Lasting(t)
	var give func(context.Context) error
	granted := suite.Later(func() (err error) {
		give, err = acquire(ctx, c, path)
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
		require.NoError(t, give(ctx))
	} else {
		require.ErrorIs(t, err, protocol.ErrMixed)
		require.ErrorContains(t, err, behind[strings.LastIndex(behind, "/")+1:])
		require.ErrorContains(t, err, path)
	}
	remove(t, operator, behind)
	require.Empty(t, suite.Children(t, operator, path))
}
