package line_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestMain(m *testing.M) { suite.Main(m) }

var request = line.Request{Kind: "lock-", Blockers: line.Exclusive}

// lineAt returns a line of the simplest kind.
func lineAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Locks...)
}

// hold campaigns in the line at path, whose terms can do all that a grant can.
func hold(t testing.TB, c *protocol.Client, path string) *election.Term {
	t.Helper()
	term, err := election.New(c, path).Campaign(suite.Lasting(t), nil)
	require.NoError(t, err)
	return term
}

// resign ends a term, which must have been granted.
func resign(t testing.TB, term *election.Term) {
	t.Helper()
	require.NotNil(t, term)
	require.NoError(t, term.Resign(suite.Lasting(t)))
}

// release releases g, which must have been granted.
func release(t testing.TB, g *recipe.Grant) {
	t.Helper()
	require.NotNil(t, g)
	require.NoError(t, g.Release(suite.Lasting(t)))
}

// campaign calls Campaign in the background, and returns a channel that gets the term, or nil.
func campaign(ctx context.Context, c *protocol.Client, path string) <-chan *election.Term {
	return suite.Later(func() *election.Term {
		term, _ := election.New(c, path).Campaign(ctx, nil)
		return term
	})
}

// take enters a line that is free.
func take(t testing.TB, l *line.Line) *recipe.Grant {
	t.Helper()
	g, err := l.Enter(suite.Lasting(t), request)
	require.NoError(t, err)
	return g
}
