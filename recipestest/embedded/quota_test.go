package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// setQuota sets a quota for a top-level node, as the command line client does.
func setQuota(t *testing.T, c *wireClient, path, limits string) {
	t.Helper()
	for _, n := range [][2]string{{"", ""}, {"/zookeeper_limits", limits}, {"/zookeeper_stats", "count=0,bytes=0"}} {
		require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/zookeeper/quota"+path+n[0], []byte(n[1]), 0)).code)
	}
}

func TestQuotasAreEnforced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, embedded.Config{InMemory: true, EnforceQuota: true, Dir: dir})
	c := connect(t, s, hello{})
	code := func(op zkwire.Op, body packet) zkwire.Code {
		t.Helper()
		return c.must(t, op, body).code
	}
	add := func(path, data string, flags int32) zkwire.Code {
		t.Helper()
		return code(zkwire.OpCreate, packet{}.create(path, []byte(data), flags))
	}
	put := func(path, data string) zkwire.Code {
		t.Helper()
		return code(zkwire.OpSetData, packet{}.string(path).buffer([]byte(data)).int32(-1))
	}
	used := func() string {
		t.Helper()
		return string(c.must(t, zkwire.OpGetData, packet{}.string("/zookeeper/quota/a/zookeeper_stats").bool(false)).Buffer())
	}

	// What is there already counts, and the node itself.
	require.Zero(t, add("/a", "12", 0))
	require.Zero(t, add("/a/b", "345", 0))
	setQuota(t, c, "/a", "count=1,bytes=1=;byteHardLimit=10;countHardLimit=4")
	require.Equal(t, "count=2,bytes=5", used())
	require.Zero(t, add("/ab", "not below it, and long", 0))

	// Creates up to the limits, and no more. The limits without "Hard" are warnings.
	require.Zero(t, add("/a/b/c", "", 1))
	require.EqualValues(t, zkwire.CodeQuotaExceeded, add("/a/d", "123456", 0), "too many bytes")
	require.Zero(t, add("/a/d", "12345", 0))
	require.Equal(t, "count=4,bytes=10", used())
	require.EqualValues(t, zkwire.CodeQuotaExceeded, add("/a/n-", "", 3), "too many nodes")
	require.EqualValues(t, zkwire.CodeNodeExists, add("/a/d", "", 0), "which is found first")

	// Data may grow to the limit, too.
	require.EqualValues(t, zkwire.CodeQuotaExceeded, put("/a", "123"))
	require.EqualValues(t, zkwire.CodeQuotaExceeded, code(zkwire.OpSetData, packet{}.string("/a").buffer([]byte("123")).int32(7)))
	require.Zero(t, put("/a", "21"))
	require.Zero(t, put("/a/d", "1234"))
	require.Zero(t, put("/a", "123"))
	require.Equal(t, "count=4,bytes=10", used())

	// Above a limit, data of the same size is accepted, and even smaller data is not.
	limits := "/zookeeper/quota/a/zookeeper_limits"
	require.Zero(t, put(limits, "byteHardLimit=5;countHardLimit=4"))
	require.Zero(t, put("/a", "321"))
	require.EqualValues(t, zkwire.CodeQuotaExceeded, put("/a", "32"))

	// In a transaction that operation fails.
	a := c.must(t, zkwire.OpMulti, append(
		packet{}.part(zkwire.OpCheck).string("/a").int32(-1),
		append(packet{}.part(zkwire.OpCreate).create("/a/x", nil, 0), packet{}.end()...)...))
	require.Zero(t, a.code)
	a.Rest = a.Rest[4+1+4+4+4+1:] // the check's result, and type and done of the other
	require.EqualValues(t, zkwire.CodeQuotaExceeded, a.Int32())

	// Deletes work, and make room. So does the end of a session.
	require.Zero(t, code(zkwire.OpDelete, packet{}.string("/a/d").int32(-1)))
	require.Equal(t, "count=3,bytes=6", used())
	require.Zero(t, add("/a/e", "", 0))
	require.True(t, s.ExpireSession(c.session))
	c = connect(t, s, hello{})
	require.Equal(t, "count=3,bytes=6", used())

	// The next server goes on counting.
	require.NoError(t, s.Close())
	c = connect(t, start(t, embedded.Config{InMemory: true, EnforceQuota: true, Dir: dir}), hello{})
	require.Zero(t, add("/a/f", "", 0))
	require.EqualValues(t, zkwire.CodeQuotaExceeded, add("/a/g", "", 0))

	// A nearer quota counts alone. Without any there is no limit.
	setQuota(t, c, "/a/b", "countHardLimit=-1")
	require.Zero(t, add("/a/b/g", "long enough", 0))
	require.Equal(t, "count=4,bytes=6", used())
	require.Zero(t, code(zkwire.OpDelete, packet{}.string(limits).int32(-1)))
	require.Zero(t, add("/a/g", "long enough", 0))
}

func TestQuotasAreOnlyCountedByDefault(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	f := s.Follower()
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/a", nil, 0)).code)
	setQuota(t, c, "/a", "count=1,bytes=-1=;countHardLimit=1")
	require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/a/b", nil, 0)).code)
	stats := packet{}.string("/zookeeper/quota/a/zookeeper_stats").bool(false)
	a := connect(t, f, hello{}).must(t, zkwire.OpGetData, stats)
	require.Equal(t, "count=2,bytes=0", a.String())
}
