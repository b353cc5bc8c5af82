package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/zkrecipes/zkrecipes/rwlock"
)

var rwlockChapter = chapter{"rwlock", "A shared lock", func(*env) []work {
	return []work{{
		name: "rwlock/90", title: "8 sessions, of ten leases nine to read", unit: "lease",
		goals: []goal{timesThe("Curator", 2)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) { return shared(ctx, e, 8) },
	}, {
		name: "rwlock/local", title: "2 sessions of 16 goroutines each, of ten leases nine to read", unit: "lease",
		goals: []goal{timesThe("Curator", 5), timesThe(unshared, 5)},
		enter: sharedLocally,
	}}
}}

// unshared is ours without WithLocalSharing.
const unshared = "unshared"

// sharedLocally gives Curator a session for each goroutine, because Curator counts contenders by
// session.
func sharedLocally(ctx context.Context, e *env) ([]*contestant, error) {
	const sessions, goroutines = 2, 16
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	var all []*contestant
	for name, opts := range map[string][]rwlock.Option{ours: {rwlock.WithLocalSharing()}, unshared: nil} {
		t := new(traffic)
		clients, err := e.clients(ctx, t, sessions)
		if err != nil {
			return nil, err
		}

		locks := make([]*rwlock.RWMutex, sessions)
		for i, c := range clients {
			locks[i] = rwlock.New(c, path+"/"+name, append(opts, rwlock.WithData(payload))...)
		}
		all = append(all, &contestant{name: name, traffic: t, run: together(sessions*goroutines,
			func(ctx context.Context, i, n int) error { return readOrWrite(ctx, locks[i%sessions], i, n) })})
	}

	slices.SortFunc(all, func(a, b *contestant) int { return cmp.Compare(a.name, b.name) })

	return append(all, e.peersFor("rwloop", func(name string) []any {
		return []any{path + "/" + name, sessions * goroutines}
	})...), nil
}

func readOrWrite(ctx context.Context, m *rwlock.RWMutex, worker, n int) error {
	acquire := m.RLock
	if writes(worker, n) {
		acquire = m.Lock
	}
	l, err := acquire(ctx)
	if err != nil {
		return err
	}
	return l.Unlock(context.WithoutCancel(ctx))
}

// shared leaves kazoo out: its readers can wait for ever when a writer comes behind them.
func shared(ctx context.Context, e *env, sessions int) ([]*contestant, error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	t := new(traffic)
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	locks := make([]*rwlock.RWMutex, sessions)
	for i, c := range clients {
		locks[i] = rwlock.New(c, path+"/"+ours, rwlock.WithData(payload))
	}

	all := []*contestant{{name: ours, traffic: t, run: together(sessions, func(ctx context.Context, i, n int) error {
		return readOrWrite(ctx, locks[i], i, n)
	})}}

	return append(all, e.peersFor("rwloop", func(name string) []any { return []any{path + "/" + name, sessions} })...), nil
}

// writes reports whether a worker's n-th lease is for writing. That's one lease in ten, at a
// different time for each worker.
func writes(worker, n int) bool { return (n+worker)%10 == 9 }
