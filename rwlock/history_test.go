package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

const readers, writers = 20, 5

// A turn is what a contender does once: it comes after a pause, waits for the lock so long, and holds it so long. A
// writer may then go on as a reader, for as long.
type turn struct {
	Pause, Wait, Hold time.Duration
	Try, Downgrade    bool
}

// What befalls contenders besides what befalls clients everywhere.
const (
	kill      = "kill"      // the victim is not heard of any more
	breakNode = "breakNode" // an operator deletes the node of whoever is somewhere in line
)

type schedule struct {
	Turns   [][]turn // the readers' first
	Mishaps []recipetest.Mishap
}

func drawSchedule(t *rapid.T) schedule {
	s := schedule{Turns: make([][]turn, readers+writers)}
	for i := range s.Turns {
		for range rapid.IntRange(1, 3).Draw(t, "turns") {
			s.Turns[i] = append(s.Turns[i], turn{
				Pause:     recipetest.DrawDuration(t, 10*time.Second, "pause"),
				Wait:      recipetest.DrawDuration(t, time.Minute, "wait"),
				Hold:      recipetest.DrawDuration(t, 5*time.Second, "hold"),
				Try:       rapid.IntRange(0, 4).Draw(t, "try") == 0,
				Downgrade: rapid.Bool().Draw(t, "downgrade"),
			})
		}
	}
	s.Mishaps = recipetest.DrawMishaps(t, len(s.Turns), kill, breakNode)
	return s
}

func TestHistoriesUnderRandomFaultsAreThoseOfASharedLock(t *testing.T) {
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
	operator := rwlock.New(stage.Client(t), path)
	h := &history{}
	for _, m := range s.Mishaps {
		h.betrayed = h.betrayed || m.Kind == breakNode || m.Kind == recipetest.Expiry
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var contenders, mishaps group
	for i, turns := range s.Turns {
		stage.Links[i].Delay(time.Duration(i%4+1) * time.Millisecond) // so that things happen one after the other
		m := rwlock.New(stage.Clients[i], path)
		contenders.Go(func() error {
			for _, turn := range turns {
				time.Sleep(turn.Pause)
				if err := h.take(ctx, m, turn, i >= readers); err != nil {
					return fmt.Errorf("contender %d: %w", i, err)
				}
			}
			return nil
		})
	}
	mishaps.Go(func() error {
		stage.Befall(ctx, s.Mishaps, func(m recipetest.Mishap) {
			if m.Kind == kill {
				stage.Links[m.Victim].Stall()
			} else if line, err := operator.Contenders(ctx); err == nil && len(line) > 0 {
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
	return h.check()
}

// A history has when the lock was held for certain.
type history struct {
	betrayed bool // an operator broke locks or sessions, of which a holder may hear after the next one has come
	mu       sync.Mutex
	stays    []stay
}

type stay struct {
	exclusive bool
	node      string
	token     int64
	from, to  time.Time
}

// add enters a stay, unless it was lost and nobody can tell when.
func (h *history) add(l *rwlock.Lease, from, to time.Time) {
	if h.betrayed && errors.Is(l.Err(), protocol.ErrLost) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stays = append(h.stays, stay{l.Exclusive(), l.Node(), l.Token(), from, to})
}

// take has one turn. A lease is certain from the moment that it was returned until it was given back, or was known to
// be lost. A writer that goes on to read is a reader from the moment at which it says so.
func (h *history) take(ctx context.Context, m *rwlock.RWMutex, t turn, writer bool) error {
	verbs := map[[2]bool]verb{
		{false, false}: read, {false, true}: (*rwlock.RWMutex).TryRLock,
		{true, false}: write, {true, true}: (*rwlock.RWMutex).TryLock,
	}
	wait, cancel := context.WithTimeout(ctx, t.Wait)
	defer cancel()
	l, err := verbs[[2]bool{writer, t.Try}](m, wait)
	switch {
	case errors.Is(err, context.DeadlineExceeded), t.Try && errors.Is(err, rwlock.ErrLocked):
		return nil
	case err != nil:
		return err
	}
	for from := time.Now(); ; {
		select {
		case <-time.After(t.Hold):
		case <-l.Done():
		}
		to := time.Now()
		end, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var reading *rwlock.Lease
		var err error
		if t.Downgrade && l.Exclusive() {
			reading, err = l.Downgrade(end)
		} else {
			err = l.Unlock(end)
		}
		h.add(l, from, to)
		if errors.Is(err, protocol.ErrLost) {
			err = nil
		}
		if err != nil || reading == nil {
			return err
		}
		l, from = reading, to
	}
}

// check tells whether writers were alone, and everybody came in order of arrival, which is that of the tokens.
func (h *history) check() error {
	for i, a := range h.stays {
		for _, b := range h.stays[:i] {
			switch {
			case !a.exclusive && !b.exclusive:
			case a.from.Before(b.to) && b.from.Before(a.to):
				return fmt.Errorf("both hold the lock: %+v and %+v", a, b)
			case a.token == b.token && a.exclusive != b.exclusive: // a writer that went on to read
			case a.from.Before(b.from) != (a.token < b.token) && !a.from.Equal(b.from):
				return fmt.Errorf("not in order of arrival: %+v and %+v", a, b)
			}
		}
	}
	return nil
}
