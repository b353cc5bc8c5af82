package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// unshared is ours without WithLocalSharing.
const unshared = "unshared"

var rwlockChapter = chapter{"rwlock", "A shared lock", func(*env) []work {
	return []work{{
		name: "rwlock/90", title: "8 sessions, of ten leases nine to read", unit: "lease",
		enter: func(ctx context.Context, e *env) []*contestant {
			// kazoo is left out: its readers can wait for ever when a writer comes behind them.
			return append([]*contestant{ourRWLocks(ctx, e, ours, 8, 1)}, e.peersFor("rwloop", 8)...)
		},
	}, {
		name: "rwlock/local", title: "2 sessions of 16 goroutines each, of ten leases nine to read", unit: "lease",
		enter: func(ctx context.Context, e *env) []*contestant {
			all := []*contestant{ourRWLocks(ctx, e, unshared, 2, 16), ourRWLocks(ctx, e, ours, 2, 16, rwlock.WithLocalSharing())}
			// Curator has a session for each goroutine, because it counts contenders by session.
			return append(all, e.peersFor("rwloop", 2*16)...)
		},
	}}
}}

// ourRWLocks has goroutines that read or write as fast as they can, in each of several sessions.
func ourRWLocks(ctx context.Context, e *env, name string, sessions, each int, opts ...rwlock.Option) *contestant {
	path, t := e.newPath(), new(traffic)
	var locks []*rwlock.RWMutex
	for _, c := range e.clients(ctx, t, sessions) {
		locks = append(locks, rwlock.New(c, path, append(opts, rwlock.WithData(payload))...))
	}

	return &contestant{name: name, traffic: t, run: together(sessions*each, func(ctx context.Context, worker, n int) {
		m := locks[worker%sessions]
		acquire := m.RLock
		if (n+worker)%10 == 9 { // one lease in ten, at a different time for each worker
			acquire = m.Lock
		}
		must.Succeed(must.Get(acquire(ctx)).Unlock(context.WithoutCancel(ctx)))
	})}
}
