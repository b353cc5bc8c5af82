package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A way is how a term ends that is not lost: lead returns, or resigns to somebody.
type way struct {
	Lasts  time.Duration
	Favour int // at this place in line; 0 for nobody
}

type schedule struct {
	Candidates [][]way // what each of them does in its terms, before it leaves for good
	Mishaps    []recipetest.Mishap
}

const deposed = "depose"

func drawSchedule(t *rapid.T) schedule {
	var s schedule
	for range rapid.IntRange(2, 5).Draw(t, "candidates") {
		var ways []way
		for range rapid.IntRange(1, 5).Draw(t, "terms") {
			ways = append(ways, way{
				Lasts:  recipetest.DrawDuration(t, 10*time.Second, "lasts"),
				Favour: rapid.IntRange(0, 4).Draw(t, "favour"),
			})
		}
		s.Candidates = append(s.Candidates, ways)
	}
	s.Mishaps = recipetest.DrawMishaps(t, len(s.Candidates), deposed)
	return s
}

func TestHistoriesUnderRandomFaultsAreThoseOfAnElection(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = play(t, s) })
		if failure != nil {
			rt.Fatalf("%v", failure)
		}
	})
}

// play runs a schedule in virtual time and checks what came of it.
func play(t *testing.T, s schedule) error {
	srv := recipestest.Start(t, recipestest.InMemory())
	path := srv.Root(t) + "/election"
	operator := election.New(srv.Client(t), path)
	links := make([]*recipestest.Link, len(s.Candidates))
	clients := make([]*protocol.Client, len(s.Candidates))
	for i := range s.Candidates {
		links[i] = srv.Link(t)
		clients[i] = links[i].Client(t)
	}
	h := &history{}
	h.operated = slices.ContainsFunc(s.Mishaps, func(m recipetest.Mishap) bool { return m.Kind == deposed })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var candidates, mishaps, observers recipetest.Group
	for i, ways := range s.Candidates {
		candidates.Go(func() error { return h.run(ctx, i, election.New(clients[i], path), ways) })
	}
	observer := election.New(clients[0], path) // whose network is as bad as any
	var seen election.Leader
	observers.Go(func() error {
		newest := int64(0)
		for l, err := range observer.Observe(ctx) {
			switch {
			case errors.Is(err, context.Canceled):
				return nil
			case err != nil:
				return err
			case !l.Vacant() && l.Token < newest:
				return fmt.Errorf("an observer was told of leader %d after %d", l.Token, newest)
			}
			seen, newest = l, max(newest, l.Token)
		}
		return errors.New("an observation has ended")
	})
	quiet := make(chan struct{})
	mishaps.Go(func() error {
		for _, m := range s.Mishaps {
			select {
			case <-time.After(m.After):
			case <-quiet:
				return nil
			}
			if recipetest.Befall(ctx, srv, links[m.Victim], clients[m.Victim], m) {
				continue
			}
			if line, err := operator.Candidates(ctx); err == nil && len(line) > 0 {
				operator.Break(ctx, line[int(m.Lasts)%len(line)].Node)
			}
		}
		return nil
	})
	err := candidates.Wait()
	close(quiet)
	err = errors.Join(err, mishaps.Wait())
	for _, l := range links {
		l.Heal()
		l.Delay(0)
	}
	// Nothing is stuck: what was left goes away, somebody can lead, and the observer is told.
	last, cancelLast := context.WithTimeout(t.Context(), time.Minute)
	defer cancelLast()
	term, failed := operator.Campaign(last, []byte("last"))
	if err = errors.Join(err, failed); err != nil {
		cancel()
		return errors.Join(err, observers.Wait())
	}
	time.Sleep(time.Minute)
	cancel()
	if err := observers.Wait(); err != nil {
		return err
	}
	if seen.Token != term.Token() {
		return fmt.Errorf("the observer saw leader %d last, and it is %d", seen.Token, term.Token())
	}
	require.NoError(t, term.Resign(t.Context()))
	return h.Check()
}

// A history is what the candidates saw of the election.
type history struct {
	recipetest.History
	operated bool // an operator deposed leaders, who may hear of it after the next one has won
}

var errLeft = errors.New("that was the last term")

// run has a candidate lead its terms, and notes when each was won and when it was over.
func (h *history) run(ctx context.Context, client int, e *election.Election, ways []way) error {
	call := time.Now()
	var over func()
	err := e.Run(ctx, []byte{byte(client)}, func(ctx context.Context, t *election.Term) error {
		if over != nil {
			over()
		}
		won := time.Now()
		h.Granted(client, t.Token(), call, won)
		w := ways[0]
		ways = ways[1:]
		ended, lost := won, false
		over = func() {
			if lost || h.operated {
				ended = won // it may have been over at any moment since then
			}
			h.Over(client, t.Token(), ended, time.Now())
			call = time.Now()
		}
		if err := t.Proclaim(ctx, []byte("ready")); err != nil && t.Err() == nil {
			return err
		}
		select {
		case <-time.After(w.Lasts):
		case <-ctx.Done():
		}
		if w.Favour > 0 {
			if line, err := e.Candidates(ctx); err == nil && len(line) > w.Favour {
				ended = time.Now()
				t.ResignTo(ctx, line[w.Favour].Node)
			}
		}
		if t.Err() == nil {
			ended = time.Now()
		}
		lost = errors.Is(t.Resign(context.WithoutCancel(ctx)), protocol.ErrLost)
		if len(ways) == 0 {
			return errLeft
		}
		return nil
	})
	over()
	if !errors.Is(err, errLeft) {
		return err
	}
	return nil
}
