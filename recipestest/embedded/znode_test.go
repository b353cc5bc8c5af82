package embedded_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestStatReflectsEveryChange(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := connect(t, s, hello{timeout: 40000})
		c.nc.SetDeadline(time.Time{})
		stat := func(path string) znodeStat {
			t.Helper()
			a := c.must(t, opExists, packet{}.string(path).bool(false))
			require.Zero(t, a.code)
			return a.stat()
		}
		born := time.Now().UnixMilli()
		created := c.must(t, opCreate, packet{}.create("/a", []byte("data"), 0))
		require.Equal(t, "/a", created.string())
		first := created.zxid
		require.Equal(t, znodeStat{
			czxid: first, mzxid: first, pzxid: first, ctime: born, mtime: born, length: 4,
		}, stat("/a"))

		time.Sleep(5 * time.Second)
		set := c.must(t, opSetData, packet{}.string("/a").buffer([]byte("longer")).int32(0))
		want := znodeStat{
			czxid: first, mzxid: first + 1, pzxid: first, ctime: born, mtime: born + 5000, version: 1, length: 6,
		}
		require.Equal(t, want, set.stat())
		require.Equal(t, want, stat("/a"))

		c.must(t, opCreate, packet{}.create("/a/x", nil, 1))
		c.must(t, opCreate, packet{}.create("/a/y", nil, 0))
		c.must(t, opDelete, packet{}.string("/a/x").int32(-1))
		want.cversion, want.children, want.pzxid = 3, 1, first+4
		require.Equal(t, want, stat("/a"))

		acl := c.must(t, opSetACL, packet{}.string("/a").open().int32(0))
		want.aversion = 1
		require.Equal(t, want, acl.stat())
		require.Equal(t, want, stat("/a"))

		c.must(t, opCreate, packet{}.create("/mine", nil, 1))
		require.Equal(t, c.session, stat("/mine").owner)
	})
}

func TestNullAndEmptyDataAreDistinct(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for i, data := range [][]byte{nil, {}, []byte("x")} {
		path := fmt.Sprintf("/n%d", i)
		require.Zero(t, c.must(t, opCreate, packet{}.create(path, data, 0)).code)
		require.Equal(t, data, c.must(t, opGetData, packet{}.string(path).bool(false)).buffer())
	}
}

func TestCreateVariantsAnswerWithPathAndStat(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for i, op := range []int32{opCreate2, opCreateContainer, opCreateTTL} {
		path := fmt.Sprintf("/n%d", i)
		flags := map[int32]int32{opCreateContainer: 4, opCreateTTL: 5}[op]
		body := packet{}.create(path, nil, flags)
		if op == opCreateTTL {
			body = body.int64(1000)
		}

		a := c.must(t, op, body)
		require.Zero(t, a.code)
		require.Equal(t, path, a.string())
		st := a.stat()
		require.Equal(t, a.zxid, st.czxid)
		require.Zero(t, st.owner, "neither containers nor TTL nodes show an owner")
		require.Empty(t, a.body)
	}
}

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	c.must(t, opCreate, packet{}.create("/mine", nil, 1))
	for name, test := range map[string]struct {
		op   int32
		body packet
		code int32
	}{
		"exists":                  {opCreate, packet{}.create("/a", nil, 0), codeNodeExists},
		"the root":                {opCreate, packet{}.create("/", nil, 0), codeNodeExists},
		"no parent":               {opCreate, packet{}.create("/none/a", nil, 0), codeNoNode},
		"ephemeral parent":        {opCreate, packet{}.create("/mine/a", nil, 0), codeEphemeralParent},
		"no slash":                {opCreate, packet{}.create("a", nil, 0), codeBadArguments},
		"empty path":              {opCreate, packet{}.create("", nil, 0), codeBadArguments},
		"trailing slash":          {opCreate, packet{}.create("/a/", nil, 0), codeBadArguments},
		"empty name":              {opCreate, packet{}.create("//b", nil, 0), codeBadArguments},
		"dot":                     {opCreate, packet{}.create("/a/.", nil, 0), codeBadArguments},
		"dots":                    {opCreate, packet{}.create("/a/..", nil, 0), codeBadArguments},
		"zero byte":               {opCreate, packet{}.create("/\x00", nil, 0), codeBadArguments},
		"control character":       {opCreate, packet{}.create("/\x1f", nil, 0), codeBadArguments},
		"delete character":        {opCreate, packet{}.create("/\x7f", nil, 0), codeBadArguments},
		"private use area":        {opCreate, packet{}.create("/\ue000", nil, 0), codeBadArguments},
		"beyond the basic plane":  {opCreate, packet{}.create("/\U0001f600", nil, 0), codeBadArguments},
		"special":                 {opCreate, packet{}.create("/\ufff0", nil, 0), codeBadArguments},
		"broken UTF-8":            {opCreate, packet{}.create("/\xff", nil, 0), codeBadArguments},
		"unknown flags":           {opCreate, packet{}.create("/b", nil, 7), codeBadArguments},
		"negative flags":          {opCreate, packet{}.create("/b", nil, -1), codeBadArguments},
		"TTL without a field":     {opCreate, packet{}.create("/b", nil, 5), codeBadArguments},
		"TTL of zero":             {opCreateTTL, packet{}.create("/b", nil, 5).int64(0), codeBadArguments},
		"TTL too long":            {opCreateTTL, packet{}.create("/b", nil, 5).int64(1 << 40), codeBadArguments},
		"TTL field without flags": {opCreateTTL, packet{}.create("/b", nil, 0).int64(1000), codeBadArguments},
		"no ACL":                  {opCreate, packet{}.string("/b").buffer(nil).int32(0).int32(0), codeInvalidACL},
		"null ACL":                {opCreate, packet{}.string("/b").buffer(nil).int32(-1).int32(0), codeInvalidACL},
		"truncated":               {opCreate, packet{}.string("/b").buffer(nil).open(), codeMarshalling},
	} {
		before := c.must(t, opPing, nil).zxid
		a := c.must(t, test.op, test.body)
		require.Equal(t, test.code, a.code, name)
		require.Empty(t, a.body, name)
		require.Equal(t, before+1, a.zxid, "%s: a failed write consumes a zxid", name)
	}

	for _, path := range []string{"/é", "/...", "/a/.b", "/a b", "/a/b.", "/日本"} {
		require.Zero(t, c.must(t, opCreate, packet{}.create(path, nil, 0)).code, path)
	}
}

