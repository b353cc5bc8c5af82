package election

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The observer and the candidate of a listener do not learn of things in the same order.
func TestListenerIsNotToldOfALeaderThatIsPast(t *testing.T) {
	t.Parallel()
	var told []int64
	l := &listener{f: func(s State) { told = append(told, s.Leader.Token) }, own: 5}
	for _, token := range []int64{0, 3, 5, 3, 0, 0, 9, 7} {
		l.saw(Leader{Token: token}, nil)
	}
	require.Equal(t, []int64{0, 5, 0, 9, 7}, told)
}

// A process that learns from Leading that it leads may proclaim a value while its listener blocks.
func TestListenerIsToldOfAValueThatWasProclaimedBeforeItsTerm(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		e := New(srv.Client(t), srv.Root(t)+"/early")
		term := suite.Got(e.Campaign(suite.Lasting(t), []byte("old")))(t)
		var last State
		l := &listener{f: func(s State) { last = s }, value: []byte("old")}

		l.saw(Leader{Value: []byte("new"), Token: term.Token()}, term.grant.Session())
		l.begin(term)

		require.Same(t, term, last.Term)
		require.Equal(t, "new", string(last.Leader.Value))
		require.NoError(t, term.Resign(suite.Lasting(t)))
	})
}

// What is seen while a term lasts that does not fit it is told with its end, and only if it is the
// latest.
func TestEndOfATermIsToldWithTheLeaderSeenLast(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		e := New(c, srv.Root(t)+"/end")
		term := suite.Got(e.Campaign(suite.Lasting(t), nil))(t)
		var told []State
		l := &listener{f: func(s State) { told = append(told, s) }}
		mine, next, in := Leader{Token: term.Token(), Node: term.Node(), Session: term.grant.Session().ID()}, Leader{Value: []byte("next"), Token: term.Token() + 1}, term.grant.Session()

		l.begin(term)
		l.saw(Leader{}, in) // from before it
		l.saw(mine, in)
		l.end()
		require.Equal(t, []State{{term, mine}, {nil, mine}}, told)

		told = nil
		l.begin(term)
		require.NoError(t, term.Resign(suite.Lasting(t)))
		l.saw(Leader{[]byte("mine, still"), mine.Token, mine.Node, mine.Session}, in)
		l.saw(next, in)
		l.end()
		l.end()
		require.Equal(t, []State{{term, mine}, {nil, next}}, told)

		// In a later session tokens may begin anew.
		require.NoError(t, c.Close())
		l.saw(Leader{Token: 1}, suite.Session(t, srv.Client(t)))
		require.EqualValues(t, 1, told[len(told)-1].Leader.Token)
	})
}

// A slow goroutine notes an earlier term last. In an ensemble that has lost its data, tokens begin
// anew: the ended term has the greater one.
func TestLeadingIsTheLatestTermThatThisElectionHolds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		other, e := New(c, root+"/e"), New(c, root+"/e")
		early := suite.Must(t, func(ctx context.Context) (*Term, error) { return New(c, root+"/early").Campaign(ctx, nil) })
		_, ok := e.Leading()
		require.False(t, ok)
		late := suite.Must(t, func(ctx context.Context) (*Term, error) { return e.Campaign(ctx, nil) })
		_, ok = other.Leading()
		require.False(t, ok, "the term was won through another value")

		e.note(early)
		held, _ := e.Leading()
		require.Same(t, late, held)
		require.NoError(t, late.Resign(t.Context()))
		e.note(early)
		held, _ = e.Leading()
		require.Same(t, early, held)
		require.NoError(t, early.Resign(t.Context()))
	})
}
