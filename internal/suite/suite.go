// Package suite has the tests that every recipe must pass, on the embedded server, on one that lags
// and on real servers if ZKRECIPES_SERVERS names any. Recipes import it in their tests.
package suite

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Limit is how long anything that must happen may take. No result depends on how soon it happens.
const Limit = 2 * time.Minute

// lag is by how much the followers of the lagging server lag: much more than any request takes, and
// little enough to wait for at each request.
const lag = 6 * time.Millisecond

// Each runs a test in virtual time, on the embedded server and on one whose clients are spread over
// followers that lag, and on real servers if there are any. The test must not start subtests.
func Each(t *testing.T, test func(*testing.T, *recipestest.Server)) {
	t.Helper()
	EmbeddedAndReal(t, test)
	t.Run("lagging", func(t *testing.T) { Bubble(t, test, recipestest.Lagging(lag)) })
}

// Session returns the client's current session.
func Session(t testing.TB, c *protocol.Client) *protocol.Session {
	t.Helper()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	return s
}

// Keep creates paths, and what is above them, as nodes that stay until the test ends. A path that a
// recipe creates is a container, which a real server may delete as soon as it is empty.
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

// CatchUp syncs the client's server with the leader. In an ensemble it may not know yet what the
// servers of other clients have answered.
func CatchUp(t testing.TB, c *protocol.Client) {
	t.Helper()
	require.NoError(t, Session(t, c).Sync(t.Context(), "/"))
}

// Close closes clients, and fails t if one of them cannot end its session.
func Close(t *testing.T, clients ...*protocol.Client) {
	t.Helper()
	for _, c := range clients {
		require.NoError(t, TryClose(c))
	}
}

// closeTime is how long a client takes to close at most.
const closeTime = 2 * time.Second

// TryClose closes a client, and returns an error if that has not ended its session. It ignores that
// the servers did not answer in time, except in virtual time, where they always do.
func TryClose(c *protocol.Client) error {
	began := time.Now()
	err := c.Close()
	if time.Since(began) >= closeTime && !virtual() {
		return nil
	}
	return err
}

// virtual reports whether the caller is in a bubble of testing/synctest, where time begins with the
// year 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// A Group waits for goroutines and joins their errors. Its zero value is ready for use.
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

// Main runs the tests of a package, and fails if they leave goroutines behind. Goroutines that are
// about to end get time to do so: closed connections linger on a busy machine.
func Main(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests break things on purpose
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
