package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// TestTranscripts runs the command lines of each file in testdata/transcripts, below a path that
// stock has filled. A command line begins with a dollar sign. After it stand its output, the lines
// on stderr and its status (unless that is 0), as blank makes them. An ellipsis stands for the rest
// of a line.
// Output that does not end with a newline ends with a backslash here.
func TestTranscripts(t *testing.T) {
	files := suite.Got(filepath.Glob("testdata/transcripts/*.txt"))(t)
	each(t, func(t *testing.T, s *recipestest.Server) {
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { replay(t, s, file) })
		}
	})
}

// replay runs the command lines of a transcript.
func replay(t *testing.T, s *recipestest.Server, file string) {
	t.Helper()
	text := suite.Got(os.ReadFile(file))(t)
	root := s.Root(t)
	names := stock(t, s, root)
	steps := strings.Split(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString("\n"+string(text), ""), "\n$ ")
	for _, step := range steps[1:] {
		line, want, _ := strings.Cut(step, "\n")
		got := transcribe(t, s.ConnectString(), root, names.Replace(line))
		want = strings.TrimSpace(want)
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
		if !regexp.MustCompile(`\A` + pattern + `\z`).MatchString(got) {
			assert.Equal(t, want, got, line)
		}
	}
}

// transcribe runs a command line, and returns its output as it stands in a transcript.
func transcribe(t *testing.T, servers, root, line string) string {
	t.Helper()
	args, stdin := words(t, line), ""
	if n := len(args); n > 2 && args[n-2] == "<" {
		args, stdin = args[:n-2], args[n-1]
	}
	var r result
	if slices.Contains(args, "--") && args[0] != "value" {
		if runtime.GOOS == "windows" {
			t.Skip("commands are refused here")
		}
		cmd := zkr(t, servers, args...)
		cmd.Stdin = strings.NewReader(stdin)
		r = finish(t, cmd)
	} else {
		r = inProcess(t, servers, stdin, args...)
	}

	var lines []string
	if r.stdout != "" {
		whole, ends := strings.CutSuffix(r.stdout, "\n")
		for line := range strings.SplitSeq(whole, "\n") {
			lines = append(lines, harmless(line))
		}
		if !ends {
			lines[len(lines)-1] += `\`
		}
	}
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "zkr: waiting for ") { // on a busy machine
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if r.status != 0 {
		lines = append(lines, fmt.Sprintf("[%d]", r.status))
	}
	return strings.TrimSpace(blank(strings.Join(lines, "\n"), root))
}

// words splits a command line into words, of which some stand in quotes as in Go.
func words(t *testing.T, line string) (all []string) {
	t.Helper()
	for line != "" {
		word, rest, _ := strings.Cut(line, " ")
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			rest = strings.TrimPrefix(line[len(quoted):], " ")
			word = suite.Got(strconv.Unquote(quoted))(t)
		}
		all, line = append(all, word), rest
	}
	return all
}

// stock makes what the transcripts ask about, and returns what their command lines have names for.
func stock(t *testing.T, s *recipestest.Server, root string) *strings.Replacer {
	t.Helper()
	furnish(t, s, root)
	c := client(t, s)
	suite.Got(election.New(c, root+"/leader").Campaign(t.Context(), []byte("http://a:80")))(t)
	suite.Got(group.New(c, root+"/group").Join(t.Context(), "a", []byte("\x1b[2J")))(t)
	for _, key := range []string{"2030-01-31", "odd\x1b"} {
		_, err := once.New(c, root+"/once").Do(t.Context(), key, func(context.Context, *once.Run) error { return nil })
		require.NoError(t, err)
	}

	// A queue with a reserved element, and a queue with its dead letter.
	q := queue.New(c, root+"/mail", queue.WithDeadLetter(queue.New(c, root+"/dead"), 1))
	reserve := func(data string) *queue.Item {
		suite.Got(q.Offer(t.Context(), []byte(data)))(t)
		item := suite.Must(t, q.Reserve)
		return item
	}
	require.NoError(t, reserve("letter").Nack(t.Context(), queue.Because(errors.New("no paper"))))
	reserved := reserve("reserved").ID()

	// Contenders of hosts that there are not, and a lock that nobody may have.
	session := suite.Session(t, c)
	for i, node := range []string{
		"line/a-lock-0000000000", "line/b-lock-0000000001", "line/c-lock-0000000002",
		"runs/OWNER-k-run-0000000003", "runs/OWNER-l-run-0000000004", "runs/OWNER-k-run-0000000005",
		"permits/OWNER-permit-0000001001", "permits/OWNER-permit-0000001002", "permits/OWNER-permit-0000001003",
	} {
		node = root + "/" + strings.ReplaceAll(node, "OWNER", session.NewOwner().String())
		suite.Ensure(t, session, path.Dir(node))
		data := fmt.Appendf(nil, `{"host":"host-%d","pid":%d}`, i, 1+i)
		require.NoError(t, session.Create(t.Context(), node, data, zk.FlagEphemeral))
	}
	for _, node := range []string{"/closed", "/closed/used"} {
		require.NoError(t, session.Create(t.Context(), root+node, nil, 0))
	}
	require.NoError(t, session.Delete(t.Context(), root+"/closed/used", -1))
	suite.Got(session.Conn().SetACL(session.Path(root+"/closed"), zk.WorldACL(zk.PermRead), -1))(t)
	return strings.NewReplacer("ROOT", root, "SESSION", sessionID(session.ID()), "RESERVED", reserved)
}