func TestDeleteRefusals(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	c.must(t, opCreate, packet{}.create("/a/b", nil, 0))
	for _, test := range []struct {
		path    string
		version int32
		code    int32
	}{
		{"/a", -1, codeNotEmpty},
		{"/a", 5, codeBadVersion},
		{"/a/b", 1, codeBadVersion},
		{"/a/none", -1, codeNoNode},
		{"/none/none", -1, codeNoNode},
		{"none", -1, codeBadArguments},
		{"/", -1, codeBadArguments},
		{"/zookeeper", -1, codeBadArguments},
		{"/zookeeper/quota", -1, codeBadArguments},
		{"/zookeeper/config", -1, codeBadArguments},
		{"/a/b", 0, 0},
		{"/a", 0, 0},
	} {
		before := c.must(t, opPing, nil).zxid
		a := c.must(t, opDelete, packet{}.string(test.path).int32(test.version))
		require.Equal(t, test.code, a.code, "%s %d", test.path, test.version)
		require.Equal(t, before+1, a.zxid)
	}
}

func TestReadsConsumeNoZxid(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	last := c.must(t, opPing, nil).zxid
	for _, op := range []int32{opExists, opGetData, opGetChildren, opGetChildren2} {
		for _, path := range []string{"/", "/none"} {
			a := c.must(t, op, packet{}.string(path).bool(false))
			require.Equal(t, last, a.zxid)
			require.Equal(t, path == "/none", a.code == codeNoNode)
		}
	}
	require.Equal(t, "/none", c.must(t, opSync, packet{}.string("/none")).string())
	require.EqualValues(t, codeBadArguments, c.must(t, opExists, packet{}.string("/\x00").bool(false)).code)
	require.EqualValues(t, codeMarshalling, c.must(t, opGetData, packet{}.string("/")).code)
}

func TestVersionsAreChecked(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	set := func(version int32) int32 {
		return c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(version)).code
	}
	require.EqualValues(t, codeBadVersion, set(1))
	require.Zero(t, set(0))
	require.EqualValues(t, codeBadVersion, set(0))
	require.Zero(t, set(-1))
	require.Zero(t, set(2))
	require.EqualValues(t, codeBadVersion, c.must(t, opSetACL, packet{}.string("/a").open().int32(3)).code)
	require.Zero(t, c.must(t, opSetACL, packet{}.string("/a").open().int32(0)).code)
	require.EqualValues(t, 3, c.must(t, opCheck, packet{}.string("/a").int32(3)).stat().version)
	require.EqualValues(t, codeBadVersion, c.must(t, opCheck, packet{}.string("/a").int32(4)).code)
}

