package main

import (
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
	suite.Must(t, lock.New(c, root+"/lock", lock.WithData([]byte(`{"host":"a.example","pid":7,"program":"backup"}`))).Lock)
	session := suite.Session(t, c)
	for _, node := range []struct {
		name  string
		flags int32
	}{{"_c_0123456789abcdef0123456789abcdef-lock-", zk.FlagSequence}, {"\u202eodd", 0}} {
		_, err := session.Conn().Create(session.Path(root+"/lock/"+node.name), []byte("\x1b[2J"), node.flags, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}

	suite.Must(t, semaphore.New(c.With(protocol.WithOwnerData(nil)), root+"/permits", 3).Acquire)
	suite.Got(queue.New(c, root+"/queue").Offer(t.Context(), []byte("x")))(t)
	suite.Got(group.New(c, root+"/group").Join(t.Context(), "host-4", []byte("here")))(t)
	succeed(t, s.ConnectString(), "barrier", "set", root+"/set")
}

// A summary or a note may be long, and stands between rows of contenders.
func TestTableAlignsItsColumns(t *testing.T) {
	var b strings.Builder
	require.NoError(t, table{
		{"PATH", "STATE", "NODE"}, {"/a", "holds", "n"}, {"/a", "a long note"}, {"/long", "", "x"}, {"/a", "", ""},
	}.write(&b))
	assert.Equal(t, "PATH   STATE  NODE\n/a     holds  n\n/a     a long note\n/long         x\n/a\n", b.String())
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

func TestOneLongTextMakesNoOtherLineLong(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	long := strings.Repeat("x", 100_000)
	for name, data := range map[string]string{"host": `{"host":"` + long + `"}`, "text": long, "program": `{"pid":1,"program":"` + long + `"}`} {
		suite.Must(t, lock.New(c, root+"/"+name, lock.WithData([]byte(data))).Lock)
	}
	suite.Ensure(t, suite.Session(t, c), root+"/"+long)
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
