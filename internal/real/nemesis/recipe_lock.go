package main

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
)

// A locker is either of the two locks.
type locker interface {
	Lock(ctx context.Context) (*lock.Lease, error)
	TryLock(ctx context.Context) (*lock.Lease, error)
}

func lockWork(w *worker) workload   { return lockerWork(w, lock.New(w.client, w.Path)) }
func simpleWork(w *worker) workload { return lockerWork(w, lock.NewSimple(w.client, w.Path)) }

// lingerWork is a plain lock in odd clients. In even clients, callers share a lock that lingers.
func lingerWork(w *worker) workload {
	if w.Client%2 == 1 {
		return lockWork(w)
	}
	call := lockerWork(w, lock.New(w.client, w.Path, lock.WithLinger(time.Second))).step
	return workload{step: func() error {
		return together(3, func() error { return errors.Join(call(), call()) })
	}}
}

// lockerWork holds the lock for a while in each step. Several goroutines can be in steps at once.
func lockerWork(w *worker, m locker) workload {
	return workload{step: func() error {
		kind, verb := "lock", m.Lock
		if !w.proves && w.chance(5) {
			kind, verb = "trylock", m.TryLock
		}
		o, lease, err := acquire(w, kind, verb)
		if err != nil {
			return err
		}

		w.hold(o, lease, w.spell(), true)
		// The Check outlives the lease, so a late write can use it.
		check := lease.Check()
		w.guarded("guarded", lease, check)
		released, err := w.release(o, lease, lease.Unlock)
		if lingers := w.Recipe == linger && w.Client%2 == 0; released && !lingers && w.chance(4) {
			// A holder whose request took long would do this. It must be refused. (The node of a
			// lock that lingers can still be there.)
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
	if err := fenced(r, name, holds); err != nil {
		return err
	}
	return exclusive(holds)
}
