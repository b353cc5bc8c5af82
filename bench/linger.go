package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
)

var lingerChapter = chapter{"linger", "A lock that stays with the session that uses it", func(*env) []work {
	return []work{{
		name: "linger/alone", title: "lock and unlock, one session", unit: "cycle",
		goals: []goal{timesThe("zk.Lock", 100)},
		enter: lingersAlone,
	}, {
		name: "linger/shared", title: "lock and unlock, 4 sessions of 16 goroutines", unit: "cycle",
		goals: []goal{timesThe(queued, 5)},
		slice: 3 * time.Second, // a turn of a session takes 100 ms
		enter: lingersShared,
	}, {
		name: "linger/handback", title: "lock that another session holds unused, until it is granted", unit: "acquisition",
		enter: handedBack,
	}}
}}

var errOverlap = errors.New("two holders at once")

const queued = ours + ", local queue"

func lingersAlone(ctx context.Context, e *env) ([]*contestant, error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}
	us, err := ourLock(ctx, e, path+"/lingers", new(traffic), lock.WithLinger(time.Second))
	if err != nil {
		return nil, err
	}
	them, err := zkLock(ctx, e, path+"/zk", new(traffic))
	return []*contestant{us, them}, err
}

func lingersShared(ctx context.Context, e *env) (all []*contestant, err error) {
	const sessions, each = 4, 16
	for _, c := range []struct {
		name string
		opt  lock.Option
	}{{ours, lock.WithLinger(time.Second)}, {queued, lock.WithLocalQueue()}} {
		path, err := e.newPath()
		if err != nil {
			return nil, err
		}
		t, s := new(traffic), new(shares)
		clients, err := e.clients(ctx, t, sessions)
		if err != nil {
			return nil, err
		}
		var mutexes []*lock.Mutex
		for _, client := range clients {
			mutexes = append(mutexes, lock.New(client, path, lock.WithData(payload), c.opt))
		}
		all = append(all, &contestant{name: c.name, traffic: t, shares: s, run: func(ctx context.Context, m *meter) error {
			counts := make([]int, sessions*each)
			inside := 0 // the lock protects it (the race detector would find overlaps)
			err := together(sessions*each, func(ctx context.Context, worker, n int) error {
				l, err := mutexes[worker%sessions].Lock(ctx)
				if err != nil {
					return err
				}
				inside++
				counts[worker]++
				return l.Unlock(context.WithoutCancel(ctx))
			})(ctx, m)
			taken := make([]int, sessions)
			for worker, n := range counts {
				taken[worker%sessions] += n
				inside -= n
			}
			if inside != 0 && err == nil {
				err = errOverlap
			}
			s.add(taken)
			return err
		}})
	}

	return all, nil
}

func handedBack(ctx context.Context, e *env) (all []*contestant, err error) {
	for name, opts := range map[string][]lock.Option{ours: {lock.WithLinger(time.Minute)}, ours + ", a lock that is free": nil} {
		path, err := e.newPath()
		if err != nil {
			return nil, err
		}
		t := new(traffic)
		clients, err := e.clients(ctx, t, 2)
		if err != nil {
			return nil, err
		}
		holder := lock.New(clients[0], path, append(opts, lock.WithData(payload))...)
		other := lock.New(clients[1], path, lock.WithData(payload))
		all = append(all, &contestant{name: name, traffic: t, run: func(ctx context.Context, m *meter) error {
			for first := true; first || m.more(); first = false {
				if err := cycle(ctx, holder); err != nil {
					return err
				}
				time.Sleep(5 * time.Millisecond) // the holder watches the line
				m.start()
				l, err := other.Lock(ctx)
				if err != nil {
					return err
				}
				m.stop(1)
				if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
					return err
				}
			}
			return nil
		}})
	}

	slices.SortFunc(all, func(a, b *contestant) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}
