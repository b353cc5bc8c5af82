package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestElementsAreNotTakenForAClosedOutput(t *testing.T) {
	s := recipestest.Start(t)
	path, servers := s.Root(t)+"/queue", s.ConnectString()
	succeed(t, servers, "queue", "offer", path, "a", "b")
	shell := func(script string, args ...string) result {
		cmd := zkr(t, servers, args...)
		cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		return finish(t, cmd)
	}
	// With such an output, no element is taken.
	for _, verb := range []string{"take", "drain"} {
		for _, closed := range []string{">&-", "1<>/dev/null"} { // the second is how many programs start others
			r := shell(`exec "$@" `+closed, "queue", verb, path)
			assert.Equal(t, exitUsage, r.status)
			assert.Equal(t, "zkr: standard output is closed, or the null device opened to read and write, "+
				"so elements would be lost: to discard them, use >/dev/null\n", r.stderr)
		}
	}
	// A closed input is no data.
	r := shell(`exec "$@" <&-`, "queue", "offer", path)
	assert.Equal(t, exitUsage, r.status)
	assert.Contains(t, r.stderr, "standard input is closed")
	assert.Equal(t, "2\n", succeed(t, servers, "queue", "len", path))

	// Elements that cannot be written stay, and elements that are written go.
	for _, verb := range []string{"take", "drain"} {
		r := shell(`exec "$@" >/dev/full`, "queue", verb, path)
		assert.Equal(t, exitFailed, r.status, r.stderr)
		assert.Contains(t, r.stderr, "stays in the queue: write /dev/stdout: no space left")
		assert.Equal(t, "2\n", succeed(t, servers, "queue", "len", path))
	}
	r = shell(`exec "$@" >/dev/null`, "queue", "drain", path)
	assert.Zero(t, r.status, r.stderr)
	r = shell(`exec "$@" >&-`, "queue", "drain", "--await", path)
	assert.Zero(t, r.status, r.stderr)
}

func TestKilledTakeLosesNothing(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/queue"
	q := queue.New(client(t, s), path)
	_, err := q.Offer(t.Context(), make([]byte, 200_000)) // more than a pipe holds
	require.NoError(t, err)

	cmd := zkr(t, s.ConnectString(), "queue", "take", path)
	out := suite.Got(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	// The command has begun to print, and blocks because the pipe is full.
	suite.Got(out.Read(make([]byte, 1)))(t)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	// Expire its session now, because the test need not wait for the timeout.
	for i, err := range q.List(t.Context()) {
		require.NoError(t, err)
		s.ExpireSession(i.Holder)
	}
	data := suite.Must(t, q.Take)
	require.Len(t, data, 200_000)
}

func TestElementsThatAreTooLargeAreRefused(t *testing.T) {
	s := recipestest.Start(t)
	for _, args := range [][]string{{}, {"--lines"}} {
		r := inProcess(t, s.ConnectString(), strings.Repeat("x", recipe.MaxData+10), append([]string{"queue", "offer", s.Root(t)}, args...)...)
		assert.Equal(t, exitUsage, r.status, r.stderr)
	}
}

func TestElementsWithAPriorityAreSeen(t *testing.T) {
	s := recipestest.Start(t)
	path, servers := s.Root(t)+"/queue", s.ConnectString()
	q := queue.New(client(t, s), path, queue.WithPriorities())
	for _, priority := range []int{200, 1, 7} {
		suite.Got(q.OfferPriority(t.Context(), priority, []byte{byte(priority)}))(t)
	}
	succeed(t, servers, "queue", "offer", path, "plain")
	assert.Equal(t, "4\n", succeed(t, servers, "queue", "len", path))
	assert.Equal(t, "\x01", succeed(t, servers, "queue", "peek", path))
	assert.Equal(t, "\x01", succeed(t, servers, "queue", "take", path))
	assert.Equal(t, "\x07\nplain\n\xc8\n", succeed(t, servers, "queue", "drain", path))
}

// JSON has no form for the times at which somebody says that two of the elements were offered.
func TestTimesThatAreMadeUpAreLeftOut(t *testing.T) {
	s := recipestest.Start(t)
	path, servers, c := s.Root(t)+"/queue", s.ConnectString(), client(t, s)
	later := suite.Got(queue.New(c, path).OfferAfter(t.Context(), time.Hour, nil))(t)
	node := regexp.MustCompile(`/\S+` + later).FindString(s.Dump(path))
	for i, since := range []string{"9223372036854775807", "-9223372036854775808"} {
		record := []byte(`{"since":` + since + "}\n")
		require.NoError(t, suite.Session(t, c).Create(t.Context(), fmt.Sprint(node, i), record, 0))
	}
	assert.Equal(t, 3, strings.Count(succeed(t, servers, "queue", "list", path, "--json"), `"since":"2`))
	assert.Contains(t, succeed(t, servers, "ps", path, "--json"), `"length":3`)
}
