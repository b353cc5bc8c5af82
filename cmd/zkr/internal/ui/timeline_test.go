package ui

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

func TestTimelineForgetsAfterAnHour(t *testing.T) {
	var line timeline
	began := time.Unix(1_000_000, 0)
	line.add(began, 1, event{Kind: acquired})
	line.add(began.Add(lasting), 2, event{Kind: ended})
	require.Len(t, line.since(0), 2)
	require.Len(t, line.since(1), 1)
	require.Empty(t, line.since(2))
	line.add(began.Add(lasting+time.Second), 3, event{Kind: acquired})
	require.Len(t, line.since(0), 2)
	line.add(began.Add(3*lasting), 4)
	require.Empty(t, line.since(0))

	for range maxEvents + 10 {
		line.add(began.Add(3*lasting), 5, event{Kind: joined})
	}
	require.Len(t, line.since(0), maxEvents)
	require.EqualValues(t, 3+maxEvents+10, line.since(4)[maxEvents-1].Seq)
}

func TestRatesGoOnAcrossTheWrapOfTheCounter(t *testing.T) {
	var f flow
	at := time.Unix(1_000_000, 0)
	f.add(at, &survey.Entries{Created: math.MaxInt32 - 5, Length: 100})
	in, out := f.rates()
	require.Zero(t, in+out, "one look tells nothing")
	f.add(at.Add(10*time.Second), &survey.Entries{Created: math.MinInt32 + 14, Length: 90})
	in, out = f.rates()
	require.InDelta(t, 2, in, 0.01)
	require.InDelta(t, 3, out, 0.01)
	f.add(at.Add(21*time.Second), &survey.Entries{Created: math.MinInt32 + 14, Length: 90})
	in, out = f.rates()
	require.Zero(t, in+out)
}

// kinds returns the kinds of the events between two looks at a place.
func kinds(before, now *survey.Place) (all []string) {
	for _, e := range happened(before, now, func(string) survey.End { return survey.Released }) {
		all = append(all, e.Kind)
	}
	return all
}

func TestPlaceThatBecomesAnotherRecipeHasNoHandOver(t *testing.T) {
	holder := survey.Contender{Node: "a", State: survey.Holds, Token: 1}
	held := &survey.Place{Path: "/p", Recipe: survey.Lock, Contenders: []survey.Contender{holder}}
	require.Equal(t, []string{ended}, kinds(held, &survey.Place{Path: "/p", Recipe: survey.Empty}))
	require.Equal(t, []string{acquired}, kinds(&survey.Place{Path: "/p", Recipe: survey.Missing}, held))
	require.Empty(t, kinds(held, held))

	// The same name with another token is another holder.
	again := &survey.Place{Path: "/p", Recipe: survey.Lock, Contenders: []survey.Contender{{Node: "a", State: survey.Holds, Token: 2}}}
	require.Equal(t, []string{handedOver}, kinds(held, again))

	waiting := &survey.Place{Path: "/p", Recipe: survey.Lock, Contenders: []survey.Contender{holder, {Node: "b", State: survey.Waits}}}
	require.Empty(t, kinds(held, waiting))
	require.Empty(t, kinds(&survey.Place{Recipe: survey.Queue, Contenders: held.Contenders}, &survey.Place{Recipe: survey.Queue}))
}

func TestContendersThatWereNotReadMakeNoEvents(t *testing.T) {
	permits := func(more int, tokens ...int64) *survey.Place {
		p := &survey.Place{Path: "/p", Recipe: survey.Semaphore, More: more}
		for _, token := range tokens {
			p.Contenders = append(p.Contenders, survey.Contender{Node: fmt.Sprint(token), State: survey.Holds, Token: token})
		}
		return p
	}
	require.Equal(t, []string{ended}, kinds(permits(1, 1, 2), permits(0, 2, 3)), "3 has held before, unread")
	require.Equal(t, []string{handedOver}, kinds(permits(0, 1, 2), permits(0, 2, 3)))

	members := func(unread []string, names ...string) *survey.Place {
		p := &survey.Place{Path: "/g", Recipe: survey.Group, Unread: unread}
		for _, name := range names {
			p.Contenders = append(p.Contenders, survey.Contender{Node: name, State: survey.Member, Token: 1})
		}
		return p
	}
	require.Empty(t, kinds(members(nil, "a", "b"), members([]string{"b"}, "a")))
	require.Empty(t, kinds(members([]string{"b"}, "a"), members(nil, "a", "b")))
	require.Equal(t, []string{left}, kinds(members(nil, "a", "b"), members(nil, "a")))
}
