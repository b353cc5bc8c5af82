package laws

import (
	"context"

	"github.com/zkrecipes/zkrecipes/rwlock"
)

var (
	native  = rwKind()
	curator = rwKind(rwlock.WithSpelling(rwlock.Curator))
	kazoo   = rwKind(rwlock.WithSpelling(rwlock.Kazoo))
	sharing = rwKind(rwlock.WithLocalSharing())

	writing, reading = native.acquiring((*rwlock.RWMutex).Lock), native.acquiring((*rwlock.RWMutex).RLock)
)

func rwKind(opts ...rwlock.Option) kind[*rwlock.RWMutex, *rwlock.Lease] {
	return kind[*rwlock.RWMutex, *rwlock.Lease]{
		own:  "write-|read-|__WRIT__|__READ__|__lock__|__rlock__",
		make: func(s *Stage) *rwlock.RWMutex { return rwlock.New(s.Client, s.Path, opts...) },
		back: (*rwlock.Lease).Unlock,
	}
}

// downgrading is Downgrade, of a lease that was acquired before the call.
func downgrading(k kind[*rwlock.RWMutex, *rwlock.Lease], readers string) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m := k.make(s)
		var l *rwlock.Lease
		return Verb{
			Before: func() { l = must(m.Lock(s.ctx)) },
			Call: func(ctx context.Context) (*Held, error) {
				h, err := held(k.back)(l.Downgrade(ctx))
				if err != nil {
					h = &Held{nil, l.Unlock}
				}
				return h, err
			},
			Effect: func() int { return len(s.Own(readers)) },
			Turn:   turnOf(m),
		}
	}
}

// turnOf is Lock and Downgrade, and RLock the next time.
func turnOf(m *rwlock.RWMutex) func(ctx context.Context, hold func(Hold)) error {
	n := 0
	return func(ctx context.Context, hold func(Hold)) error {
		take := m.Lock
		if n++; n%2 == 0 {
			take = m.RLock
		}
		l := must(take(ctx))
		hold(l)
		l = must(l.Downgrade(ctx)) // a read lease stays as it is
		hold(l)
		return l.Unlock(ctx)
	}
}

var rwlockRows = []Row{
	{"rwlock.RWMutex.Lock", writing},
	{"rwlock.RWMutex.Lock behind a reader", behind(writing, reading)},
	{"rwlock.RWMutex.Lock of Curator", curator.acquiring((*rwlock.RWMutex).Lock)},
	{"rwlock.RWMutex.Lock of kazoo", kazoo.acquiring((*rwlock.RWMutex).Lock)},
	{"rwlock.RWMutex.RLock", reading},
	{"rwlock.RWMutex.RLock behind a writer", behind(reading, writing)},
	{"rwlock.RWMutex.RLock of Curator behind a writer", behind(curator.acquiring((*rwlock.RWMutex).RLock), curator.acquiring((*rwlock.RWMutex).Lock))},
	{"rwlock.RWMutex.RLock of kazoo", kazoo.acquiring((*rwlock.RWMutex).RLock)},
	{"rwlock.RWMutex.RLock with local sharing", sharing.acquiring((*rwlock.RWMutex).RLock)},
	{"rwlock.RWMutex.RLock shared, behind a writer", func(s *Stage) Verb {
		m := sharing.make(s)
		v := behind(sharing.with(func(*Stage) *rwlock.RWMutex { return m }).acquiring((*rwlock.RWMutex).RLock), writing)(s)
		wait, done := v.Before, make(chan struct{})
		close(done)
		v.Before = func() { // another reader of the process waits before the call
			<-done
			wait()
			done = make(chan struct{})
			go func() {
				defer close(done)
				m.RDo(s.ctx, func(context.Context, *rwlock.Lease) error { return nil })
			}()
			s.await("read-", 1)
		}
		v.Effect = func() int { return 0 } // the node is there already
		return v
	}},
	{"rwlock.RWMutex.TryLock", native.acquiring((*rwlock.RWMutex).TryLock)},
	{"rwlock.RWMutex.TryLock behind a reader", behind(native.acquiring((*rwlock.RWMutex).TryLock), reading)},
	{"rwlock.RWMutex.TryRLock", native.acquiring((*rwlock.RWMutex).TryRLock)},
	{"rwlock.RWMutex.TryRLock behind a writer", behind(native.acquiring((*rwlock.RWMutex).TryRLock), writing)},
	{"rwlock.RWMutex.Do", native.doing((*rwlock.RWMutex).Do)},
	{"rwlock.RWMutex.RDo", native.doing((*rwlock.RWMutex).RDo)},
	{"rwlock.RWMutex.Contenders", listing(native, (*rwlock.RWMutex).RLock, (*rwlock.RWMutex).Contenders)},
	{"rwlock.RWMutex.Break", native.breaking((*rwlock.RWMutex).Lock, (*rwlock.RWMutex).Break)},
	{"rwlock.Lease.Multi", native.fencing((*rwlock.RWMutex).Lock, (*rwlock.Lease).Multi)},
	{"rwlock.Lease.Multi of a reader that shares its node", sharing.fencing((*rwlock.RWMutex).RLock, (*rwlock.Lease).Multi)},
	{"rwlock.Lease.Unlock", native.returning((*rwlock.RWMutex).Lock, (*rwlock.Lease).Unlock)},
	{"rwlock.Lease.Unlock of a reader", native.returning((*rwlock.RWMutex).RLock, (*rwlock.Lease).Unlock)},
	{"rwlock.Lease.Downgrade", downgrading(native, "read-")},
	{"rwlock.Lease.Downgrade of kazoo", downgrading(kazoo, "__rlock__")},
}
