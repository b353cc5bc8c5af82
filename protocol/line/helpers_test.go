package line_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestMain(m *testing.M) { suite.Main(m) }

var request = line.Request{Kind: "lock-", Blockers: line.Exclusive}

// lineAt returns a line of locks.
func lineAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Locks...)
}

// take enters a line that is free.
func take(t testing.TB, l *line.Line) *recipe.Grant {
	t.Helper()
	g := suite.Got(l.Enter(suite.Lasting(t), request))(t)
	return g
}

// enter calls Enter in the background. Its channel gets the grant, or nil.
func enter(ctx context.Context, l *line.Line, r line.Request) <-chan *recipe.Grant {
	return suite.Later(func() *recipe.Grant {
		g, _ := l.Enter(ctx, r)
		return g
	})
}

// pending fails the test if there is a grant already. Call it in a bubble when all is at rest.
func pending(t *testing.T, granted <-chan *recipe.Grant) {
	t.Helper()
	synctest.Wait()
	select {
	case g := <-granted:
		require.FailNow(t, "granted", "%s", g.Node())
	default:
	}
}
