package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
)

var lockChapter = chapter{"lock", "A lock without contention", func(*env) []work {
	return []work{{
		name: "lock/uncontended", title: "lock and unlock, one session", unit: "cycle; the floor is a create and a delete",
		goals: []goal{atMostFloor(1.1)},
		slice: 10 * time.Millisecond,
		enter: uncontended,
	}, {
		name: "lock/goroutines", title: fmt.Sprintf("lock and unlock, %d goroutines of one session", goroutines), unit: "cycle",
		goals: []goal{timesBestPeer(1.5)},
		enter: crowded,
	}}
}}

const goroutines = 64

// crowded makes goroutines that share a session compete.
func crowded(ctx context.Context, e *env) (all []*contestant, err error) {
	for name, opts := range map[string][]lock.Option{ours: {lock.WithLocalQueue()}, ours + ", without turns": nil} {
		path, err := e.newPath()
		if err != nil {
			return nil, err
		}

		t := new(traffic)
		client, err := e.client(ctx, t)
		if err != nil {
			return nil, err
		}

		m := lock.New(client, path, append(opts, lock.WithData(payload))...)
		all = append(all, &contestant{name: name, traffic: t, run: together(goroutines, func(ctx context.Context, _, _ int) error {
			return cycle(ctx, m)
		})})
	}

	slices.SortFunc(all, func(a, b *contestant) int { return strings.Compare(a.name, b.name) })
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	t := new(traffic)
	conn, err := e.raw(ctx, t)
	if err != nil {
		return nil, err
	}

	locks := make([]*zk.Lock, goroutines)
	for i := range locks {
		locks[i] = zk.NewLock(conn, path, acl)
	}

	return append(all, &contestant{name: "zk.Lock", traffic: t, run: together(goroutines, func(_ context.Context, i, _ int) error {
		if err := locks[i].LockWithData(payload); err != nil {
			return err
		}
		return locks[i].Unlock()
	})}), nil
}

func uncontended(ctx context.Context, e *env) (all []*contestant, err error) {
	for _, one := range []func(context.Context, *env, string, *traffic) (*contestant, error){createAndDelete, transactAndDelete, plainLock, zkLock} {
		path, err := e.newPath()
		if err != nil {
			return nil, err
		}
		c, err := one(ctx, e, path, new(traffic))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}

	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	return append(all, e.peersFor("lockloop", func(name string) []any { return []any{path + "/" + name, 1} })...), nil
}

func createAndDelete(ctx context.Context, e *env, path string, t *traffic) (*contestant, error) {
	conn, err := e.raw(ctx, t)
	return &contestant{name: floor, traffic: t, run: oneByOne(func(context.Context) error {
		node, err := conn.Create(path+"/n-", payload, zk.FlagEphemeralSequential, acl)
		if err != nil {
			return err
		}
		return conn.Delete(node, -1)
	})}, err
}

// transactAndDelete measures a transaction in place of a create, to show the server's part of our
// time.
func transactAndDelete(ctx context.Context, e *env, path string, t *traffic) (*contestant, error) {
	conn, err := e.raw(ctx, t)
	return &contestant{name: bare, traffic: t, run: oneByOne(func(context.Context) error {
		answers, err := conn.Multi(
			&zk.CreateRequest{Path: path + "/n-", Data: payload, Acl: acl, Flags: zk.FlagEphemeralSequential},
			&zk.SetDataRequest{Path: path, Version: -1})
		if err != nil {
			return err
		}
		return conn.Delete(answers[0].String, -1)
	})}, err
}

func plainLock(ctx context.Context, e *env, path string, t *traffic) (*contestant, error) {
	return ourLock(ctx, e, path, t)
}

func ourLock(ctx context.Context, e *env, path string, t *traffic, opts ...lock.Option) (*contestant, error) {
	client, err := e.client(ctx, t)
	m := lock.New(client, path, append(opts, lock.WithData(payload))...)
	return &contestant{name: ours, traffic: t, run: oneByOne(func(ctx context.Context) error { return cycle(ctx, m) })}, err
}

// cycle locks and unlocks.
func cycle(ctx context.Context, m *lock.Mutex) error {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return l.Unlock(context.WithoutCancel(ctx)) // as callers should
}

func zkLock(ctx context.Context, e *env, path string, t *traffic) (*contestant, error) {
	conn, err := e.raw(ctx, t)
	l := zk.NewLock(conn, path, acl)
	return &contestant{name: "zk.Lock", traffic: t, run: oneByOne(func(context.Context) error {
		if err := l.LockWithData(payload); err != nil {
			return err
		}
		return l.Unlock()
	})}, err
}

// oneByOne repeats an operation until the round is over.
func oneByOne(op func(context.Context) error) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		m.start()
		n := 0
		for ; n == 0 || m.within(); n++ {
			if err := op(ctx); err != nil {
				return err
			}
		}
		m.stop(n)
		return nil
	}
}

// together makes several workers repeat an operation until the round is over.
func together(workers int, op func(ctx context.Context, worker, n int) error) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		m.start()
		n, err := inParallel(workers, func(worker int) (n int, err error) {
			for ; err == nil && (n == 0 || m.within()); n++ {
				err = op(ctx, worker, n)
			}
			return n, err
		})
		m.stop(n)
		return err
	}
}
