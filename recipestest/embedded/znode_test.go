package embedded_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestSequenceCounterSticksAtItsEnd(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	create := func(path string) *answer {
		return c.must(t, zkwire.OpCreate, packet{}.create(path, nil, 2))
	}
	pzxid := func() int64 {
		return c.must(t, zkwire.OpExists, packet{}.string("/q").bool(false)).stat().Pzxid
	}
	c.must(t, zkwire.OpCreate, packet{}.create("/q", nil, 0))
	require.ErrorContains(t, s.SetSequence("/none", 1), "/none")
	require.NoError(t, s.SetSequence("/q", math.MaxInt32-2))
	require.Equal(t, "/q/a-2147483645", create("/q/a-").String())
	last := create("/q/b-")
	require.Equal(t, "/q/b-2147483646", last.String())

	// From here on the number repeats, and the parent's pzxid no longer changes.
	require.Equal(t, "/q/c-2147483647", create("/q/c-").String())
	require.Equal(t, "/q/d-2147483647", create("/q/d-").String())
	require.EqualValues(t, zkwire.CodeNodeExists, create("/q/d-").code)
	require.Equal(t, last.zxid, pzxid())

	// Creations in one transaction see the counter overflow.
	m := c.must(t, zkwire.OpMulti, packet{}.
		part(zkwire.OpCreate).create("/q/m-", nil, 2).
		part(zkwire.OpCreate).create("/q/m-", nil, 2).
		part(zkwire.OpCreate).create("/q/m-", nil, 2).end())
	for _, want := range []string{"/q/m-2147483647", "/q/m--2147483648", "/q/m--2147483647"} {
		m.Rest = m.Rest[4+1+4:] // operation, done and code
		require.Equal(t, want, m.String())
	}
	require.Equal(t, last.zxid, pzxid())
	require.Equal(t, "/q/e-2147483647", create("/q/e-").String())

	// Deletions change the pzxid.
	del := c.must(t, zkwire.OpDelete, packet{}.string("/q/e-2147483647").int32(-1))
	require.Equal(t, del.zxid, pzxid())
}

func TestSystemNodesAreThere(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	a := c.must(t, zkwire.OpGetChildren2, packet{}.string("/").bool(false))
	require.Equal(t, []string{"zookeeper"}, a.Strings())
	require.Equal(t, zk.Stat{Cversion: -1, NumChildren: 1}, a.stat())
	a = c.must(t, zkwire.OpGetChildren2, packet{}.string("/zookeeper").bool(false))
	require.ElementsMatch(t, []string{"quota", "config"}, a.Strings())
	require.Equal(t, zk.Stat{Cversion: -2, NumChildren: 2}, a.stat())
	require.EqualValues(t, zkwire.CodeNoAuth, c.must(t, zkwire.OpSetData, packet{}.string("/zookeeper/config").buffer(nil).int32(-1)).code)
	require.EqualValues(t, 3, c.must(t, zkwire.OpCountChildren, packet{}.string("/")).Int32())
}

func TestContainersAreReapedWhenTheirLastChildIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := dial(t, s)
		for _, path := range []string{"/never", "/used", "/used/nested", "/full"} {
			suite.Got(c.CreateContainer(path, nil, zk.FlagContainer, open))(t)
		}
		for _, path := range []string{"/used/nested/x", "/full/x"} {
			suite.Got(c.Create(path, nil, 0, open))(t)
		}
		require.NoError(t, c.Delete("/used/nested/x", -1))

		time.Sleep(59 * time.Second)
		require.True(t, exists(t, c, "/used/nested"))
		time.Sleep(2 * time.Second)
		require.False(t, exists(t, c, "/used/nested"))
		require.True(t, exists(t, c, "/used"), "a parent is reaped the next time")
		time.Sleep(time.Minute)
		require.False(t, exists(t, c, "/used"))
		require.True(t, exists(t, c, "/never"), "one that never had a child stays")
		require.True(t, exists(t, c, "/full"))
	})
}

func TestReapContainersDoesNotWait(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	c.must(t, zkwire.OpCreateContainer, packet{}.create("/c", nil, 4))
	c.must(t, zkwire.OpCreate, packet{}.create("/c/x", nil, 0))
	last := c.must(t, zkwire.OpDelete, packet{}.string("/c/x").int32(-1)).zxid
	c.must(t, zkwire.OpExists, packet{}.string("/c").bool(true))

	s.ReapContainers()
	a := c.must(t, zkwire.OpExists, packet{}.string("/c").bool(false))
	require.EqualValues(t, zkwire.CodeNoNode, a.code)
	require.Equal(t, last+1, a.zxid)
	require.Equal(t, []string{"2 /c"}, c.takeEvents())
}

func TestTTLNodesAreReapedWhenOldAndEmpty(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{ContainerInterval: time.Second}, func(t *testing.T, s *embedded.Server) {
		c := dial(t, s)
		plain := suite.Got(c.CreateTTL("/plain", nil, zk.FlagTTL, open, 10*time.Second))(t)
		sequential := suite.Got(c.CreateTTL("/n-", nil, zk.FlagPersistentSequentialWithTTL, open, 10*time.Second))(t)
		require.True(t, strings.HasPrefix(sequential, "/n-0"))
		full := suite.Got(c.CreateTTL("/full", nil, zk.FlagTTL, open, 10*time.Second))(t)
		suite.Got(c.Create("/full/x", nil, 0, open))(t)

		time.Sleep(9 * time.Second)
		suite.Got(c.Set(sequential, nil, -1))(t)
		_, stat, err := c.Get(sequential)
		require.NoError(t, err)
		require.EqualValues(t, 9000, stat.Mtime-stat.Ctime)
		time.Sleep(3 * time.Second)
		for path, want := range map[string]bool{plain: false, sequential: true, full: true} {
			require.Equal(t, want, exists(t, c, path), path)
		}
		time.Sleep(9 * time.Second)
		require.False(t, exists(t, c, sequential))
	})
}
