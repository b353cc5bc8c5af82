package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// unlapped checks that nobody was let in by a gate while somebody whom an earlier gate had let in, and who has left
// properly, had not begun to leave.
func unlapped(visits []*visit) error {
	in := slices.DeleteFunc(slices.Clone(visits), func(v *visit) bool { return v.err != nil })
	slices.SortFunc(in, func(a, b *visit) int { return int(a.token - b.token) })
	var last time.Time // departure from all earlier rounds
	var next time.Time
	for i, v := range in {
		if i > 0 && v.token != in[i-1].token {
			last = next
		}
		if v.entered.Before(last) {
			return fmt.Errorf("%s was in at %v, when a member of an earlier round left at %v", v.name, v.entered, last)
		}
		if v.leave == nil && v.departing.After(next) {
			next = v.departing
		}
	}
	return nil
}

func TestHundredsOfRoundsWithKillsAndReplacements(t *testing.T) {
	recipetest.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		const n, crew, rounds = 3, 5, 300
		ctx, cancel := context.WithCancel(patient(t))
		defer cancel()
		var mu sync.Mutex // protects what follows
		var visits []*visit
		var seen = make(map[int64]bool)
		var all group
		var kills atomic.Int32
		for i := range crew {
			all.Go(func() error {
				link := srv.Link(t)
				c := link.Client(t)
				b := doublebarrier.New(c, path, n, doublebarrier.WaitForNextRound())
				for k := 0; ctx.Err() == nil; k++ {
					soon, stop := context.WithCancel(ctx)
					defer stop()
					switch {
					case k%17 == i+3:
						time.AfterFunc(time.Duration(k%7)*time.Millisecond, stop)
					case k%23 == i+7: // killed at one step or another, and replaced
						s, err := c.Session(ctx)
						if err != nil {
							return nil
						}
						defer link.At(k%19+1, func() {
							kills.Add(1)
							srv.ExpireSession(s.ID())
						})()
					case k%11 == i+2:
						defer link.At(k%13+1, func() { link.Cut(); link.Heal() })()
					}
					v := (&visit{name: fmt.Sprintf("%d/%d", i, k)}).start(soon, ctx, b, 0)
					<-v.done
					stop()
					mu.Lock()
					visits = append(visits, v)
					if v.err == nil {
						seen[v.token] = true
					}
					if len(seen) >= rounds {
						cancel()
					}
					mu.Unlock()
				}
				return nil
			})
		}
		require.NoError(t, all.Wait())
		require.GreaterOrEqual(t, len(seen), rounds)
		require.NoError(t, agree(n, visits, int(kills.Load()))) // whose session was lost may not know that it was counted
		require.NoError(t, unlapped(visits))
		for _, v := range visits {
			if v.err != nil && ctx.Err() == nil {
				require.True(t, v.withdrew() || v.vague(), v.err)
			}
		}
		vanishes(t, srv.Client(t), path)
	})
}

// A turn is what a member does once: it comes after a pause, waits so long, and stays so long.
type turn struct {
	Pause, Wait, Stay time.Duration
	Waits             bool // for the next round
}

type schedule struct {
	N       int
	Turns   [][]turn
	Mishaps []recipetest.Mishap
}

func drawSchedule(t *rapid.T) schedule {
	s := schedule{N: rapid.IntRange(1, 4).Draw(t, "n")}
	for range s.N + rapid.IntRange(0, 2).Draw(t, "more") {
		var turns []turn
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			turns = append(turns, turn{
				Pause: recipetest.DrawDuration(t, 5*time.Second, "pause"),
				Wait:  recipetest.DrawDuration(t, time.Minute, "wait"),
				Stay:  recipetest.DrawDuration(t, 10*time.Second, "stay"),
				Waits: rapid.Bool().Draw(t, "waits"),
			})
		}
		s.Turns = append(s.Turns, turns)
	}
	s.Mishaps = recipetest.DrawMishaps(t, len(s.Turns))
	return s
}

func TestHistoriesUnderRandomFaultsAreThoseOfADoubleBarrier(t *testing.T) {
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
	stage := recipetest.NewStage(t, len(s.Turns))
	path := stage.Root(t) + "/b"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex // protects visits
	var visits []*visit
	var members, mishaps recipetest.Group
	for i, turns := range s.Turns {
		members.Go(func() error {
			for k, turn := range turns {
				time.Sleep(turn.Pause)
				var opts []doublebarrier.Option
				if turn.Waits {
					opts = append(opts, doublebarrier.WaitForNextRound())
				}
				b := doublebarrier.New(stage.Clients[i], path, s.N, opts...)
				wait, stop := context.WithTimeout(ctx, turn.Wait)
				began := time.Now()
				v := (&visit{name: fmt.Sprintf("%d/%d", i, k)}).start(wait, ctx, b, turn.Stay)
				<-v.done
				stop()
				if took := time.Since(began); v.err != nil && took > turn.Wait+100*time.Millisecond {
					return fmt.Errorf("%s gave up after %v instead of %v", v.name, took, turn.Wait)
				}
				mu.Lock()
				visits = append(visits, v)
				mu.Unlock()
			}
			return nil
		})
	}
	mishaps.Go(func() error {
		stage.Befall(ctx, s.Mishaps, func(recipetest.Mishap) {})
		return nil
	})
	err := members.Wait()
	cancel()
	err = errors.Join(err, mishaps.Wait())
	stage.Calm()
	if err != nil {
		return err
	}
	ghosts := 0 // whoever has lost a session may have been counted without having heard of it
	for _, m := range s.Mishaps {
		if m.Kind != recipetest.Slow && m.Kind != recipetest.LostReplies && m.Kind != recipetest.Reap {
			ghosts++
		}
	}
	if err := errors.Join(agree(s.N, visits, ghosts), unlapped(visits)); err != nil {
		return err
	}
	for _, v := range visits {
		if v.err != nil && !v.withdrew() && !v.vague() && !errors.Is(v.err, doublebarrier.ErrFull) {
			return fmt.Errorf("%s: %w", v.name, v.err)
		}
		if v.leave != nil && !errors.Is(v.leave, protocol.ErrLost) {
			return fmt.Errorf("%s: leaving: %w", v.name, v.leave)
		}
	}
	// Nothing is stuck: what was left goes away, and the next round can begin.
	last, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	joined(t, stage.Client(t), path, 0)
	var all recipetest.Group
	b := doublebarrier.New(stage.Client(t), path, s.N, doublebarrier.WaitForNextRound())
	for range s.N {
		all.Go(func() error { return b.Do(last, func(ctx context.Context) error { return ctx.Err() }) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("the barrier is stuck: %w", err)
	}
	vanishes(t, stage.Client(t), path)
	return nil
}
