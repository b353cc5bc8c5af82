package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/lock"
)

// A locker is either of the two locks.
type locker interface {
	Lock(ctx context.Context) (*lock.Lease, error)
	TryLock(ctx context.Context) (*lock.Lease, error)
}

func lockWork(w *worker) workload   { return lockerWork(w, lock.New(w.client, w.Path)) }
func simpleWork(w *worker) workload { return lockerWork(w, lock.NewSimple(w.client, w.Path)) }

func lockerWork(w *worker, m locker) workload {
	return workload{step: func() error {
		ctx, cancel := w.wait()
		defer cancel()
		kind, acquire := "lock", m.Lock
		if !w.proves && w.chance(5) {
			kind, acquire = "trylock", m.TryLock
		}
		o := w.call(kind, "")
		lease, err := acquire(ctx)
		if err != nil {
			return w.returns(o, err, Failed)
		}

		w.hold(o, lease, w.spell(), true)
		check := lease.Check()
		w.guarded("guarded", lease, check)
		released, err := w.release(o, lease, lease.Unlock)
		if released && w.chance(4) {
			// A holder whose request took long would do this. It must be refused.
			w.guarded("late", lease, check)
		}
		return err
	}}
}

// checkLock is the check for every lock with one holder at a time.
func checkLock(r *Round, name string) error {
	if err := guardedInOrder(r.ops(name, "guarded", "late")); err != nil {
		return err
	}
	holds := r.ops(name, "lock", "trylock")
	if err := fenced(r.writes(name), holds); err != nil {
		return err
	}
	return exclusive(holds)
}
