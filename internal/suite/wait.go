package suite

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// EmbeddedAndReal runs a test in virtual time on the embedded server, and on a real server. The
// test must not start subtests.
func EmbeddedAndReal(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	Run(t, "embedded", test)
	onReal(t, test)
}

// InRealTime runs a test on an embedded server that other processes can reach, and on a real
// server. It skips t with -short.
func InRealTime(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	SkipShort(t)
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t))
	})
	onReal(t, test)
}

// With -short, SkipShort skips a test that waits in real time or takes more than two seconds.
func SkipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes too long for -short")
	}
}

// Size returns full, or few with -short: how much a test does of something that takes long.
func Size(full, few int) int {
	if testing.Short() {
		return few
	}
	return full
}

func onReal(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, Real(t))
	})
}

// Bubble is [recipestest.Bubble] for a parallel test.
func Bubble(t *testing.T, test func(t *testing.T, srv *recipestest.Server), opts ...recipestest.Option) {
	t.Helper()
	t.Parallel()
	recipestest.Bubble(t, test, opts...)
}

// Run is [Bubble] for a subtest with this name.
func Run(t *testing.T, name string, test func(t *testing.T, srv *recipestest.Server), opts ...recipestest.Option) {
	t.Run(name, func(t *testing.T) { Bubble(t, test, opts...) })
}

// InBothVersions runs a test in virtual time on servers like 3.8 and 3.9. Since 3.9, events carry
// the zxid of their transaction.
func InBothVersions(t *testing.T, test func(t *testing.T, version string, srv *recipestest.Server)) {
	for _, version := range []string{"3.8", "3.9"} {
		Run(t, version, func(t *testing.T, srv *recipestest.Server) { test(t, version, srv) },
			recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = version }))
	}
}

// Settle waits until nothing more happens at this moment of virtual time, so that all loggers and
// observers have been called. In real time it waits for a moment.
func Settle() {
	if virtual() {
		synctest.Wait()
		return
	}
	time.Sleep(100 * time.Millisecond)
}

// Lasting returns a context that ends only if the test hangs.
func Lasting(t testing.TB) context.Context { return Within(t, Limit) }

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Wait waits for a signal that must come.
func Wait[T any](t testing.TB, signal <-chan T) T {
	t.Helper()
	select {
	case v := <-signal:
		return v
	case <-time.After(Limit):
		require.FailNow(t, "no signal")
		panic("unreachable")
	}
}

// Later runs f and returns a channel with its result.
func Later[T any](f func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- f() }()
	return result
}

// Soon waits for a condition that has no signal.
func Soon(t testing.TB, condition func() bool, what string) {
	t.Helper()
	began := time.Now()
	for !condition() {
		since := time.Since(began)
		require.Less(t, since, Limit, what)
		time.Sleep(max(5*time.Millisecond, since/8)) // in virtual time, a look costs more than a pause
	}
}

// Blip cuts all connections over a link, which is sound again at once.
func Blip(link *recipestest.Link) {
	link.Cut()
	link.Heal()
}

// Reconnect makes a client come back over another connection.
func Reconnect(t testing.TB, link *recipestest.Link, c *protocol.Client) {
	t.Helper()
	back := link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1)
	Blip(link)
	Wait(t, back)
	conn := Session(t, c).Conn()
	Soon(t, func() bool { return conn.State() == zk.StateHasSession }, "back")
}

// Breaking returns an option that breaks the connection through link at requests of a kind, as
// often as the counter says. None of those requests reaches the server.
func Breaking(link *recipestest.Link, op recipestest.Op) (protocol.ConnectOption, *atomic.Int32) {
	left := new(atomic.Int32)
	return Writing(link, func(conn net.Conn, p []byte) (int, error) {
		if OpOf(p) == op && left.Load() > 0 {
			left.Add(-1)
			conn.Close()
			return 0, net.ErrClosed
		}
		return conn.Write(p)
	}), left
}

// Asked returns a context that is cancelled when it is asked for its error, after it has been asked
// n times.
func Asked(ctx context.Context, n int) context.Context {
	a := new(asked)
	a.Context, a.cancel = context.WithCancel(ctx)
	a.left.Store(int64(n))
	return a
}

type asked struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func (a *asked) Err() error {
	if a.left.Add(-1) < 0 {
		a.cancel()
	}
	return a.Context.Err()
}

// Must calls a verb that must succeed within [Limit].
func Must[L any](t testing.TB, verb func(context.Context) (L, error)) L {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	l, err := verb(ctx)
	require.NoError(t, err)
	return l
}

// Got returns what a call has returned, to a test that fails if that is an error:
//
//	node := suite.Got(conn.Create(path, nil, 0, acl))(t)
func Got[T any](v T, err error) func(failing) T {
	return func(t failing) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// Err returns the error of a call whose value does not matter.
func Err[T any](_ T, err error) error { return err }

// A failing test is a [testing.TB], or one of package rapid.
type failing interface {
	require.TestingT
	Helper()
}

// Unlock releases leases that were not lost.
func Unlock[L interface{ Unlock(context.Context) error }](t *testing.T, leases ...L) {
	t.Helper()
	for _, l := range leases {
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// Await polls until list has n entries and returns them.
func Await[E any](t *testing.T, n int, list func(context.Context) ([]E, error)) (all []E) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		all, err = list(t.Context())
		return err == nil && len(all) == n
	}, Limit, time.Millisecond, "%d entries", n)
	return all
}
