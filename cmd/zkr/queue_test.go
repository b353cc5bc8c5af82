package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestQueueCommandsKeepOrderAndBytes(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path, servers := s.Root(t)+"/queue", s.ConnectString()
		const odd = "\x00\xff\n\x1b[2J"
		assert.Regexp(t, `\Aqn-\d{10}\nqn-\d{10}\n\z`, succeed(t, servers, "queue", "offer", path, "a", ""))
		require.Zero(t, inProcess(t, servers, odd, "queue", "offer", path).status)
		r := inProcess(t, servers, "c\nd\r\n\ne", "queue", "offer", path, "--lines", "--json")
		require.Zero(t, r.status, r.stderr)
		assert.Equal(t, 4, strings.Count(r.stdout, `{"id":"qn-`))
		assert.Equal(t, "7\n", succeed(t, servers, "queue", "len", path))
		assert.Equal(t, "{\"length\":7}\n", succeed(t, servers, "queue", "len", path, "--json"))

		assert.Equal(t, "a", succeed(t, servers, "queue", "peek", path))
		assert.Equal(t, "a", succeed(t, servers, "queue", "take", path))
		assert.Equal(t, "", succeed(t, servers, "queue", "take", path, "--try"))
		assert.Equal(t, "{\"data_base64\":\"AP8KG1sySg==\"}\n", succeed(t, servers, "queue", "peek", path, "--json"))
		assert.Equal(t, odd, succeed(t, servers, "queue", "take", path))
		assert.Regexp(t, `\A{"id":"qn-\d+","attempt":1,"data":"c"}\n\z`, succeed(t, servers, "queue", "take", path, "--json"))
		assert.Equal(t, "d\n\ne\n", succeed(t, servers, "queue", "drain", path))

		for _, args := range [][]string{{"peek", path}, {"take", path, "--try"}} {
			r := inProcess(t, servers, "", append([]string{"queue"}, args...)...)
			assert.Equal(t, exitBusy, r.status, args)
		}
		r = inProcess(t, servers, "", "queue", "take", path, "--wait", "50ms")
		assert.Contains(t, outOfTime, r.status, r.stderr)
		assert.Empty(t, succeed(t, servers, "queue", "drain", path, "--await"))
	})
}

func TestTakeWaitsForAnElement(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/queue"
		taken := suite.Later(func() string { return succeed(t, s.ConnectString(), "queue", "take", path) })
		succeed(t, s.ConnectString(), "queue", "offer", path, "late")
		assert.Equal(t, "late", suite.Wait(t, taken))
	})
}

func TestOfferWithAKeyOffersOnce(t *testing.T) {
	s := recipestest.Start(t)
	path, servers := s.Root(t)+"/queue", s.ConnectString()
	assert.NotEmpty(t, succeed(t, servers, "queue", "offer", path, "x", "--key", "order-1"))
	assert.Empty(t, succeed(t, servers, "queue", "offer", path, "x", "--key", "order-1"))
	assert.Equal(t, "1\n", succeed(t, servers, "queue", "len", path))

	succeed(t, servers, "queue", "offer", path, "y", "--after", "1h")
	r := inProcess(t, servers, "", "queue", "drain", path)
	assert.Equal(t, "x\n", r.stdout)
	assert.Contains(t, r.stderr, "1 element left")
}

// A brokenWriter refuses what is written to it.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestElementThatCannotBeWrittenStays(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path, servers := s.Root(t)+"/queue", s.ConnectString()
		for _, verb := range []string{"take", "drain"} {
			succeed(t, servers, "queue", "offer", path, verb)
			var stderr bytes.Buffer
			status := run(suite.Lasting(t), newApp(servers, nil, brokenWriter{}, &stderr), []string{"queue", verb, path})
			assert.Equal(t, exitFailed, status)
			assert.Contains(t, stderr.String(), "stays in the queue: no space left")
			assert.Equal(t, verb, succeed(t, servers, "queue", "take", path, "--try"))
		}
	})
}

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
	for _, verb := range []string{"take", "drain"} {
		for _, closed := range []string{">&-", "1<>/dev/null"} { // the second is how many programs start others
			r := shell(`exec "$@" `+closed, "queue", verb, path)
			assert.Equal(t, exitUsage, r.status)
			assert.Equal(t, "zkr: standard output is closed, or the null device opened to read and write, "+
				"so elements would be lost: to discard them, use >/dev/null\n", r.stderr)
		}
	}
	assert.Equal(t, "2\n", succeed(t, servers, "queue", "len", path))

	r := shell(`exec "$@" >/dev/full`, "queue", "drain", path)
	assert.Equal(t, exitFailed, r.status, r.stderr)
	assert.Contains(t, r.stderr, "stays in the queue")
	assert.Equal(t, "2\n", succeed(t, servers, "queue", "len", path))
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
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	for i, err := range q.List(t.Context()) {
		require.NoError(t, err)
		s.ExpireSession(i.Holder)
	}
	data, err := q.Take(suite.Lasting(t))
	require.NoError(t, err)
	require.Len(t, data, 200_000)
}

func TestElementsThatAreTooLargeAreRefused(t *testing.T) {
	s := recipestest.Start(t)
	for _, args := range [][]string{{}, {"--lines"}} {
		r := inProcess(t, s.ConnectString(), strings.Repeat("x", protocol.MaxData+10), append([]string{"queue", "offer", s.Root(t)}, args...)...)
		assert.Equal(t, exitUsage, r.status, r.stderr)
	}
}
