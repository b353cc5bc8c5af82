package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/rwlock"
)

var rwlockChapter = chapter{"rwlock", "A shared lock", func(*env) []work {
	return []work{{
		name: "rwlock/90", title: "8 sessions, of ten leases nine to read", unit: "lease",
		goals: []goal{timesThe("Curator", 2)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) { return shared(ctx, e, 8) },
	}}
}}

// shared leaves kazoo out: its readers may wait for ever when a writer comes behind them.
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
		acquire := locks[i].RLock
		if writes(i, n) {
			acquire = locks[i].Lock
		}
		l, err := acquire(ctx)
		if err != nil {
			return err
		}
		return l.Unlock(context.WithoutCancel(ctx))
	})}}

	return append(all, e.peersFor("rwloop", func(name string) []any { return []any{path + "/" + name, sessions} })...), nil
}

// writes reports whether the n-th lease of a session is one to write. One lease in ten is, at a
// different time in each session.
func writes(session, n int) bool { return (n+session)%10 == 9 }
