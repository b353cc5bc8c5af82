package line_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// permitsAt returns a line of contenders none of which is exclusive.
func permitsAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Kind{Name: "permit-"})
}

// permits returns a request of that line.
func permits(n int) line.Request {
	return line.Request{Kind: "permit-", Blockers: line.Permits(n)}
}

// enter calls Enter in the background. Its channel gets the grant, or nil.
func enter(ctx context.Context, l *line.Line, r line.Request) <-chan *recipe.Grant {
	return suite.Later(func() *recipe.Grant {
		g, _ := l.Enter(ctx, r)
		return g
	})
}

// pending fails the test if there is a grant already. Call it in a bubble where all is at rest.
func pending(t *testing.T, granted <-chan *recipe.Grant) {
	t.Helper()
	synctest.Wait()
	select {
	case g := <-granted:
		require.FailNow(t, "granted", "%s", g.Node())
	default:
	}
}

// Markers are for exclusive kinds: something may be ahead of a holder of another one.
func TestHolderOfAPermitLeavesNoMarker(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/permits", srv.Link(t)
		first := suite.Wait(t, enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(2)))
		second := suite.Wait(t, enter(suite.Lasting(t), permitsAt(link.Client(t), path), permits(2)))
		multis, deletes := link.Count(recipestest.OpMulti), link.Count(recipestest.OpDelete)

		release(t, second)

		require.Equal(t, multis, link.Count(recipestest.OpMulti))
		require.Equal(t, deletes+1, link.Count(recipestest.OpDelete))
		release(t, first)
	})
}

// Contenders come and go in any order. As long as all blockers of one are there it must not be
// granted, and whenever it may be, one of them has gone: what it waits for is neither too little
// nor too much.
func TestPermitsBlockUntilOneMayGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		permits := rapid.IntRange(1, 6).Draw(t, "permits")
		var names []line.Name
		for i := range rapid.IntRange(1, 20).Draw(t, "contenders") {
			names = append(names, line.Name{Node: string(rune('a' + i)), Sequence: int32(2 * i)})
		}
		self := rapid.IntRange(0, len(names)-1).Draw(t, "self")
		me, before := names[self], slices.Clone(names)

		blockers := slices.Clone(line.Permits(permits)(names, self))
		require.Equal(t, before, names, "the line is as it was")
		if self < permits {
			require.Empty(t, blockers)
			return
		}
		require.Len(t, blockers, permits)
		for _, b := range blockers {
			require.Negative(t, b.Compare(me))
		}

		// Others leave, and come, in any order.
		for range rapid.IntRange(0, 40).Draw(t, "moves") {
			if rapid.Bool().Draw(t, "comes") {
				last := int32(100)
				if len(names) > 0 {
					last = max(last, names[len(names)-1].Sequence+1)
				}
				names = append(names, line.Name{Node: "new", Sequence: last})
			} else if i := rapid.IntRange(0, len(names)-1).Draw(t, "leaves"); names[i] != me {
				names = slices.Delete(names, i, i+1)
			}

			self := slices.Index(names, me)
			allThere := !slices.ContainsFunc(blockers, func(b line.Name) bool { return !slices.Contains(names, b) })
			if self < permits {
				require.False(t, allThere, "it may go, and is not woken")
			} else if !allThere { // woken, it looks again
				blockers = slices.Clone(line.Permits(permits)(names, self))
				require.Len(t, blockers, permits)
			}
		}
	})
}
