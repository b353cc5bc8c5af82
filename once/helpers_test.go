package once_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func TestMain(m *testing.M) { suite.Main(m) }

func nothing(context.Context, *once.Run) error { return nil }

var errFailed = errors.New("failed")

// An outcome has the results of Do.
type outcome struct {
	ran bool
	err error
}

func do(t testing.TB, o *once.Once, key string, fn func(context.Context, *once.Run) error) outcome {
	t.Helper()
	ran, err := o.Do(suite.Lasting(t), key, fn)
	return outcome{ran, err}
}

func later(t testing.TB, o *once.Once, key string, fn func(context.Context, *once.Run) error) <-chan outcome {
	return suite.Later(func() outcome { return do(t, o, key, fn) })
}

// A blocked run sends its context when it has begun, and ends with the result that the test sends.
type blocked struct {
	began  chan context.Context
	result chan error
}

func newBlocked() blocked { return blocked{make(chan context.Context, 1), make(chan error, 1)} }

func (b blocked) fn(ctx context.Context, _ *once.Run) error {
	b.began <- ctx
	return <-b.result
}

// calls waits until so many calls are in line, and returns their nodes.
func calls(t testing.TB, c *protocol.Client, path string, n int) (nodes []string) {
	t.Helper()
	suite.Soon(t, func() bool {
		suite.CatchUp(t, c)
		nodes = slices.DeleteFunc(suite.Children(t, c, path), func(child string) bool { return child == "done" })
		return len(nodes) == n
	}, "calls in line")
	return nodes
}

func requireRan(t testing.TB, o outcome) {
	t.Helper()
	require.Equal(t, outcome{ran: true}, o)
}

func requireDone(t testing.TB, o outcome) {
	t.Helper()
	require.Equal(t, outcome{}, o)
}

// never is for keys that are done.
func never(context.Context, *once.Run) error { return errors.New("called for a key that is done") }

// remembered returns the keys that are done.
func remembered(t *testing.T, c *protocol.Client, path string) []string {
	t.Helper()
	suite.CatchUp(t, c)
	return slices.Sorted(slices.Values(suite.Children(t, c, path+"/done")))
}

// keys returns the keys that are done.
func keys(t testing.TB, o *once.Once) (all []once.Key) {
	t.Helper()
	for key, err := range o.Keys(t.Context()) {
		require.NoError(t, err)
		all = append(all, key)
	}
	return all
}
