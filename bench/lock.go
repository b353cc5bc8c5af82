package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/lock"
)

const goroutines = 64

var lockChapter = chapter{"lock", "A lock without contention", func(*env) []work {
	return []work{{
		name: "lock/uncontended", title: "lock and unlock, one session", unit: "cycle; the floor is a create and a delete",
		slice: 10 * time.Millisecond,
		enter: func(ctx context.Context, e *env) []*contestant {
			all := []*contestant{
				createsAndDeletes(ctx, e, floor), createsAndDeletes(ctx, e, bare),
				ourLocks(ctx, e, ours, 1, 1), zkLocks(ctx, e, 1, 1),
			}
			return append(all, e.peersFor("lockloop", 1)...)
		},
	}, {
		name: "lock/goroutines", title: fmt.Sprintf("lock and unlock, %d goroutines of one session", goroutines), unit: "cycle",
		enter: func(ctx context.Context, e *env) []*contestant {
			return []*contestant{
				ourLocks(ctx, e, ours, 1, goroutines, lock.WithLocalQueue()),
				ourLocks(ctx, e, ours+", without turns", 1, goroutines),
				zkLocks(ctx, e, 1, goroutines),
			}
		},
	}}
}}

// createsAndDeletes measures the least that a lock could do. With our requests it creates in a
// transaction, to show the server's part of our time.
func createsAndDeletes(ctx context.Context, e *env, name string) *contestant {
	path, t := e.newPath(), new(traffic)
	conn := e.raw(ctx, t)
	create := &zk.CreateRequest{Path: path + "/n-", Data: payload, Acl: acl, Flags: zk.FlagEphemeralSequential}
	return &contestant{name: name, traffic: t, run: together(1, func(context.Context, int, int) {
		var node string
		if name == floor {
			node = must.Get(conn.Create(create.Path, create.Data, create.Flags, create.Acl))
		} else {
			node = must.Get(conn.Multi(create, &zk.SetDataRequest{Path: path, Version: -1}))[0].String
		}
		must.Succeed(conn.Delete(node, -1))
	})}
}

// ourLocks has goroutines that lock and unlock as fast as they can, in each of several sessions.
func ourLocks(ctx context.Context, e *env, name string, sessions, each int, opts ...lock.Option) *contestant {
	path, t := e.newPath(), new(traffic)
	var mutexes []*lock.Mutex
	for _, c := range e.clients(ctx, t, sessions) {
		mutexes = append(mutexes, lock.New(c, path, append(opts, lock.WithData(payload))...))
	}

	c := &contestant{name: name, traffic: t}
	if sessions > 1 {
		c.shares = new(shares)
	}
	c.run = func(ctx context.Context, m *meter) {
		taken, all := make([]int, sessions), 0 // the lock protects them (the race detector would find overlaps)
		together(sessions*each, func(ctx context.Context, worker, _ int) {
			l := must.Get(mutexes[worker%sessions].Lock(ctx))
			taken[worker%sessions]++
			all++
			must.Succeed(l.Unlock(context.WithoutCancel(ctx))) // as callers should
		})(ctx, m)
		// Overlapping holders would lose counts, so the two sums must agree.
		if all != m.total.ops {
			must.Fail("two holders at once")
		}
		c.shares.add(taken)
	}

	return c
}

// zkLocks does the same with the lock of go-zookeeper.
func zkLocks(ctx context.Context, e *env, sessions, each int) *contestant {
	path, t := e.newPath(), new(traffic)
	conns := e.raws(ctx, t, sessions)
	locks := make([]*zk.Lock, sessions*each)
	for i := range locks {
		locks[i] = zk.NewLock(conns[i%sessions], path, acl)
	}

	return &contestant{name: "zk.Lock", traffic: t, run: together(len(locks), func(_ context.Context, i, _ int) {
		must.Succeed(locks[i].LockWithData(payload))
		must.Succeed(locks[i].Unlock())
	})}
}

// together makes several workers repeat an operation until the round is over.
func together(workers int, op func(ctx context.Context, worker, n int)) func(context.Context, *meter) {
	return func(ctx context.Context, m *meter) {
		m.start()
		m.stop(inParallel(workers, func(worker int) (n int) {
			for ; n == 0 || m.within(); n++ {
				op(ctx, worker, n)
			}
			return n
		}))
	}
}
