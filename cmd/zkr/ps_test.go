package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// furnish makes a lock, a semaphore, a queue, a group and a barrier below root.
func furnish(t *testing.T, s *recipestest.Server, root string) {
	c := client(t, s)
	_, err := lock.New(c, root+"/lock", lock.WithData([]byte(`{"host":"a.example","pid":7,"program":"backup"}`))).Lock(t.Context())
	require.NoError(t, err)
	session := suite.Session(t, c)
	for _, node := range []struct {
		name  string
		flags int32
	}{{"_c_0123456789abcdef0123456789abcdef-lock-", zk.FlagSequence}, {"\u202eodd", 0}} {
		_, err := session.Conn().Create(session.Path(root+"/lock/"+node.name), []byte("\x1b[2J"), node.flags, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}

	_, err = semaphore.New(c.With(protocol.WithOwnerData(nil)), root+"/permits", 3).Acquire(t.Context())
	require.NoError(t, err)
	_, err = queue.New(c, root+"/queue").Offer(t.Context(), []byte("x"))
	require.NoError(t, err)
	_, err = group.New(c, root+"/group").Join(t.Context(), "host-4", []byte("here"))
	require.NoError(t, err)
	succeed(t, s.ConnectString(), "barrier", "set", root+"/set")
}

// A summary or a note may be long, and stands between rows of contenders.
func TestPsAlignsItsColumns(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	furnish(t, s, root)
	var since []int
	for line := range strings.Lines(succeed(t, s.ConnectString(), "ps", root)) {
		if at := strings.Index(line, "IN LINE SINCE"); at >= 0 {
			since = append(since, at)
		} else if at := sinceColumn.FindStringIndex(line); at != nil {
			since = append(since, at[0]+2)
		}
	}
	require.Greater(t, len(since), 3)
	for _, at := range since {
		assert.Equal(t, since[0], at)
	}
}

// sinceColumn is a time that is a cell.
var sinceColumn = regexp.MustCompile(`  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  `)

func TestPsShowsATable(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root := s.Root(t)
		furnish(t, s, root)
		assert.Equal(t, `PATH  RECIPE  STATE  WHO  SESSION  IN LINE SINCE  HELD SINCE  NODE
ROOT  directory  5 below
ROOT/group  group  member  here  SESSION  TIME  host-4
ROOT/lock  lock  holds  a.example:7 backup  SESSION  TIME  unknown  OWNER-lock-0000000000
ROOT/lock  lock  waits  "\x1b[2J"  TIME  _c_0123456789abcdef0123456789abcdef-lock-0000000001  (orphan: not ephemeral: it stays when its owner has gone)
ROOT/lock  lock  unknown  TIME  "\u202eodd"
ROOT/permits  semaphore  holds  SESSION  TIME  unknown  OWNER-permit-0000000000
ROOT/queue  queue  1 element, oldest TIME
`, blank(succeed(t, s.ConnectString(), "ps", root), root))
	})
}

func TestPsShowsATree(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root := s.Root(t)
		furnish(t, s, root)
		assert.Equal(t, `ROOT
├── group  group: 1 member
│  └── member  here  since TIME  host-4
├── lock  lock: 1 hold, 1 wait
│  ├── holds  a.example:7 backup  in line since TIME, held since unknown  OWNER-lock-0000000000
│  ├── waits  "\x1b[2J"  in line since TIME  _c_0123456789abcdef0123456789abcdef-lock-0000000001  (orphan: not ephemeral: it stays when its owner has gone)
│  └── unknown  "\u202eodd"
├── permits  semaphore: 1 of 3 held, 0 wait
│  └── holds  SESSION  in line since TIME, held since unknown  OWNER-permit-0000000000
├── queue  queue: 1 element, oldest TIME
└── set  leaf: a barrier that is set, or nothing
`, blank(succeed(t, s.ConnectString(), "ps", root, "--tree"), root))
	})
}

func TestPsHasAStableJSON(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		c := client(t, s)
		lease, err := lock.New(c, path, lock.WithData([]byte(`{"host":"a.example","pid":7}`))).Lock(t.Context())
		require.NoError(t, err)

		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(succeed(t, s.ConnectString(), "ps", path, "--json")), &got))
		assert.NotEmpty(t, got["since"])
		contenders := got["contenders"].([]any)
		require.Len(t, contenders, 1)
		holder := contenders[0].(map[string]any)
		assert.NotEmpty(t, holder["since"])
		delete(holder, "since")
		delete(got, "since")
		assert.Equal(t, map[string]any{
			"path": path, "recipe": "lock", "contenders": []any{map[string]any{
				"node": lease.Node(), "state": "holds", "library": "zkrecipes", "session": sessionID(suite.Session(t, c).ID()),
				"token": float64(lease.Token()), "host": "a.example", "pid": 7.0, "data": `{"host":"a.example","pid":7}`,
			}},
		}, got)

		missing := succeed(t, s.ConnectString(), "ps", path+"/none", path+"/none", "--json")
		line := `{"path":"` + path + `/none","recipe":"missing"}` + "\n"
		assert.Equal(t, line+line, missing)
	})
}

