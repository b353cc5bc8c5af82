package sim_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// A visit is one use of something that is held. It is drawn before goroutines that share a client
// begin.
type visit struct {
	pause, wait  time.Duration // before it, and for the grant
	spell, after time.Duration // how long it is held, and held on to read
	pick         int           // for other choices
}

// chance reports whether a choice that most visits don't make is made.
func (v visit) chance() bool { return v.pick%5 == 0 }

// contend has goroutines of some clients make visits. For each client, join returns how many
// goroutines it has, and what they do at each visit.
func contend(w *sim.World, clients int, join func(c *sim.Client) (goroutines int, use func(context.Context, visit) error)) {
	w.Processes(clients, func(c *sim.Client) {
		goroutines, use := join(c)
		for range goroutines {
			plan := make([]visit, 1+c.Rand.IntN(4))
			for i := range plan {
				plan[i] = visit{c.Upto(w.Timeout / 2), c.Upto(4 * w.Timeout), c.Spell(), c.Spell(), c.Rand.IntN(1 << 20)}
			}
			c.Go(func(ctx context.Context) error {
				for _, v := range plan {
					c.Sleep(ctx, v.pause)
					if err := use(ctx, v); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
}

// hold acquires something, keeps it for a while, and gives it back.
func hold[G sim.Grant](ctx context.Context, c *sim.Client, v visit, begin func(*sim.Client, time.Time, sim.Grant) *sim.Turn,
	acquire func(context.Context) (G, error), give func(G, context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	called := time.Now()
	g, err := acquire(wait)
	for _, refusal := range []error{context.DeadlineExceeded, lock.ErrLocked, rwlock.ErrLocked, semaphore.ErrNoPermit} {
		if errors.Is(err, refusal) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}

	turn := begin(c, called, g)
	turn.Keep(v.spell)
	return turn.End(give(g, ctx))
}

// watch follows values, which must come in order, until stop is called. stop returns the last one.
func watch[T any](w *sim.World, values func(context.Context) iter.Seq2[T, error], inOrder func(before, now T) error) (stop func() (T, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	var last T
	watched := make(chan error, 1)
	go func() {
		defer close(watched)
		for now, err := range values(ctx) {
			if err == nil {
				err = inOrder(last, now)
			}
			if err != nil {
				watched <- err
				return
			}
			last = now
		}
	}()
	return func() (T, error) {
		cancel()
		err := <-watched
		return last, err
	}
}

// lockIsFree checks in the end that contenders have given the lock at the path of the world back.
// (Only a dead client keeps it, until its session ends.)
func lockIsFree(w *sim.World) {
	w.Finally("the lock is free", func(ctx context.Context) error {
		began := time.Now()
		err := lock.New(w.Alive()[0].Client, w.Path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		if took := time.Since(began); err == nil && took > 3*w.Timeout {
			err = fmt.Errorf("the lock was free after %v", took)
		}
		return err
	})
}

// locker is what a Mutex and a Simple have in common.
type locker interface {
	Lock(context.Context) (*lock.Lease, error)
	TryLock(context.Context) (*lock.Lease, error)
	Do(context.Context, func(context.Context, *lock.Lease) error) error
}

// locks simulates clients that contend for a lock. In the end each of them can have it.
func locks(linger bool, newLock func(w *sim.World, c *sim.Client) locker) func(*sim.World) {
	return func(w *sim.World) {
		held := w.Exclusive("the lock")
		if linger {
			held.Repeats()
			w.Watches = 8 // a client may linger in the end, and watches the line for a while when it has given back
		}
		contend(w, 1+w.Rand.IntN(4), func(c *sim.Client) (int, func(context.Context, visit) error) {
			m := newLock(w, c)
			w.Finally(c.Name+" has the lock", func(ctx context.Context) error {
				if c.Dead() {
					return nil
				}
				return m.Do(ctx, func(context.Context, *lock.Lease) error { return nil })
			})
			return 1 + c.Rand.IntN(3), func(ctx context.Context, v visit) error {
				acquire := m.Lock
				if v.chance() {
					acquire = m.TryLock
				}
				return hold(ctx, c, v, held.Begin, acquire, (*lock.Lease).Unlock)
			}
		})
		lockIsFree(w)
	}
}

func TestSimMutex(t *testing.T) {
	sim.Run(t, locks(false, func(w *sim.World, c *sim.Client) locker { return lock.New(c.Client, w.Path) }))
}

func TestSimSimple(t *testing.T) {
	sim.Run(t, locks(false, func(w *sim.World, c *sim.Client) locker { return lock.NewSimple(c.Client, w.Path) }))
}

func TestSimLocalQueue(t *testing.T) {
	sim.Run(t, locks(false, func(w *sim.World, c *sim.Client) locker {
		return lock.New(c.Client, w.Path, lock.WithLocalQueue())
	}))
}

// lingering is a lock that lingers for a time that the seed draws, or for as long as it may.
func lingering(w *sim.World, c *sim.Client) locker {
	d := time.Millisecond + c.Upto(2*w.Timeout)
	if c.Rand.IntN(2) == 0 {
		d = time.Hour
	}
	return lock.New(c.Client, w.Path, lock.WithLinger(d))
}

// Goroutines of each client pass a node on. Some of the clients keep none.
func TestSimLinger(t *testing.T) {
	sim.Run(t, locks(true, func(w *sim.World, c *sim.Client) locker {
		if c.Rand.IntN(4) == 0 {
			return lock.New(c.Client, w.Path)
		}
		return lingering(w, c)
	}))
}

// A lock lingers beside contenders of all kinds that a line of locks may have.
func TestSimLingerBesideOthers(t *testing.T) {
	sim.Run(t, locks(true, func(w *sim.World, c *sim.Client) locker {
		switch c.Rand.IntN(4) {
		case 0:
			return lock.NewSimple(c.Client, w.Path)
		case 1:
			return lock.New(c.Client, w.Path, lock.WithLocalQueue())
		}
		return lingering(w, c)
	}))
}

// Clients hold several locks at once, and take some of them alone. Goroutines of a client share a
// local queue for each lock, or its node.
func TestSimLockAll(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		names := []string{"/a", "/b", "/c"}
		var held []*sim.Exclusive
		for _, name := range names {
			held = append(held, w.Exclusive("lock "+name).Repeats())
		}
		contend(w, 2+w.Rand.IntN(2), func(c *sim.Client) (int, func(context.Context, visit) error) {
			var locks []*lock.Mutex
			for _, name := range names {
				var opts []lock.Option
				switch c.Rand.IntN(3) {
				case 0:
					opts = append(opts, lock.WithLocalQueue())
				case 1:
					opts = append(opts, lock.WithLinger(time.Millisecond+c.Upto(w.Timeout)))
				}
				locks = append(locks, lock.New(c.Client, w.Path+name, opts...))
			}
			return 1 + c.Rand.IntN(3), func(ctx context.Context, v visit) error {
				return holdAll(ctx, c, v, locks, held)
			}
		})
		w.Finally("all locks are free", func(ctx context.Context) error {
			c := w.Alive()[0].Client
			all, err := lock.LockAll(ctx, lock.New(c, w.Path+"/b"), lock.New(c, w.Path+"/c"), lock.New(c, w.Path+"/a"))
			if err != nil {
				return err
			}
			return all.Unlock(ctx)
		})
	})
}

// holdAll holds some of the locks, in any order.
func holdAll(ctx context.Context, c *sim.Client, v visit, locks []*lock.Mutex, held []*sim.Exclusive) error {
	wait, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	first, n := v.pick%3, 1+v.pick/3%3
	step := 1 + v.pick/9%2
	var which []int
	var some []*lock.Mutex
	for i := range n {
		which = append(which, (first+i*step)%3)
		some = append(some, locks[which[i]])
	}

	called := time.Now()
	all, err := lock.LockAll(wait, some...)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	} else if err != nil {
		return err
	}
	var turns []*sim.Turn
	for n, i := range which {
		turns = append(turns, held[i].Begin(c, called, all.All()[n]))
	}
	turns[0].Keep(v.spell)
	for _, turn := range turns[1:] {
		turn.Holds()
	}

	err = all.Unlock(ctx)
	for _, turn := range turns {
		if failed := turn.End(err); failed != nil {
			return failed
		}
	}
	return nil
}

func TestSimRWMutex(t *testing.T) { sim.Run(t, readersAndWriters(1)) }

// Goroutines of one client share the node that they read with.
func TestSimRWMutexShared(t *testing.T) {
	sim.Run(t, readersAndWriters(3, rwlock.WithLocalSharing()))
}

func readersAndWriters(goroutines int, opts ...rwlock.Option) func(*sim.World) {
	return func(w *sim.World) {
		held := w.Shared("the lock")
		contend(w, 2+w.Rand.IntN(3), func(c *sim.Client) (int, func(context.Context, visit) error) {
			m := rwlock.New(c.Client, w.Path, opts...)
			return goroutines, func(ctx context.Context, v visit) error { return readOrWrite(ctx, c, m, held, v) }
		})
		w.Finally("the lock is free for a writer", func(ctx context.Context) error {
			return rwlock.New(w.Alive()[0].Client, w.Path, opts...).Do(ctx, func(context.Context, *rwlock.Lease) error { return nil })
		})
	}
}

func readOrWrite(ctx context.Context, c *sim.Client, m *rwlock.RWMutex, held *sim.Shared, v visit) error {
	verbs := []func(context.Context) (*rwlock.Lease, error){m.RLock, m.RLock, m.Lock, m.TryRLock, m.TryLock}
	acquire := verbs[v.pick%len(verbs)]
	downgrade := v.pick/len(verbs)%2 == 0
	begin := func(c *sim.Client, called time.Time, g sim.Grant) *sim.Turn {
		return held.Begin(c, called, g, g.(*rwlock.Lease).Exclusive())
	}

	var reading *rwlock.Lease
	called := time.Now()
	err := hold(ctx, c, v, begin, acquire, func(l *rwlock.Lease, ctx context.Context) (err error) {
		if !l.Exclusive() || !downgrade {
			return l.Unlock(ctx)
		}
		called = time.Now()
		reading, err = l.Downgrade(ctx)
		return err
	})
	if err != nil || reading == nil {
		return err
	}

	turn := held.Begin(c, called, reading, false)
	turn.Keep(v.after)
	return turn.End(reading.Unlock(ctx))
}

// Contenders of all recipes at one path exclude each other, but for readers among readers.
func TestSimMixed(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Shared("the path")
		alone := func(c *sim.Client, called time.Time, g sim.Grant) *sim.Turn { return held.Begin(c, called, g, true) }
		w.Watches = 4 // each session that has waited for a permit watches the path's number
		spelling := rwlock.WithSpelling(rwlock.Spelling(w.Rand.IntN(3)))
		contend(w, 2+w.Rand.IntN(3), func(c *sim.Client) (int, func(context.Context, visit) error) {
			sharing := []rwlock.Option{spelling}
			if c.Rand.IntN(2) == 0 {
				sharing = append(sharing, rwlock.WithLocalSharing())
			}
			mutex, queued := lock.New(c.Client, w.Path), lock.New(c.Client, w.Path, lock.WithLocalQueue())
			simple, shared := lock.NewSimple(c.Client, w.Path), rwlock.New(c.Client, w.Path, sharing...)
			permits, leads := semaphore.New(c.Client, w.Path, 1), election.New(c.Client, w.Path)
			runs := once.New(c.Client, w.Path)
			unlock := (*lock.Lease).Unlock

			return 1 + c.Rand.IntN(3), func(ctx context.Context, v visit) error {
				way := v.pick / 10 % 8
				switch way {
				case 0:
					return hold(ctx, c, v, alone, mutex.Lock, unlock)
				case 1:
					return hold(ctx, c, v, alone, queued.Lock, unlock)
				case 2:
					return hold(ctx, c, v, alone, simple.Lock, unlock)
				case 3:
					return hold(ctx, c, v, alone, simple.TryLock, unlock)
				case 4:
					return hold(ctx, c, v, alone, permits.Acquire, (*semaphore.Permit).Release)
				case 5:
					campaign := func(ctx context.Context) (*election.Term, error) { return leads.Campaign(ctx, nil) }
					return hold(ctx, c, v, alone, campaign, func(t *election.Term, ctx context.Context) error {
						return resign(ctx, leads, t, v.chance())
					})
				case 6:
					return runAndForget(ctx, c, v, runs, alone)
				}
				return readOrWrite(ctx, c, shared, held, v)
			}
		})
		lockIsFree(w)
	})
}

// resign resigns, perhaps to the last candidate.
func resign(ctx context.Context, e *election.Election, t *election.Term, toLast bool) error {
	if all, err := e.Candidates(ctx); err == nil && toLast && len(all) > 1 {
		t.ResignTo(ctx, all[len(all)-1].Node) // or else Resign does it
	}
	err := t.Resign(ctx)
	if errors.Is(err, protocol.ErrReleased) {
		return nil
	}
	return err
}

// runAndForget runs a key. Its runs exclude each other, and a key that has run can be forgotten.
func runAndForget(ctx context.Context, c *sim.Client, v visit, o *once.Once, begin func(*sim.Client, time.Time, sim.Grant) *sim.Turn) error {
	wait, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	called := time.Now()
	ran, err := o.Do(wait, "key", func(_ context.Context, r *once.Run) error {
		turn := begin(c, called, r)
		turn.Keep(v.spell)
		return turn.End(nil)
	})
	if ran && err == nil {
		err = o.Forget(wait, "key")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, protocol.ErrLost) {
		return nil
	}
	return err
}
