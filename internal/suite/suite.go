// Package suite has helpers for the recipes' tests, and tests that every recipe must pass: on the
// embedded server, on a server that lags, and on real servers if ZKRECIPES_SERVERS names any.
package suite

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Limit is how long anything that must happen may take. No result depends on how soon it happens.
const Limit = 2 * time.Minute

// lag is how much the followers of the lagging server lag: much more than any request takes, and
// little enough to wait for at each request.
const lag = 6 * time.Millisecond

// Each runs a test in virtual time, on the embedded server and on a server whose clients are spread
// over followers that lag. If there are real servers, it also runs it there. The test must not
// start subtests.
func Each(t *testing.T, test func(*testing.T, *recipestest.Server)) {
	t.Helper()
	EmbeddedAndReal(t, test)
	t.Run("lagging", func(t *testing.T) { Bubble(t, test, recipestest.Lagging(lag)) })
}

// Session returns the client's current session.
func Session(t testing.TB, c *protocol.Client) *recipe.Session {
	t.Helper()
	s, err := recipe.SessionOf(t.Context(), c)
	require.NoError(t, err)
	return s
}

// Keep creates paths (and their parents) as nodes that stay until the test ends. (If a recipe
// creates a path, it is a container. A real server can delete it as soon as it is empty.)
func Keep(t testing.TB, c *protocol.Client, paths ...string) {
	t.Helper()
	s := Session(t, c)
	for _, path := range paths {
		for i := 1; i <= len(path); i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			if err := s.Create(t.Context(), path[:i], nil, 0); !errors.Is(err, zk.ErrNodeExists) {
				require.NoError(t, err, path)
			}
		}
	}
}

// Ensure makes sure that there is a node, with containers above it.
func Ensure(t testing.TB, s *recipe.Session, path string) {
	t.Helper()
	_, err := s.EnsurePath(Lasting(t), path)
	require.NoError(t, err)
}

// CatchUp syncs the client's server with the leader. In an ensemble it may not know yet what other
// servers have answered to their clients.
func CatchUp(t testing.TB, c *protocol.Client) {
	t.Helper()
	require.NoError(t, Session(t, c).Sync(t.Context(), "/"))
}

// Close closes clients. If a client can't end its session, Close fails t.
func Close(t *testing.T, clients ...*protocol.Client) {
	t.Helper()
	for _, c := range clients {
		require.NoError(t, TryClose(c))
	}
}

// closeTime is the longest that a client takes to close.
const closeTime = 2 * time.Second

// TryClose closes a client. If that hasn't ended its session, it returns an error. Servers that
// didn't answer in time are no error, except in virtual time (where they always answer).
func TryClose(c *protocol.Client) error {
	began := time.Now()
	err := c.Close()
	if time.Since(began) >= closeTime && !virtual() {
		return nil
	}
	return err
}

// virtual reports whether the caller is in a testing/synctest bubble, where time begins with the
// year 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// A Group waits for goroutines and joins their errors. Its zero value is ready to use.
type Group struct {
	wg   sync.WaitGroup
	mu   sync.Mutex // protects errs
	errs []error
}

// Go runs f in a goroutine.
func (g *Group) Go(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs = append(g.errs, err)
		}
	})
}

// Wait blocks until all goroutines have returned.
func (g *Group) Wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}

// Main runs the tests of a package. If they leave goroutines behind, it fails. Goroutines that are
// about to end get time for that (on a busy machine, closed connections linger).
func Main(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests break things on purpose
	// zk.Conn makes megabytes for each session, which were collected after every other one.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(512 << 20)
	status := m.Run()
	if status == 0 {
		var left error
		for range 20 {
			if left = goleak.Find(); left == nil { // looks for a second
				break
			}
		}
		if left != nil {
			fmt.Fprintln(os.Stderr, left)
			status = 1
		}
	}

	os.Exit(status)
}