func TestSequenceNumbersCountCreatesAndNotDeletes(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, embedded.Config{InMemory: true}))
	create := func(path string, flags int32) string {
		t.Helper()
		created, err := c.Create(path, nil, flags, open)
		require.NoError(t, err)
		return created
	}
	create("/q", 0)
	require.Equal(t, "/q/n-0000000000", create("/q/n-", zk.FlagSequence))
	require.NoError(t, c.Delete("/q/n-0000000000", -1))
	require.Equal(t, "/q/n-0000000001", create("/q/n-", zk.FlagSequence|zk.FlagEphemeral))
	create("/q/plain", 0)
	require.Equal(t, "/q/0000000003", create("/q/", zk.FlagSequence))

	// A new node of the same name counts from zero.
	for _, child := range []string{"n-0000000001", "plain", "0000000003"} {
		require.NoError(t, c.Delete("/q/"+child, -1))
	}
	require.NoError(t, c.Delete("/q", -1))
	create("/q", 0)
	require.Equal(t, "/q/n-0000000000", create("/q/n-", zk.FlagSequence))
}

func TestSequenceCounterSticksAtItsEnd(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	create := func(path string) *answer {
		return c.must(t, opCreate, packet{}.create(path, nil, 2))
	}
	pzxid := func() int64 {
		return c.must(t, opExists, packet{}.string("/q").bool(false)).stat().pzxid
	}
	c.must(t, opCreate, packet{}.create("/q", nil, 0))
	require.NoError(t, s.SetSequence("/q", math.MaxInt32-2))
	require.Equal(t, "/q/a-2147483645", create("/q/a-").string())
	last := create("/q/b-")
	require.Equal(t, "/q/b-2147483646", last.string())

	// From here on the number repeats, and the parent's pzxid no longer changes.
	require.Equal(t, "/q/c-2147483647", create("/q/c-").string())
	require.Equal(t, "/q/d-2147483647", create("/q/d-").string())
	require.EqualValues(t, codeNodeExists, create("/q/d-").code)
	require.Equal(t, last.zxid, pzxid())

	// Creations in one transaction see the counter overflow.
	m := c.must(t, opMulti, packet{}.
		part(opCreate).create("/q/m-", nil, 2).
		part(opCreate).create("/q/m-", nil, 2).
		part(opCreate).create("/q/m-", nil, 2).end())
	require.Equal(t, []string{
		"1 0 /q/m-2147483647", "1 0 /q/m--2147483648", "1 0 /q/m--2147483647",
	}, m.results())
	require.Equal(t, last.zxid, pzxid())
	require.Equal(t, "/q/e-2147483647", create("/q/e-").string())

	// Deletions change the pzxid.
	del := c.must(t, opDelete, packet{}.string("/q/e-2147483647").int32(-1))
	require.Equal(t, del.zxid, pzxid())
}

func TestSystemNodesAreThere(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	a := c.must(t, opGetChildren2, packet{}.string("/").bool(false))
	require.Equal(t, []string{"zookeeper"}, a.strings())
	require.Equal(t, znodeStat{cversion: -1, children: 1}, a.stat())
	a = c.must(t, opGetChildren2, packet{}.string("/zookeeper").bool(false))
	require.ElementsMatch(t, []string{"quota", "config"}, a.strings())
	require.Equal(t, znodeStat{cversion: -2, children: 2}, a.stat())
	require.EqualValues(t, codeNoAuth, c.must(t, opSetData, packet{}.string("/zookeeper/config").buffer(nil).int32(-1)).code)
	require.EqualValues(t, 3, c.must(t, opCountChildren, packet{}.string("/")).int32())
}

func TestCountsOfDescendants(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/ab", "/a/d"} {
		c.must(t, opCreate, packet{}.create(path, nil, 0))
	}
	require.EqualValues(t, 3, c.must(t, opCountChildren, packet{}.string("/a")).int32())
	require.EqualValues(t, 8, c.must(t, opCountChildren, packet{}.string("/")).int32())
	require.EqualValues(t, codeNoNode, c.must(t, opCountChildren, packet{}.string("/none")).code)
}

