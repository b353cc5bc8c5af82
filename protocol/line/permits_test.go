package line_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// permitsAt returns a line without exclusive contenders.
func permitsAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Kind{Name: "permit-"})
}

// permits returns a request of that line.
func permits(n int) line.Request {
	return line.Request{Kind: "permit-", Blockers: line.Permits(n)}
}

// Only exclusive kinds have markers, because a contender can be ahead of a holder of another kind.
func TestHolderOfAPermitLeavesNoMarker(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/permits", srv.Link(t)
		first := suite.Wait(t, enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(2)))
		second := suite.Wait(t, enter(suite.Lasting(t), permitsAt(link.Client(t), path), permits(2)))
		multis, deletes := link.Count(recipestest.OpMulti), link.Count(recipestest.OpDelete)

		suite.Release(t, second)

		require.Equal(t, multis, link.Count(recipestest.OpMulti))
		require.Equal(t, deletes+1, link.Count(recipestest.OpDelete))
		suite.Release(t, first)
	})
}

// Contenders come and go in any order. As long as all blockers of a contender are there, it must
// not be granted. Once it can be granted, at least one of them has gone. So it watches neither too
// few contenders nor too many.
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
