package embedded_test

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// results reads the answer to a multi request and returns a line for each part: type, code and
// result.
func (a *answer) results() []string {
	var lines []string
	for {
		op, done, code := a.int32(), a.bool(), a.int32()
		if done {
			return lines
		}

		line := fmt.Sprint(op, " ", code)
		switch op {
		case opCreate:
			line += " " + a.string()
		case opCreate2:
			line += " " + a.string()
			a.stat()
		case opSetData:
			line += fmt.Sprintf(" v%d", a.stat().version)
		case opGetData:
			line += " " + a.string()
			a.stat()
		case opGetChildren:
			line += fmt.Sprint(" ", a.strings())
		case -1:
			line += fmt.Sprint(" ", a.int32())
		}
		lines = append(lines, line)
	}
}

func TestMultiIsOneTransaction(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	before := c.must(t, opCreate, packet{}.create("/old", nil, 0)).zxid

	a := c.must(t, opMulti, packet{}.
		part(opCreate).create("/p", []byte("x"), 0).
		part(opCreate2).create("/p/n-", nil, 2).
		part(opCreateContainer).create("/p/c", nil, 4).
		part(opCreateTTL).create("/p/t", nil, 5).int64(1000).
		part(opCreateTTL).create("/p/plain", nil, 0).int64(1000).
		part(opSetData).string("/p").buffer([]byte("y")).int32(0).
		part(opCheck).string("/p").int32(1).
		part(opDelete).string("/old").int32(0).end())

	require.Zero(t, a.code)
	require.Equal(t, before+1, a.zxid)
	require.Equal(t, []string{
		"1 0 /p", "1 0 /p/n-0000000000", "15 0 /p/c", "15 0 /p/t", "1 0 /p/plain", "5 0 v1", "13 0", "2 0",
	}, a.results())

	st := c.must(t, opExists, packet{}.string("/p").bool(false)).stat()
	require.Equal(t, a.zxid, st.czxid)
	require.Equal(t, a.zxid, st.mzxid)
	require.Equal(t, a.zxid, st.pzxid)
	require.EqualValues(t, 4, st.children)
	require.EqualValues(t, codeNoNode, c.must(t, opExists, packet{}.string("/old").bool(false)).code)
}

func TestMultiFailsAsAWhole(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	before := c.must(t, opPing, nil).zxid
	a := c.must(t, opMulti, packet{}.
		part(opCreate).create("/a", nil, 0).
		part(opCreate).create("/a/b", nil, 0).
		part(opDelete).string("/a").int32(-1).
		part(opSetData).string("/").buffer(nil).int32(-1).
		part(opCheck).string("/none").int32(-1).end())
	require.Zero(t, a.code, "the failure is in the results")
	require.Equal(t, before+1, a.zxid, "and it consumed a zxid")
	require.Equal(t, []string{"-1 0 0", "-1 0 0", "-1 -111 -111", "-1 -2 -2", "-1 -2 -2"}, a.results())
	require.EqualValues(t, codeNoNode, c.must(t, opExists, packet{}.string("/a").bool(false)).code)
	require.Zero(t, c.must(t, opExists, packet{}.string("/").bool(false)).stat().version)
}

func TestMultiChecksAgainstWhatItHasPrepared(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for name, test := range map[string]struct {
		body packet
		want []string
	}{
		"create twice": {packet{}.
			part(opCreate).create("/x", nil, 0).
			part(opCreate).create("/x", nil, 0).end(),
			[]string{"-1 0 0", "-1 -110 -110"}},
		"delete what was created": {packet{}.
			part(opCreate).create("/x", nil, 0).
			part(opDelete).string("/x").int32(0).
			part(opCheck).string("/x").int32(-1).end(),
			[]string{"-1 0 0", "-1 0 0", "-1 -101 -101"}},
		"versions go on": {packet{}.
			part(opCreate).create("/x", nil, 0).
			part(opSetData).string("/x").buffer(nil).int32(0).
			part(opSetData).string("/x").buffer(nil).int32(1).
			part(opCheck).string("/x").int32(1).end(),
			[]string{"-1 0 0", "-1 0 0", "-1 0 0", "-1 -103 -103"}},
		"ephemeral parents": {packet{}.
			part(opCreate).create("/x", nil, 1).
			part(opCreate).create("/x/y", nil, 0).end(),
			[]string{"-1 0 0", "-1 -108 -108"}},
		"access control lists": {packet{}.
			part(opCreate).string("/x").buffer(nil).acl(1, "world", "anyone").int32(0).
			part(opCreate).create("/x/y", nil, 0).end(),
			[]string{"-1 0 0", "-1 -102 -102"}},
	} {
		require.Equal(t, test.want, c.must(t, opMulti, test.body).results(), name)
	}
}

func TestMultiGivesConsecutiveNumbersAndTheParentsNewStat(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, embedded.Config{InMemory: true}))
	_, err := c.Create("/q", nil, 0, open)
	require.NoError(t, err)
	create := &zk.CreateRequest{Path: "/q/n-", Acl: open, Flags: zk.FlagSequence | zk.FlagEphemeral}
	results, err := c.Multi(create, create, &zk.SetDataRequest{Path: "/q", Version: -1})
	require.NoError(t, err)
	require.Equal(t, "/q/n-0000000000", results[0].String)
	require.Equal(t, "/q/n-0000000001", results[1].String)
	require.EqualValues(t, 2, results[2].Stat.NumChildren)
	_, st, err := c.Get("/q/n-0000000000")
	require.NoError(t, err)
	require.Equal(t, st.Czxid, results[2].Stat.Mzxid)
	require.Equal(t, st.Czxid, results[2].Stat.Pzxid)
}

func TestMultiRefusesMalformedRequests(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for name, body := range map[string]packet{
		"reads":             packet{}.part(opGetData).string("/").bool(false).end(),
		"unknown parts":     packet{}.part(99).end(),
		"other writes":      packet{}.part(opSetACL).string("/").open().int32(-1).end(),
		"TTL without field": packet{}.part(opCreate).create("/x", nil, 5).end(),
		"no end":            packet{}.part(opCheck).string("/").int32(-1),
		"nothing":           nil,
	} {
		before := c.must(t, opPing, nil).zxid
		a := c.must(t, opMulti, body)
		require.EqualValues(t, codeMarshalling, a.code, name)
		require.Equal(t, before+1, a.zxid, name)
		require.Empty(t, a.body, name)
	}

	a := c.must(t, opMulti, packet{}.end())
	require.Zero(t, a.code)
	require.Empty(t, a.results())
}

func TestMultiReadAnswersEachPartByItself(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	c.must(t, opCreate, packet{}.create("/a", []byte("data"), 0))
	c.must(t, opCreate, packet{}.string("/secret").buffer(nil).acl(30, "world", "anyone").int32(0))
	c.must(t, opCreate, packet{}.create("/a/b", nil, 0))
	a := c.must(t, opMultiRead, packet{}.
		part(opGetData).string("/a").bool(true).
		part(opGetData).string("/none").bool(false).
		part(opGetChildren).string("/a").bool(true).
		part(opGetChildren).string("/secret").bool(false).end())
	require.Equal(t, []string{"4 0 data", "-1 -101 -101", "8 0 [b]", "-1 -102 -102"}, a.results())
	c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
	require.Empty(t, c.sync(t), "no watches are set")

	for _, body := range []packet{
		packet{}.part(opExists).string("/").bool(false).end(),
		packet{}.part(opDelete).string("/").int32(-1).end(),
		nil,
	} {
		require.EqualValues(t, codeMarshalling, c.must(t, opMultiRead, body).code)
	}
}
