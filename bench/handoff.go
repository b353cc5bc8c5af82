package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
)

var handoffChapter = chapter{"handoff", "A lock that goes from session to session", func(e *env) []work {
	var all []work
	for _, sessions := range []int{8, max(e.few(64), 16)} {
		all = append(all, work{
			name:  fmt.Sprintf("handoff/latency-%d", sessions),
			title: fmt.Sprintf("%d sessions in line, from unlock to the next holder", sessions),
			unit:  "hand-off; the floor is a delete and its event",
			goals: []goal{atMostFloor(1.4)},
			enter: func(ctx context.Context, e *env) ([]*contestant, error) { return lockLines(ctx, e, sessions, sessions) },
		}, work{
			name:  fmt.Sprintf("handoff/throughput-%d", sessions),
			title: fmt.Sprintf("%d sessions that lock and unlock as fast as they can", sessions),
			unit:  "cycle",
			goals: []goal{timesBestPeer(1.5)},
			enter: func(ctx context.Context, e *env) ([]*contestant, error) { return contended(ctx, e, sessions) },
		})
	}
	return all
}}

// few returns n (or less in short mode).
func (e *env) few(n int) int {
	if e.short {
		return max(n/10, 4)
	}
	return n
}

// lockLines returns n contenders for a lock, in that many sessions, for each library.
func lockLines(ctx context.Context, e *env, n, sessions int) ([]*contestant, error) {
	all, err := goLines(ctx, e, n, sessions, ourLockLine, zkLockLine)
	if err != nil {
		return nil, err
	}
	peers := e.peerLines("lockline", n, sessions)
	if n > 1000 { // it would take minutes
		peers = slices.DeleteFunc(peers, func(c *contestant) bool { return c.name == "kazoo" })
	}
	return append(all, peers...), nil
}

func ourLockLine(ctx context.Context, e *env, n, sessions int) (*contestant, error) {
	t := new(traffic)
	all, err := ourContenders(ctx, e, t, n, sessions)
	return &contestant{name: ours, traffic: t, run: chain(e, all, sessions)}, err
}

func ourContenders(ctx context.Context, e *env, t *traffic, n, sessions int) ([]contender, error) {
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	all := make([]contender, n)

	for i := range all {
		c := clients[i%sessions]
		all[i] = func(ctx context.Context, path string) (func(context.Context) error, error) {
			l, err := lock.New(c, path, lock.WithData(payload)).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return l.Unlock(context.WithoutCancel(ctx)) }, nil
		}
	}

	return all, nil
}

func zkLockLine(ctx context.Context, e *env, n, sessions int) (*contestant, error) {
	t := new(traffic)
	all, err := zkContenders(ctx, e, t, n, sessions)
	return &contestant{name: "zk.Lock", traffic: t, run: chain(e, all, sessions)}, err
}

func zkContenders(ctx context.Context, e *env, t *traffic, n, sessions int) ([]contender, error) {
	conns, err := e.raws(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	all := make([]contender, n)

	for i := range all {
		c := conns[i%sessions]
		all[i] = func(_ context.Context, path string) (func(context.Context) error, error) {
			l := zk.NewLock(c, path, acl)
			return func(context.Context) error { return l.Unlock() }, l.LockWithData(payload)
		}
	}

	return all, nil
}

// contended makes sessions compete for one lock.
func contended(ctx context.Context, e *env, sessions int) ([]*contestant, error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	t := new(traffic)
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	mutexes := make([]*lock.Mutex, sessions)
	for i, c := range clients {
		mutexes[i] = lock.New(c, path+"/"+ours, lock.WithData(payload))
	}

	all := []*contestant{{name: ours, traffic: t, run: together(sessions, func(ctx context.Context, i, _ int) error {
		l, err := mutexes[i].Lock(ctx)
		if err != nil {
			return err
		}
		return l.Unlock(context.WithoutCancel(ctx))
	})}}

	t = new(traffic)
	conns, err := e.raws(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	locks := make([]*zk.Lock, sessions)
	for i, c := range conns {
		locks[i] = zk.NewLock(c, path+"/zk.Lock", acl)
	}

	all = append(all, &contestant{name: "zk.Lock", traffic: t, run: together(sessions, func(_ context.Context, i, _ int) error {
		if err := locks[i].LockWithData(payload); err != nil {
			return err
		}
		return locks[i].Unlock()
	})})

	return append(all, e.peersFor("lockloop", func(name string) []any { return []any{path + "/" + name, sessions} })...), nil
}