func TestPsShowsEachStateOfAPath(t *testing.T) {
	s := recipestest.Start(t)
	root, servers := s.Root(t), s.ConnectString()
	ps := func(path string) string {
		_, row, _ := strings.Cut(blank(succeed(t, servers, "ps", root+path), root), "\n")
		return row
	}
	assert.Equal(t, "ROOT/none  missing  there is no such node\n", ps("/none"))
	succeed(t, servers, "barrier", "set", root+"/set")
	assert.Equal(t, "ROOT/set  leaf  a barrier that is set, or nothing\n", ps("/set"))

	c := client(t, s)
	lease, err := lock.New(c, root+"/used").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	assert.Equal(t, "ROOT/used  empty  not in use\n", ps("/used"))
	assert.Equal(t, "ROOT  directory  2 below\nROOT/used  empty  not in use\n", ps(""))

	q := queue.New(c, root+"/queue")
	_, err = q.Offer(t.Context(), []byte("x"))
	require.NoError(t, err)
	_, err = q.Reserve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "ROOT/queue  queue  1 element, 1 reserved, oldest TIME\nROOT/queue  queue  holds  SESSION  TIME  TIME  qn-N\n", ps("/queue"))

	rw := succeed(t, servers, "ps", root+"/queue", "--limit", "1", "--tree")
	assert.Contains(t, rw, "1 reserved")
}

func TestPsWatchesWhatChanges(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		table := begin(t, s.ConnectString(), "ps", path, "--watch", "--interval", "100ms")
		lines := begin(t, s.ConnectString(), "ps", path, "--watch", "--json", "--interval", "100ms")
		table.output.await(t, `there is no such node\n\z`)
		lines.output.await(t, `"missing"}\n\z`)
		_, err := lock.New(client(t, s), path).Lock(t.Context())
		require.NoError(t, err)
		table.output.await(t, `there is no such node\n\n(?s:.*)PATH[^\n]*\n[^\n]* holds [^\n]*\n\z`)
		lines.output.await(t, `\n{[^\n]*"holds"[^\n]*}\n\z`)
		assert.Zero(t, table.stop())
		assert.Zero(t, lines.stop())
		assert.NotContains(t, lines.output.String(), "\n\n")
	})
}

func TestDrawnScreenHasTheSizeOfTheTerminal(t *testing.T) {
	var b strings.Builder
	require.NoError(t, draw(&b, "title", []byte(strings.Repeat(strings.Repeat("ü", 100)+"\n", 50))))
	lines := strings.Split(b.String(), "\r\n")
	require.Len(t, lines, 24)
	assert.Contains(t, lines[2], strings.Repeat("ü", 79)+"…")
	assert.NotContains(t, lines[2], strings.Repeat("ü", 80))
	assert.Contains(t, lines[23], "… 29 lines more")
}

func TestPsSaysThatItHasNotReadAll(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	for i := range 5 {
		_, err := suite.Session(t, client(t, s)).EnsurePath(t.Context(), fmt.Sprintf("%s/%d/below", root, i))
		require.NoError(t, err)
	}
	for _, args := range [][]string{{"ps"}, {"ps", "--tree"}, {"ps", "--json"}, {"ps", "--quiet"}, {"why"}} {
		r := inProcess(t, s.ConnectString(), "", append(args, root, "--nodes", "3")...)
		assert.Equal(t, exitUnknown, r.status)
		assert.Contains(t, r.stderr, "zkr: 5 nodes not read") // two, and what is below three
		assert.Regexp(t, `unknown: 2 nodes here|"unread":2`, r.stdout)
	}
	r := inProcess(t, s.ConnectString(), "", "ps", root, "--nodes", "10")
	assert.Zero(t, r.status, r.stderr)
}

// What an ACL hides is neither free nor gone.
func TestHiddenIsUnknown(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/hidden"
	mine := client(t, s, protocol.WithAuth("digest", []byte("me:secret")), protocol.WithACL(zk.AuthACL(zk.PermAll)))
	lease, err := lock.New(mine, path).Lock(t.Context())
	require.NoError(t, err)
	for _, args := range [][]string{{"ps", path}, {"why", path}, {"ps", path, "--stuck", "1ms"}, {"break", path, lease.Node(), "--yes"}} {
		r := inProcess(t, s.ConnectString(), "", args...)
		assert.Equal(t, exitUnknown, r.status, args)
		assert.Contains(t, r.stderr, "1 node not read", args)
		assert.Equal(t, args[0] != "break" && len(args) < 3, strings.Contains(r.stdout, "may not be listed"), args)
	}
	assert.Equal(t, ", held by: unknown", heldBy(t.Context(), client(t, s), path))
	assert.Contains(t, succeed(t, s.ConnectString(), "ps", path, "--auth", "digest:me:secret"), "holds")
}

func TestOneLongTextMakesNoOtherLineLong(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	long := strings.Repeat("x", 100_000)
	for name, data := range map[string]string{"host": `{"host":"` + long + `"}`, "text": long, "program": `{"pid":1,"program":"` + long + `"}`} {
		_, err := lock.New(c, root+"/"+name, lock.WithData([]byte(data))).Lock(t.Context())
		require.NoError(t, err)
	}
	_, err := suite.Session(t, c).EnsurePath(t.Context(), root+"/"+long)
	require.NoError(t, err)
	table := succeed(t, s.ConnectString(), "ps", root)
	wide := 0
	for line := range strings.Lines(table) {
		if len(line) > 400 {
			wide++
		}
	}
	assert.LessOrEqual(t, wide, 1, "only the line of the long path is long")
	assert.Less(t, len(succeed(t, s.ConnectString(), "ps", root, "--json")), 120_000)
}
