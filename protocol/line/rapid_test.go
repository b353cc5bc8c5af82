package line_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

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

// What Check relies on may change while a contender looks. The change of its own node, which comes
// after that, makes it look again.
func TestRefusalFromAListingThatIsOutOfDateDoesNotCount(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, other, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/line"
		held, err := lineAt(other, path).Enter(t.Context(), request)
		require.NoError(t, err)
		s, calls := suite.Session(t, other), 0
		g, err := lineAt(c, path).Enter(t.Context(), line.Request{
			Kind: "lock-", Blockers: line.Permits(2),
			Check: func(names []line.Name) error {
				calls++
				if calls > 1 {
					return nil
				}
				_, err := s.Set(t.Context(), path+"/"+names[1].Node, nil, -1)
				require.NoError(t, err)
				suite.CatchUp(t, c)
				return errors.New("refused")
			},
		})
		require.NoError(t, err)
		require.Greater(t, calls, 1)
		release(t, g)
		release(t, held)

		held, err = lineAt(other, path).Enter(t.Context(), request)
		require.NoError(t, err)
		refused := errors.New("refused")
		_, err = lineAt(c, path).Enter(t.Context(), line.Request{
			Kind: "lock-", Blockers: line.Permits(2), Check: func([]line.Name) error { return refused },
		})
		require.ErrorIs(t, err, refused)
		release(t, held)
	})
}
