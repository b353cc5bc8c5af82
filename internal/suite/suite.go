// Package suite has the tests that every recipe must pass, on the embedded server, on one that lags
// and on a real one. Recipes import it in their tests. The tests of the package itself run the
// suite on an ensemble of three. With
//
//	go test ./internal/suite -ensemble
//
// they run all tests of all recipes on that ensemble.
package suite

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Limit is how long anything that must happen may take. No result depends on how soon it happens.
const Limit = 30 * time.Second

// lag is by how much the followers of the lagging server lag: much more than any request takes, and
// little enough to wait for at each request.
const lag = 6 * time.Millisecond

// Each runs a test on the embedded server, on one whose clients are spread over followers that lag,
// and on a real one.
func Each(t *testing.T, test func(*testing.T, *recipestest.Server)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t))
	})

	t.Run("lagging", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, recipestest.Lagging(lag)))
	})

	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, ensemble.Real(t))
	})
}

// Steadily runs a test as each does, and in virtual time besides, where [Steady] is always true and
// a pause shows that nothing more happens. The test must not start subtests.
func Steadily(t *testing.T, each func(*testing.T, func(*testing.T, *recipestest.Server)), test func(*testing.T, *recipestest.Server)) {
	t.Helper()
	each(t, test)
	t.Run("virtual", func(t *testing.T) { Bubble(t, test) })
}

// Steady reports whether link has carried one connection only. A busy machine may break the first
// one, and then a client repeats requests, and asks for others. In virtual time nothing is slow: t
// fails if there was another connection.
func Steady(t testing.TB, link *recipestest.Link) bool {
	t.Helper()
	connections := link.Count(recipestest.OpConnect)
	if virtual() {
		require.Equal(t, 1, connections, "connections")
	}
	return connections == 1
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

// Measure calls cost until it returns nil, a few times at most. cost returns an error if there were
// too many requests. When answers are slow, the session may be confirmed meanwhile, or a request
// repeated. A request that is superfluous is there every time.
func Measure(t *testing.T, cost func() error) {
	t.Helper()
	const attempts = 5
	var err error
	for range attempts {
		if err = cost(); err == nil {
			return
		}
	}
	require.NoError(t, err, "in %d attempts", attempts)
}

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
