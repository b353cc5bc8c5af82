package laws

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
)

var (
	mutex  = kind[*lock.Mutex, *lock.Lease]{"lock-", func(s *Stage) *lock.Mutex { return lock.New(s.Client, s.Path) }, (*lock.Lease).Unlock}
	queued = mutex.with(func(s *Stage) *lock.Mutex { return lock.New(s.Client, s.Path, lock.WithLocalQueue()) })
	simple = kind[*lock.Simple, *lock.Lease]{"^.", func(s *Stage) *lock.Simple { return lock.NewSimple(s.Client, s.Path) }, (*lock.Lease).Unlock}
	leases = kind[*lock.Mutex, *lock.Leases]{"lock-", mutex.make, (*lock.Leases).Unlock}

	// briefly is for locks that linger, but not for as long as a law rests.
	briefly, lingering = lingerFor(time.Second), lingerFor(time.Hour)

	lockMutex, lockSimple = mutex.acquiring((*lock.Mutex).Lock), simple.acquiring((*lock.Simple).Lock)
)

func lingerFor(d time.Duration) kind[*lock.Mutex, *lock.Lease] {
	return mutex.with(func(s *Stage) *lock.Mutex { return lock.New(s.Client, s.Path, lock.WithLinger(d)) })
}

// lent is for a verb of a Mutex whose node is there, unused.
func lent(verb func(kind[*lock.Mutex, *lock.Lease]) func(*Stage) Verb) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m := lingering.make(s)
		v := verb(lingering.with(func(*Stage) *lock.Mutex { return m }))(s)
		v.Before = func() {
			check(must(m.Lock(s.ctx)).Unlock(s.ctx))
			s.settled() // the node is watched
		}
		if v.Own != "" {
			v.Effect = func() int { return 0 }
		}
		return v
	}
}

// unused is for a verb that meets the unused node of the other client.
func unused(verb func(*Stage) Verb) func(*Stage) Verb {
	return changed(verb, func(s *Stage, v *Verb) {
		theirs := lingering.make(s.other())
		v.Before = func() { check(must(theirs.Lock(s.ctx)).Unlock(s.ctx)) }
	})
}

// trying tries again if servers are so slow that its time is over before the node is gone.
func trying(m *lock.Mutex, ctx context.Context) (l *lock.Lease, err error) {
	for range 5 {
		if l, err = m.TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
			return l, err
		}
		time.Sleep(time.Second)
	}
	return l, err
}

// lockAll locks two locks.
func lockAll(m *lock.Mutex, ctx context.Context) (*lock.Leases, error) { return lock.LockAll(ctx, m) }

