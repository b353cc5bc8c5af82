package lock_test

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

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A turn is what a contender does once: it comes after a pause, waits for the lock so long, and holds it so long.
type turn struct {
	Pause, Wait, Hold time.Duration
	Try               bool
}

type schedule struct {
	Simple  bool
	Turns   [][]turn
	Mishaps []recipetest.Mishap
}

// broken is a mishap of whoever is somewhere in line: an operator deletes its node.
const broken = "break"

func drawSchedule(t *rapid.T) schedule {
	s := schedule{Simple: rapid.Bool().Draw(t, "simple")}
	for range rapid.IntRange(2, 5).Draw(t, "contenders") {
		var turns []turn
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			turns = append(turns, turn{
				Pause: recipetest.DrawDuration(t, 5*time.Second, "pause"),
				Wait:  recipetest.DrawDuration(t, time.Minute, "wait"),
				Hold:  recipetest.DrawDuration(t, 10*time.Second, "hold"),
				Try:   rapid.IntRange(0, 4).Draw(t, "try") == 0,
			})
		}
		s.Turns = append(s.Turns, turns)
	}
	s.Mishaps = recipetest.DrawMishaps(t, len(s.Turns), broken)
	return s
}

func TestHistoriesUnderRandomFaultsAreThoseOfALock(t *testing.T) {
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
	path := stage.Root(t) + "/lock"
	newLock := kinds["Mutex"]
	if s.Simple {
		newLock = kinds["Simple"]
	}
	operator := newLock(stage.Client(t), path)
	h := &history{}
	h.operated = slices.ContainsFunc(s.Mishaps, func(m recipetest.Mishap) bool { return m.Kind == broken })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var contenders, mishaps recipetest.Group
	for i, turns := range s.Turns {
		m := newLock(stage.Clients[i], path)
		contenders.Go(func() error {
			for _, turn := range turns {
				time.Sleep(turn.Pause)
				if err := h.take(ctx, i, m, turn); err != nil {
					return err
				}
			}
			return nil
		})
	}
	mishaps.Go(func() error {
		stage.Befall(ctx, s.Mishaps, func(m recipetest.Mishap) {
			if line, err := operator.Contenders(ctx); err == nil && len(line) > 0 {
				operator.Break(ctx, line[int(m.Lasts)%len(line)].Node)
			}
		})
		return nil
	})
	err := contenders.Wait()
	cancel()
	err = errors.Join(err, mishaps.Wait())
	stage.Calm()
	if err != nil {
		return err
	}
	// Nothing is stuck: what was left goes away, and the lock can be had.
	last, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := operator.Lock(last)
	if err != nil {
		return fmt.Errorf("the lock is stuck: %w", err)
	}
	require.NoError(t, l.Unlock(last))
	return h.Check()
}

// A history is what the contenders saw of the lock.
type history struct {
	recipetest.History
	operated bool // an operator broke locks, of which a holder may hear after the next one has come
}

// take has one turn, and notes when the lock was granted, and when it was over: given back, or known to be lost.
func (h *history) take(ctx context.Context, client int, m locker, t turn) error {
	acquire := m.Lock
	if t.Try {
		acquire = m.TryLock
	}
	call := time.Now()
	wait, cancel := context.WithTimeout(ctx, t.Wait)
	defer cancel()
	l, err := acquire(wait)
	switch {
	case errors.Is(err, context.DeadlineExceeded), t.Try && errors.Is(err, lock.ErrLocked):
		return nil
	case err != nil:
		return err
	}
	granted := time.Now()
	h.Granted(client, l.Token(), call, granted)
	select {
	case <-time.After(t.Hold):
	case <-l.Done():
	}
	over := time.Now()
	unlock, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = l.Unlock(unlock)
	lost := errors.Is(err, protocol.ErrLost)
	if lost {
		err = nil
	}
	if lost || h.operated {
		over = granted // it may have been over at any moment since then
	}
	h.Over(client, l.Token(), over, time.Now())
	return err
}
