package recipestest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// everywhere is overBoth, and with a real server where there is one.
func everywhere(t *testing.T, test func(t *testing.T, s *recipestest.Server)) {
	t.Helper()
	overBoth(t, test)
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, suite.Real(t))
	})
}

// TestMain lets many tests run at the same time, because those in real time wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil { // the command line overrides that
		panic(err)
	}
	os.Exit(m.Run())
}

// overBoth runs a test over TCP, and in memory inside a bubble.
func overBoth(t *testing.T, test func(t *testing.T, s *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		suite.SkipShort(t)
		test(t, recipestest.Start(t))
	})

	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		recipestest.Bubble(t, test)
	})
}

type silence struct{}

func (silence) Printf(string, ...any) {}

// connect opens a session of a plain go-zookeeper client for the time of a test.
func connect(tb testing.TB, s *recipestest.Server, dial zk.Dialer, timeout time.Duration) *zk.Conn {
	tb.Helper()
	conn := open(tb, s, dial, timeout)
	tb.Cleanup(conn.Close)
	return conn
}

func open(tb testing.TB, s *recipestest.Server, dial zk.Dialer, timeout time.Duration) *zk.Conn {
	tb.Helper()
	session := make(chan struct{})
	var once sync.Once
	host, _, _ := strings.Cut(s.ConnectString(), ",")

	// With two addresses the client tries the second one at once when it loses the first.
	conn, _, err := zk.Connect([]string{host, host}, timeout,
		zk.WithDialer(dial), zk.WithLogger(silence{}), zk.WithMaxConnBufferSize(1<<16), zk.WithMaxBufferSize(1<<16),
		zk.WithEventCallback(func(ev zk.Event) {
			if ev.State == zk.StateHasSession {
				once.Do(func() { close(session) })
			}
		}))
	require.NoError(tb, err)
	suite.Wait(tb, session)
	return conn
}

func create(tb testing.TB, conn *zk.Conn, path string, flags int32) {
	tb.Helper()
	suite.Got(conn.Create(path, []byte("data of "+path), flags, zk.WorldACL(zk.PermAll)))(tb)
}

func requireExists(t *testing.T, conn *zk.Conn, path string, want bool) {
	t.Helper()
	requireBack(t, conn) // and what was done before can be seen
	got := suite.ReadAt(t, conn.Exists, path)
	require.Equal(t, want, got, path)
}

// A network is a link with a client over it, and a client that does without.
type network struct {
	server       *recipestest.Server
	link         *recipestest.Link
	root         string
	conn, direct *zk.Conn
}

// onLink runs a test everywhere, with a network. timeout is that of the session over the link.
func onLink(t *testing.T, timeout time.Duration, test func(t *testing.T, n network)) {
	t.Helper()
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		link := s.Link(t)
		test(t, network{s, link, s.Root(t), connect(t, s, link.Dial, timeout), connect(t, s, s.Dial, 10*time.Second)})
	})
}

// attempt tries to create a node.
func attempt(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	return err
}

// A fakeTB is a test of a user: it records what would fail it.
type fakeTB struct {
	testing.TB
	name     string
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

// run runs a user's test to its end, on a goroutine of its own as the testing package does.
func run(t testing.TB, test func(tb testing.TB)) *fakeTB {
	t.Helper()
	f := &fakeTB{TB: t, name: t.Name() + "/users"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for {
				f.mu.Lock()
				n := len(f.cleanups)
				if n == 0 {
					f.mu.Unlock()
					return
				}
				cleanup := f.cleanups[n-1]
				f.cleanups = f.cleanups[:n-1]
				f.mu.Unlock()
				cleanup()
			}
		}()

		test(f)
	}()

	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		require.FailNow(t, "the test does not end")
	}

	return f
}

func (f *fakeTB) Helper()                  {}
func (f *fakeTB) Name() string             { return f.name }
func (f *fakeTB) Context() context.Context { return context.Background() }
func (f *fakeTB) FailNow()                 { runtime.Goexit() }

func (f *fakeTB) Cleanup(cleanup func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, cleanup)
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.FailNow()
}

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.errors) > 0
}

func TestExamples(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"link": enrollSurvivesLostReplies, "server": importStopsWhenItsSessionEnds,
		"bubble": holderIsToldInTime, "options": lockExcludesOnAllServers, "names": serverGetsAnotherAddress,
	} {
		t.Run(name, test)
	}
}
