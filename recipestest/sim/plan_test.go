package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanIsReadBackFromItsText(t *testing.T) {
	for text, want := range map[string]plan{
		"":                     {},
		"clients= faults=":     {clients: []part{}, faults: []spell{}},
		"clients=1:2,3":        {clients: []part{{1, 2}, {3, 0}}},
		"faults=0,4@1.5s+20ms": {faults: []spell{{0, -1, -1}, {4, 1500 * time.Millisecond, 20 * time.Millisecond}}},
		"faults=2+1µs,12@0s":   {faults: []spell{{2, -1, time.Microsecond}, {12, 0, -1}}},
	} {
		p, err := parsePlan(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p, text)
		require.Equal(t, text, p.String())
	}

	for _, text := range []string{"steps=1", "clients=a", "clients=1:", "faults=1@soon", "faults=1+", "faults=1+2"} {
		_, err := parsePlan(text)
		require.Error(t, err, text)
	}
}

func TestPlanChoosesFaultsByIndex(t *testing.T) {
	all := []Fault{{index: 0, At: 1, Lasts: 10}, {index: 1, At: 2, Lasts: 20}, {index: 2, At: 3, Lasts: 30}}
	require.Equal(t, all, plan{}.choose(all))
	require.Empty(t, plan{faults: []spell{}}.choose(all))
	p := plan{faults: []spell{{0, 5, -1}, {2, -1, 4}, {7, -1, -1}}}
	require.Equal(t, []Fault{{index: 2, At: 3, Lasts: 4}, {index: 0, At: 5, Lasts: 10}}, p.choose(all))
}

func TestRounderTimesAreTriedFirst(t *testing.T) {
	require.Equal(t, []time.Duration{
		time.Second, 2 * time.Second, 1200 * time.Millisecond, 1300 * time.Millisecond,
	}, rounder(1234 * time.Millisecond)[:4])
	require.Empty(t, rounder(2*time.Second))
}

// failing is a failure of a world with some clients and faults.
func failing(text string, clients int, turns map[string]int, faults ...Fault) *Failure {
	f := &Failure{Err: errors.New(text), Faults: faults}
	f.record, f.clients = &record{turns: turns}, clients
	return f
}

// A smaller schedule that fails in another way does not count.
func TestShrinkingKeepsTheKindOfFailure(t *testing.T) {
	failure := func(text string) *Failure { return failing(text, 2, nil, Fault{index: 0}, Fault{index: 1}) }
	f := failure("client 1, at 1.5s: the lock has two holders")
	f.shrink(plan{}, func(p plan) *Failure {
		if len(p.faults) < 2 || len(p.clients) < 1 {
			return failure("client 2 is stuck")
		}
		return failure("client 2, at 20ms: the lock has two holders")
	})
	require.Equal(t, "clients=2 faults=0,1", f.Only)
	require.Len(t, f.Enough, 2)
	require.EqualError(t, f.Err, "client 2, at 20ms: the lock has two holders")
}

// A client that does nothing is missing in the end. That is not what failed.
func TestShrinkingMakesNoFailures(t *testing.T) {
	failure := func(text string) *Failure { return failing(text, 2, map[string]int{"client 2": 3}, Fault{index: 0}) }
	f := failure("in the end, it is there 2 times")
	f.shrink(plan{}, func(p plan) *Failure {
		switch {
		case len(p.clients) < 2:
			return failure("in the end, it is there 0 times")
		case len(p.faults) > 0:
			return failure("in the end, it is there 2 times")
		}
		return nil
	})
	require.Equal(t, "clients=1,2:1 faults=0", f.Only)
}

func TestShrinkingEndsWithItsBudget(t *testing.T) {
	long := time.Hour + 1
	f := failing("no", 1, map[string]int{"client 1": 10_000}, Fault{index: 0, Kind: Stall, At: long, Lasts: long})
	plays, want := 0, maxReplays
	if testing.Short() {
		want = shortReplays
	}
	f.shrink(plan{}, func(plan) *Failure {
		plays++
		return nil
	})
	require.Equal(t, want, plays)
	require.Empty(t, f.Only)
	require.Equal(t, f.Faults, f.Enough)
}

func TestSeedDecidesWhatHappens(t *testing.T) {
	// The results of these have names in them.
	kinds := slices.DeleteFunc(slices.Clone(allKinds), func(k Kind) bool { return k == Expiry || k == Deletion })
	play := func() (faults []Fault, drawn []time.Duration) {
		f := playSeed(t, 7, func(w *World) {
			for _, c := range w.Clients(3) {
				drawn = append(drawn, c.Spell(), w.Upto(time.Hour), w.Timeout)
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, 10*w.Timeout)
					return nil
				})
			}
			w.Check(func() error { return errors.New("enough") })
		}, options{kinds: kinds}, &coverage{})
		return f.Faults, drawn
	}

	faults, drawn := play()
	again, drawnAgain := play()
	require.NotEmpty(t, faults)
	require.Equal(t, faults, again)
	require.Equal(t, drawn, drawnAgain)
}

func TestKindOfAFailureIsInItsFirstWords(t *testing.T) {
	const first = "in the end, each is there once: zk: node does not exist"
	require.Equal(t, kindOf(errors.New("client 1, at 1.5s: lock: /root-a/x: busy\nmore")), kindOf(errors.New("client 2, at 20ms: lock: /root-b/x: busy")))
	require.NotEqual(t, kindOf(errors.New(first)), kindOf(errors.New("in the end, each is there once: it is there 2 times")))
}

func TestLatestPacketsCountFromTheBeginningOfTheWorld(t *testing.T) {
	const trace = "          1s  connection 1  -> 1 create /a (9 bytes)\n" +
		"    3.0005s  connection 2  <- 1 create: ok (9 bytes)\n" +
		"      7.999s  connection 2  <- event /a (9 bytes)\n" +
		"          9s  connection 2  -> 0 close  (9 bytes)\n"
	const want = " 4.000500s  client 1   connection 2  <- 1 create: ok (9 bytes)\n" +
		" 8.999000s  client 1   connection 2  <- event /a (9 bytes)\n"
	require.Equal(t, want, lines(latestPackets("client 1", trace, time.Second, 9*time.Second)))
}