var lockRows = []Row{
	{"lock.Mutex.Lock", lockMutex},
	{"lock.Mutex.Lock held elsewhere", behind(lockMutex, lockMutex)},
	{"lock.Mutex.Lock in a local queue", func(s *Stage) Verb {
		m := queued.make(s)
		v := queued.with(func(*Stage) *lock.Mutex { return m }).acquiring((*lock.Mutex).Lock)(s)
		var ahead *lock.Lease
		v.Before = func() { ahead = must(m.Lock(s.ctx)) }
		v.Beside = func(context.Context) { ahead.Unlock(context.Background()) }
		v.Effect = func() int { return 0 } // there is one node of the queue, before and after
		return v
	}},
	{"lock.Mutex.Lock lingering", briefly.acquiring((*lock.Mutex).Lock)},
	{"lock.Mutex.Lock lent", lent(func(k kind[*lock.Mutex, *lock.Lease]) func(*Stage) Verb { return k.acquiring((*lock.Mutex).Lock) })},
	{"lock.Mutex.Lock lingering elsewhere", unused(lockMutex)},
	{"lock.Mutex.Lock lingering elsewhere, in use", behind(lockMutex, lingering.acquiring((*lock.Mutex).Lock))},
	{"lock.Mutex.TryLock", mutex.acquiring((*lock.Mutex).TryLock)},
	{"lock.Mutex.TryLock held elsewhere", behind(mutex.acquiring((*lock.Mutex).TryLock), lockMutex)},
	{"lock.Mutex.TryLock lingering elsewhere", unused(mutex.acquiring(trying))},
	{"lock.Mutex.TryLock with a local queue", queued.acquiring((*lock.Mutex).TryLock)},
	{"lock.Mutex.Do", mutex.doing((*lock.Mutex).Do)},
	{"lock.Mutex.Do lent", lent(func(k kind[*lock.Mutex, *lock.Lease]) func(*Stage) Verb { return k.doing((*lock.Mutex).Do) })},
	{"lock.Mutex.TryDo", mutex.doing((*lock.Mutex).TryDo)},
	{"lock.Mutex.Contenders", listing(mutex, (*lock.Mutex).Lock, (*lock.Mutex).Contenders)},
	{"lock.Mutex.Break", mutex.breaking((*lock.Mutex).Lock, (*lock.Mutex).Break)},
	{"lock.Mutex.Revoke", rewriting("lock-", mutex.about((*lock.Mutex).Lock, (*lock.Mutex).Revoke))},
	{"lock.Lease.Revoked", func(s *Stage) Verb {
		var l atomic.Pointer[lock.Lease]
		v := mutex.using((*lock.Mutex).Lock, func(h *lock.Lease, ctx context.Context) error {
			l.Store(h)
			select {
			case <-h.Revoked():
				return nil
			case <-h.Done():
				return h.Err()
			case <-ctx.Done():
				return ctx.Err()
			}
		})(s)
		v.Beside = func(ctx context.Context) { lock.New(s.Other(), s.Path).Revoke(ctx, l.Load().Node()) }
		return v
	}},
	{"lock.Lease.Unlock", mutex.returning((*lock.Mutex).Lock, (*lock.Lease).Unlock)},
	{"lock.Lease.Multi", mutex.fencing((*lock.Mutex).Lock, (*lock.Lease).Multi)},
	{"lock.Lease.Multi of a Simple", simple.fencing((*lock.Simple).Lock, (*lock.Lease).Multi)},
	{"lock.LockAll", func(s *Stage) Verb {
		a, b := lock.New(s.Client, s.Path+"/a"), lock.New(s.Client, s.Path+"/b")
		return Verb{
			Call:   func(ctx context.Context) (*Held, error) { return held((*lock.Leases).Unlock)(lock.LockAll(ctx, b, a)) },
			Effect: func() int { return len(s.Own("lock-")) / 2 },
			Own:    "lock-",
		}
	}},
	{"lock.LockAll lent", lent(func(k kind[*lock.Mutex, *lock.Lease]) func(*Stage) Verb {
		return kind[*lock.Mutex, *lock.Leases]{k.own, k.make, (*lock.Leases).Unlock}.acquiring(lockAll)
	})},
	{"lock.Leases.Multi", leases.fencing(lockAll, (*lock.Leases).Multi)},
	{"lock.Leases.Unlock", leases.returning(lockAll, (*lock.Leases).Unlock)},
	{"lock.Simple.Lock", lockSimple},
	{"lock.Simple.Lock held elsewhere", behind(lockSimple, lockSimple)},
	{"lock.Simple.Lock lingering elsewhere", unused(lockSimple)},
	{"lock.Simple.TryLock", simple.acquiring((*lock.Simple).TryLock)},
	{"lock.Simple.Do", simple.doing((*lock.Simple).Do)},
	{"lock.Simple.TryDo", simple.doing((*lock.Simple).TryDo)},
	{"lock.Simple.Contenders", listing(simple, (*lock.Simple).Lock, (*lock.Simple).Contenders)},
	{"lock.Simple.Break", simple.breaking((*lock.Simple).Lock, (*lock.Simple).Break)},
	{"lock.Simple.Revoke", rewriting("^.+$", simple.about((*lock.Simple).Lock, (*lock.Simple).Revoke))},
}
