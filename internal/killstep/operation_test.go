package killstep_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An operation is what a process does while it is killed. All of it is at one path.
type operation struct {
	name string

	// before prepares what other processes have done. Its result is the hint of the process.
	before func(s *scene) (hint string)

	// child prepares the operation in the process, and returns it.
	child func(ctx context.Context, p *process) (do func(context.Context) error, err error)

	// between is called when the process is ready, before it begins.
	between func(s *scene)

	// meanwhile does what the process waits for. Its ctx ends when the process is killed.
	meanwhile func(ctx context.Context, s *scene)

	// after shows that nothing is blocked and nothing is lost: other processes go on with what is
	// there, and then use the recipe from its beginning to its end.
	after func(s *scene)
}

// operations are those of all recipes.
func operations() []operation {
	return slices.Concat(locks(), rwlocks(), semaphores(), elections(), queues(), barriers(), doublebarriers(), groups(), onces())
}

func find(name string) operation {
	for _, o := range operations() {
		if o.name == name {
			return o
		}
	}
	panic("no operation " + name)
}

// A process is the one that is killed.
type process struct {
	*protocol.Client
	path string // of the recipe
	hint string
	node string // its own, for the parent
}

// A scene is what happens around one death, in the parent.
type scene struct {
	*testing.T
	*recipestest.Server
	path     string
	a, b     *protocol.Client // of other processes
	observer *protocol.Client // of this test
	over     bool             // it had completed the operation
	ctx      context.Context
	held     []func() // what before has acquired is given back by these
	later    suite.Group
}

// do calls what must succeed.
func (s *scene) do(err error) {
	s.Helper()
	require.NoError(s, err)
}

// must returns what must be had.
func must[T any](s *scene) func(v T, err error) T {
	return func(v T, err error) T {
		s.Helper()
		require.NoError(s, err)
		return v
	}
}

// release gives back what before has acquired, once.
func (s *scene) release() {
	s.Helper()
	for _, f := range s.held {
		f()
	}
	s.held = nil
}

// children returns the names below a node, at the latest.
func (s *scene) children(dir string) []string {
	s.Helper()
	suite.CatchUp(s, s.a)
	return suite.Children(s, s.a, dir)
}

// until waits until a node has so many children.
func (s *scene) until(ctx context.Context, dir string, n int) bool {
	s.Helper()
	err := suite.Session(s, s.a).WaitChildren(ctx, dir, func(children []string) bool { return len(children) >= n })
	if err != nil && !errors.Is(err, context.Canceled) {
		require.NoError(s, err)
	}
	return err == nil
}

// atPath returns a path below that of the recipe.
func (s *scene) at(name string) string { return path.Join(s.path, name) }

var errUnexpected = errors.New("unexpected")

func unexpected(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnexpected, fmt.Sprintf(format, args...))
}
