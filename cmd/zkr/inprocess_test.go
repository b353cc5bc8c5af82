package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The goroutine of package os/signal stays once it has begun, so it begins before tests look for
// goroutines of theirs that stay. Where SIGINT is ignored from the start, that must stay visible.
func init() {
	if signal.Ignored(os.Interrupt) {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
}

// inProcess runs a command line in this process, with this standard input.
func inProcess(t *testing.T, servers, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(suite.Lasting(t), newApp(servers, strings.NewReader(stdin), &stdout, &stderr), args)
	return result{status, stdout.String(), stderr.String()}
}

// succeed runs a command line that must succeed, and returns what it prints.
func succeed(t *testing.T, servers string, args ...string) string {
	t.Helper()
	r := inProcess(t, servers, "", args...)
	require.Zero(t, r.status, r.stderr)
	return r.stdout
}

func newApp(servers string, stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: func(key string) string {
		if key == "ZKR_SERVERS" {
			return servers
		}
		return ""
	}}
}

// outOfTime are the statuses of a short --wait, which a busy machine may spend on connecting.
var outOfTime = []int{exitTimedOut, exitUnreachable}

// A begun command line goes on until stop is called, which returns its status.
type begun struct {
	output *stream
	stop   func() int
}

// begin runs a command line that goes on, such as one with --watch.
func begin(t *testing.T, servers string, args ...string) begun {
	t.Helper()
	return beginIn(t, suite.Lasting(t), servers, args...)
}

// beginIn is begin for a command line that ends with ctx.
func beginIn(t *testing.T, ctx context.Context, servers string, args ...string) begun {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	out := newStream()
	status := suite.Later(func() int { return run(ctx, newApp(servers, strings.NewReader(""), out, os.Stderr), args) })
	stop := func() int { cancel(); return suite.Wait(t, status) }
	t.Cleanup(cancel)
	return begun{out, stop}
}

// A stream keeps what is written to it, for a reader that waits for a text.
type stream struct {
	news chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func newStream() *stream { return &stream{news: make(chan struct{}, 1)} }

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.text.Write(p)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the text matches a pattern.
func (s *stream) await(t *testing.T, pattern string) {
	t.Helper()
	for re := regexp.MustCompile(pattern); !re.MatchString(s.String()); {
		suite.Wait(t, s.news)
	}
}

// client returns a client that the test's end closes with all that it holds.
func client(t *testing.T, s *recipestest.Server, options ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	c := s.Client(t, options...)
	t.Cleanup(func() { c.Close() })
	return c
}

// blank replaces what differs from run to run, and makes blanks between columns equally wide.
func blank(text, root string) string {
	host, _ := os.Hostname()
	for _, r := range []struct{ pattern, by string }{
		{regexp.QuoteMeta(root), "ROOT"},
		{`\b` + regexp.QuoteMeta(host) + `:\d+`, "HOST:PID"},
		{`"host":"` + regexp.QuoteMeta(host) + `","pid":\d+`, `"host":"HOST","pid":PID`},
		{`[0-9a-f]{16}-[0-9a-f]{8}-`, "OWNER-"},
		{`later-\d+`, "later-N"},
		{`-\d{10}\b`, "-N"},
		{`0x[0-9a-f]+`, "SESSION"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, "TIME"},
		{`"\d{4}-\d\d-\d\dT[^"]+"`, `"TIME"`},
		{`(token"?[:=])\d+`, "${1}N"},
		{`\b\d[0-9.hm]*s\b`, "AGE"},
		{`  +`, "  "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}
