package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// Contenders of all recipes at one path exclude each other, but for readers among readers.
func TestSimMixed(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Shared("the path")
		w.Watches = 4 // each session that has waited for a permit watches the path's number
		spelling := rwlock.WithSpelling(rwlock.Spelling(w.Rand.IntN(3)))
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			sharing := []rwlock.Option{spelling}
			if c.Rand.IntN(2) == 0 {
				sharing = append(sharing, rwlock.WithLocalSharing())
			}
			m := mixed{
				client: c, held: held,
				mutex: lock.New(c.Client, w.Path), queued: lock.New(c.Client, w.Path, lock.WithLocalQueue()),
				simple: lock.NewSimple(c.Client, w.Path), shared: rwlock.New(c.Client, w.Path, sharing...),
				semaphore: semaphore.New(c.Client, w.Path, 1), once: once.New(c.Client, w.Path),
				election: election.New(c.Client, w.Path),
			}
			for range 1 + c.Rand.IntN(3) {
				plan, ways := lockVisits(w, c), make([]int, 4)
				for i := range ways {
					ways[i] = c.Rand.IntN(8)
				}
				c.Go(func(ctx context.Context) error {
					for i, v := range plan {
						c.Sleep(ctx, v.pause)
						if err := m.visit(ctx, v, ways[i]); err != nil {
							return fmt.Errorf("way %d: %w", ways[i], err)
						}
					}
					return nil
				})
			}
		})

		w.Finally("the path is free", func(ctx context.Context) error {
			return lock.New(w.Alive()[0].Client, w.Path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		})
	})
}

// A mixed has what a client contends with.
type mixed struct {
	client        *sim.Client
	held          *sim.Shared
	mutex, queued *lock.Mutex
	simple        *lock.Simple
	shared        *rwlock.RWMutex
	semaphore     *semaphore.Semaphore
	once          *once.Once
	election      *election.Election
}

func (m mixed) visit(ctx context.Context, v lockVisit, way int) error {
	wait, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	switch way {
	case 0:
		return enter(ctx, m, v, wait, m.mutex.Lock, (*lock.Lease).Unlock)
	case 1:
		return enter(ctx, m, v, wait, m.queued.Lock, (*lock.Lease).Unlock)
	case 2:
		return enter(ctx, m, v, wait, m.simple.Lock, (*lock.Lease).Unlock)
	case 3:
		return enter(ctx, m, v, wait, m.simple.TryLock, (*lock.Lease).Unlock)
	case 4:
		return enter(ctx, m, v, wait, m.semaphore.Acquire, (*semaphore.Permit).Release)
	case 5:
		campaign := func(ctx context.Context) (*election.Term, error) { return m.election.Campaign(ctx, nil) }
		return enter(ctx, m, v, wait, campaign, func(t *election.Term, ctx context.Context) error {
			if all, err := m.election.Candidates(ctx); err == nil && v.downgrade && len(all) > 1 {
				t.ResignTo(ctx, all[len(all)-1].Node) // or else Resign does it
			}
			return t.Resign(ctx)
		})
	case 6:
		called, errRun := time.Now(), errors.New("has run")
		_, err := m.once.Do(wait, fmt.Sprint("key", called.Unix()%4), func(_ context.Context, r *once.Run) error {
			turn := m.held.Begin(m.client, called, r, true)
			turn.Keep(v.spell)
			turn.End(nil)
			return errRun
		})
		if errors.Is(err, errRun) || errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}
	return readOrWrite(ctx, m.client, m.shared, m.held, v)
}

// enter acquires something that excludes all others, and gives it back.
func enter[G sim.Grant](ctx context.Context, m mixed, v lockVisit, wait context.Context,
	acquire func(context.Context) (G, error), give func(G, context.Context) error) error {
	called := time.Now()
	g, err := acquire(wait)
	if errors.Is(err, lock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	} else if err != nil {
		return err
	}
	turn := m.held.Begin(m.client, called, g, true)
	turn.Keep(v.spell)
	err = give(g, ctx)
	if errors.Is(err, protocol.ErrReleased) {
		err = nil
	}
	return turn.End(err)
}
