package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimArrivalsAtAMutex(t *testing.T) {
	sim.Run(t, arrivals(func(c *protocol.Client, path string) acquire {
		m := lock.New(c, path)
		return func(ctx context.Context) (unlocker, error) { return m.Lock(ctx) }
	}))
}

func TestSimFindsALockThatIsWonByNewcomers(t *testing.T) {
	f := sim.Find(t, arrivals(func(c *protocol.Client, path string) acquire {
		b := barger{line.New(recipe.New(c, "barger", path), line.Kind{Name: "lock-"}), lock.NewSimple(c, path+"-race")}
		return b.lock
	}), sim.WithSeeds(1000))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "the lock is not granted in order of arrival")
	t.Log(f)
}

// A nodeGrant is never lost, and has a node.
type nodeGrant struct {
	fakeGrant
	node string
}

func (g nodeGrant) Node() string { return g.node }

// Of each four nodes, the second leaves, the first and the third. The last is granted.
func TestOrderOfManyArrivalsIsChecked(t *testing.T) {
	for name, first := range map[string]int{"in order": 0, "overtaken": 2} {
		t.Run(name, func(t *testing.T) {
			f := sim.Find(t, func(w *sim.World) {
				held, c := w.Exclusive("the lock"), w.Clients(1)[0]
				var line []string
				look := func() {
					held.Listed(time.Now(), time.Now(), slices.Clone(line)...)
					c.Sleep(w.Context(), time.Millisecond)
				}
				leave := func(at int) {
					line = slices.Delete(line, at, at+1)
					look()
				}
				c.Go(func(context.Context) error {
					called := time.Now()
					for i := range 60 {
						line = append(line, fmt.Sprintf("node %d", i))
						look()
					}
					for at := first; at+4 <= len(line); {
						leave(at + 1)
						leave(at)
						leave(at)
						turn := held.Begin(c, called, nodeGrant{fakeGrant{token: int64(61 - len(line))}, line[at]})
						turn.End(nil)
						leave(at)
					}
					return nil
				})
			}, sim.WithFaults(), sim.WithSeeds(1))
			if first == 0 {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, "node 0 was in line when node 5 came, which has overtaken it")
		})
	}
}

func TestSimArrivalsAtAnElection(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		led := w.Exclusive("the leadership")
		w.Processes(3+w.Rand.IntN(2), func(c *sim.Client) {
			for range 2 {
				e, begins, waits, leads := election.New(c.Client, w.Path), c.Upto(w.Timeout), c.Upto(6*w.Timeout), c.Spell()
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					wait, cancel := context.WithTimeout(ctx, waits)
					defer cancel()
					called := time.Now()
					term, err := e.Campaign(wait, nil)
					if errors.Is(err, context.DeadlineExceeded) {
						return nil
					} else if err != nil {
						return err
					}
					turn := led.Begin(c, called, term)
					turn.Keep(leads)
					return turn.End(term.Resign(ctx))
				})
			}
		})
		lookAt(w, led)
	})
}

// acquire is one way to get a lock.
type acquire func(context.Context) (unlocker, error)

type unlocker interface {
	sim.Grant
	Unlock(context.Context) error
}

// arrivals simulates clients that contend for a lock, several of them at a time, while an operator
// looks at the line.
func arrivals(newLock func(*protocol.Client, string) acquire) func(*sim.World) {
	return func(w *sim.World) {
		held := w.Exclusive("the lock")
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			for range 1 + c.Rand.IntN(3) {
				lock, plan := newLock(c.Client, w.Path), lockVisits(w, c)
				c.Go(func(ctx context.Context) error {
					for _, v := range plan {
						c.Sleep(ctx, v.pause)
						wait, cancel := context.WithTimeout(ctx, v.wait)
						called := time.Now()
						l, err := lock(wait)
						cancel()
						if errors.Is(err, context.DeadlineExceeded) {
							continue
						} else if err != nil {
							return err
						}
						turn := held.Begin(c, called, l)
						spell := v.spell
						if v.verb > 0 { // most holders are quick, so that the line moves
							spell /= 4
						}
						turn.Keep(spell)
						if err := turn.End(l.Unlock(ctx)); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
		lookAt(w, held)
	}
}

// lookAt lists the line at the path of the world again and again.
func lookAt(w *sim.World, held *sim.Exclusive) {
	operator, err := w.Operator().Session(context.Background())
	require.NoError(w, err)
	go func() {
		for w.Context().Err() == nil {
			from := time.Now()
			nodes, _, err := operator.Conn().Children(w.Path)
			switch {
			case err == nil:
				held.Listed(from, time.Now(), nodes...)
			case operator.Err() != nil:
				return
			}
			select {
			case <-time.After(w.Timeout / 64):
			case <-w.Context().Done():
			}
		}
	}()
}

// A barger lines up, and then takes part in a race that the first in line need not win.
type barger struct {
	line *line.Line
	race *lock.Simple
}

// A bargerLease has the node in line, and the lock that was raced for.
type bargerLease struct {
	*lock.Lease
	place *recipe.Grant
}

func (l bargerLease) Node() string { return l.place.Node() }

func (b barger) lock(ctx context.Context) (unlocker, error) {
	place, err := b.line.Enter(ctx, line.Request{Kind: "lock-", Blockers: func([]line.Name, int) []line.Name { return nil }})
	if err != nil {
		return nil, err
	}
	won, err := b.race.Lock(ctx)
	if err != nil {
		place.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	return bargerLease{won, place}, nil
}

func (l bargerLease) Unlock(ctx context.Context) error {
	err := l.Lease.Unlock(ctx)
	if left := l.place.Release(ctx); !errors.Is(left, protocol.ErrLost) {
		err = errors.Join(err, left)
	}
	return err
}
