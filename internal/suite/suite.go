// Package suite is what every recipe has to pass, on the embedded server, on one that lags and on a
// real one. Recipes import it in their tests. The tests of the package itself run the suite on an
// ensemble of three; with
//
//	go test ./internal/suite -ensemble
//
// they run all tests of all recipes there.
package suite

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Patience bounds what must happen in the end. Nothing depends on how soon it does.
const Patience = 30 * time.Second

// lag is how far behind their leader servers are that lag: much longer than what the embedded server needs for anything
// else, and short enough to be waited for at each request.
const lag = 6 * time.Millisecond

// Each runs a test on the embedded server, on one whose clients are spread over followers that lag, and on a real one.
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

// Session is the client's current session.
func Session(t testing.TB, c *protocol.Client) *protocol.Session {
	t.Helper()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	return s
}

// CatchUp has the client's server see what others have been answered before: in an ensemble it may lag behind theirs.
func CatchUp(t testing.TB, c *protocol.Client) {
	t.Helper()
	require.NoError(t, Session(t, c).Sync(t.Context(), "/"))
}

// Close closes clients, none of which may fail to end its session.
func Close(t *testing.T, clients ...*protocol.Client) {
	t.Helper()
	for _, c := range clients {
		require.NoError(t, TryClose(c))
	}
}

// closeTime is all the time that a client takes to close.
const closeTime = 2 * time.Second

// TryClose closes a client and tells whether that has failed to end its session. That the servers had not answered when the
// client's time was over does not count, unless time is virtual: there they always have.
func TryClose(c *protocol.Client) error {
	began := time.Now()
	err := c.Close()
	if time.Since(began) >= closeTime && !virtual() {
		return nil
	}
	return err
}

// virtual tells whether the caller is in a bubble of testing/synctest, where time begins with the year 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// Measure calls cost, which says what was too much, until it finds nothing, a few times at most. Where answers are slow
// the session is confirmed meanwhile, or something is asked again, now and then; what is not needed is there every time.
func Measure(t *testing.T, cost func() error) {
	t.Helper()
	const attempts = 5
	var err error
	for range attempts {
		if err = cost(); err == nil {
			return
		}
	}
	require.NoError(t, err, "every time")
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

// Main runs the tests of a package, and fails if they leave goroutines behind. Those that are about to end get the time
// that they need: closed connections linger on a busy machine.
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