func TestEphemeralsOfTheSessionAreListed(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, other := connect(t, s, hello{}), connect(t, s, hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	c.must(t, opCreate, packet{}.create("/a/mine", nil, 1))
	c.must(t, opCreate, packet{}.create("/mine", nil, 1))
	other.must(t, opCreate, packet{}.create("/other", nil, 1))
	list := func(prefix packet) []string { return c.must(t, opGetEphemerals, prefix).strings() }
	require.ElementsMatch(t, []string{"/a/mine", "/mine"}, list(packet{}.string("/")))
	require.ElementsMatch(t, []string{"/a/mine", "/mine"}, list(packet{}.int32(-1)))
	require.Equal(t, []string{"/a/mine"}, list(packet{}.string("/a")))
	require.Empty(t, list(packet{}.string("/other")))
}

func TestChildrenSurviveAnyOrderOfDeletion(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, embedded.Config{InMemory: true}))
	_, err := c.Create("/p", nil, 0, open)
	require.NoError(t, err)
	want := map[string]bool{}
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		_, err := c.Create("/p/"+name, nil, 0, open)
		require.NoError(t, err)
		want[name] = true
	}

	for _, i := range []int{19, 0, 7, 8, 18, 1, 10, 2} {
		name := fmt.Sprintf("n%d", i)
		require.NoError(t, c.Delete("/p/"+name, -1))
		delete(want, name)
		names, st, err := c.Children("/p")
		require.NoError(t, err)
		require.Len(t, names, len(want))
		require.EqualValues(t, len(want), st.NumChildren)
		for _, name := range names {
			require.True(t, want[name])
		}
	}
}

func TestNoContainersRefusesContainers(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{NoContainers: true, InMemory: true})
	c := connect(t, s, hello{timeout: 10000})
	require.NoError(t, c.send(opCreateContainer, packet{}.create("/c", nil, 4)))
	a, err := c.receive()
	require.NoError(t, err)
	require.EqualValues(t, codeUnimplemented, a.code)
	_, err = c.receive()
	require.Error(t, err, "the connection is closed")
	requireAlive(t, s)
}

func TestContainersAreReapedWhenTheirLastChildIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := dial(t, s)
		for _, path := range []string{"/never", "/used", "/used/nested", "/full"} {
			_, err := c.CreateContainer(path, nil, zk.FlagContainer, open)
			require.NoError(t, err)
		}
		for _, path := range []string{"/used/nested/x", "/full/x"} {
			_, err := c.Create(path, nil, 0, open)
			require.NoError(t, err)
		}
		require.NoError(t, c.Delete("/used/nested/x", -1))

		exists := func(path string) bool {
			ok, _, err := c.Exists(path)
			require.NoError(t, err)
			return ok
		}

		time.Sleep(59 * time.Second)
		require.True(t, exists("/used/nested"))
		time.Sleep(2 * time.Second)
		require.False(t, exists("/used/nested"))
		require.True(t, exists("/used"), "a parent is reaped the next time")
		time.Sleep(time.Minute)
		require.False(t, exists("/used"))
		require.True(t, exists("/never"), "one that never had a child stays")
		require.True(t, exists("/full"))
	})
}

func TestReapContainersDoesNotWait(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	c.must(t, opCreateContainer, packet{}.create("/c", nil, 4))
	c.must(t, opCreate, packet{}.create("/c/x", nil, 0))
	last := c.must(t, opDelete, packet{}.string("/c/x").int32(-1)).zxid
	c.must(t, opExists, packet{}.string("/c").bool(true))

	s.ReapContainers()
	a := c.must(t, opExists, packet{}.string("/c").bool(false))
	require.EqualValues(t, codeNoNode, a.code)
	require.Equal(t, last+1, a.zxid)
	require.Equal(t, []string{"2 /c"}, c.takeEvents())
}

func TestTTLNodesAreReapedWhenOldAndEmpty(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{ContainerInterval: time.Second}, func(t *testing.T, s *embedded.Server) {
		c := dial(t, s)
		plain, err := c.CreateTTL("/plain", nil, zk.FlagTTL, open, 10*time.Second)
		require.NoError(t, err)
		sequential, err := c.CreateTTL("/n-", nil, zk.FlagPersistentSequentialWithTTL, open, 10*time.Second)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(sequential, "/n-0"))
		full, err := c.CreateTTL("/full", nil, zk.FlagTTL, open, 10*time.Second)
		require.NoError(t, err)
		_, err = c.Create("/full/x", nil, 0, open)
		require.NoError(t, err)

		time.Sleep(9 * time.Second)
		_, err = c.Set(sequential, nil, -1)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		for path, want := range map[string]bool{plain: false, sequential: true, full: true} {
			ok, _, err := c.Exists(path)
			require.NoError(t, err)
			require.Equal(t, want, ok, path)
		}
		time.Sleep(9 * time.Second)
		ok, _, err := c.Exists(sequential)
		require.NoError(t, err)
		require.False(t, ok)
	})
}
