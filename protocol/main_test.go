package protocol_test

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(holderEnv); spec != "" {
		os.Exit(holderMain(spec))
	}
	if spec := os.Getenv(leasesEnv); spec != "" {
		os.Exit(leasesMain(spec))
	}
	suite.Main(m)
}

// each runs a test against the embedded server and against a real one.
func each(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	suite.EmbeddedAndReal(t, test)
}

// bubble runs a test in virtual time, with a server in memory.
func bubble(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	suite.Bubble(t, test)
}

// lasting returns a context that ends only if the test hangs.
func lasting(t testing.TB) context.Context { return within(t, suite.Limit) }

func within(t testing.TB, d time.Duration) context.Context { return suite.Within(t, d) }

// wait waits for a signal that must come.
func wait[T any](t testing.TB, signal <-chan T) T {
	t.Helper()
	return suite.Wait(t, signal)
}

// later runs f, and returns a channel with its result.
func later[T any](f func() T) <-chan T { return suite.Later(f) }

// took is how long f takes.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// requireSoon waits for a condition that no signal tells of.
func requireSoon(t testing.TB, condition func() bool, what string) {
	t.Helper()
	suite.Soon(t, condition, what)
}

// connect is srv.Client for tests that need another connect string. The client is closed before the
// test's checks.
func connect(t testing.TB, connectString string, opts ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	c, err := protocol.Connect(lasting(t), connectString, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// inThree reports whether one of three attempts succeeds.
func inThree(attempt func() bool) bool {
	for range 3 {
		if attempt() {
			return true
		}
	}
	return false
}

// closeTime is what Close has.
const closeTime = 2 * time.Second

// closed closes c. Close may only fail if servers did not answer for as long as it has.
func closed(c *protocol.Client) error {
	var err error
	if took(func() { err = c.Close() }) >= closeTime {
		return nil
	}
	return err
}

func session(t testing.TB, c *protocol.Client) *recipe.Session {
	t.Helper()
	s, err := recipe.SessionOf(lasting(t), c)
	require.NoError(t, err)
	return s
}

func create(s *recipe.Session, path string, flags int32) func(*zk.Conn) (string, error) {
	return func(conn *zk.Conn) (string, error) {
		return conn.Create(s.Path(path), nil, flags, zk.WorldACL(zk.PermAll))
	}
}

// exists tells what there is by now, whatever server it asks.
func exists(t testing.TB, c *protocol.Client, path string) bool {
	t.Helper()
	s := session(t, c)
	found, err := recipe.Do(lasting(t), s, func(conn *zk.Conn) (bool, error) {
		if _, err := conn.Sync(s.Path(path)); err != nil {
			return false, err
		}
		found, _, err := conn.Exists(s.Path(path))
		return found, err
	})
	require.NoError(t, err)
	return found
}

// gone returns a channel that gets an event when the node at path, which must exist, is deleted.
func gone(t testing.TB, c *protocol.Client, path string) <-chan zk.Event {
	t.Helper()
	s := session(t, c)
	_, err := s.Conn().Sync(s.Path(path))
	require.NoError(t, err)
	found, _, deleted, err := s.Conn().ExistsW(s.Path(path))
	require.NoError(t, err)
	require.True(t, found)
	return deleted
}

// A lock of the simplest kind, to have something that is held.
func lineAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Kind{Name: "lock-", Exclusive: true})
}

var request = line.Request{Kind: "lock-", Blockers: line.Exclusive}

func release(t testing.TB, g *recipe.Grant) {
	t.Helper()
	require.NotNil(t, g)
	require.NoError(t, g.Release(lasting(t)))
}

func hold(t testing.TB, c *protocol.Client, path string) *recipe.Grant {
	t.Helper()
	g, err := lineAt(c, path).Enter(lasting(t), request)
	require.NoError(t, err)
	return g
}

// states records what a state listener is told.
type states chan protocol.State

func (s states) option() protocol.ConnectOption {
	return protocol.WithStateListener(func(state protocol.State) { s <- state })
}

func (s states) require(t testing.TB, want ...protocol.State) {
	t.Helper()
	for _, state := range want {
		require.Equal(t, state, wait(t, s))
	}
}

// watchesOnServer is what the four-letter word wchs reports: how many watches on how many paths for
// how many.
func watchesOnServer(t testing.TB, srv *recipestest.Server) string {
	t.Helper()
	conn, err := srv.Dial("tcp", srv.ConnectString(), time.Second)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("wchs"))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
}

// ourGoroutines returns the stacks of the goroutines of this test's bubble that run the client or
// zk.Conn and are not about to end.
func ourGoroutines() []string {
	synctest.Wait()
	stacks := func(all bool) []string {
		b := make([]byte, 8<<20)
		return strings.Split(string(b[:runtime.Stack(b, all)]), "\n\n")
	}
	// A head is "goroutine 7 [select, synctest bubble 3]:".
	inBubble := func(stack string) string {
		head, _, _ := strings.Cut(stack, "]")
		_, id, _ := strings.Cut(head, "synctest bubble ")
		id, _, _ = strings.Cut(id, ",")
		return id
	}
	mine := inBubble(stacks(false)[0])
	var ours []string
	for _, stack := range stacks(true)[1:] {
		if inBubble(stack) == mine && (strings.Contains(stack, "zkrecipes/protocol.") || strings.Contains(stack, "zk.(*Conn)")) {
			ours = append(ours, stack)
		}
	}
	return ours
}

// breaking is a way through link on which the connection breaks at as many requests of a kind as
// the counter says. None of those requests reaches the server.
func breaking(link *recipestest.Link, op recipestest.Op) (protocol.ConnectOption, *atomic.Int32) {
	return suite.Breaking(link, op)
}

func resume(t *testing.T, link *recipestest.Link, c *protocol.Client) {
	t.Helper()
	suite.Reconnect(t, link, c)
}
