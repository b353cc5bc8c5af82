package main

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/lock"
)

const queued = ours + ", local queue"

var lingerChapter = chapter{"linger", "A lock that stays with the session that uses it", func(*env) []work {
	lingers := lock.WithLinger(time.Second)
	return []work{{
		name: "linger/alone", title: "lock and unlock, one session", unit: "cycle",
		enter: func(ctx context.Context, e *env) []*contestant {
			return []*contestant{ourLocks(ctx, e, ours, 1, 1, lingers), zkLocks(ctx, e, 1, 1)}
		},
	}, {
		name: "linger/shared", title: "lock and unlock, 4 sessions of 16 goroutines", unit: "cycle",
		slice: 3 * time.Second, // a turn of a session takes 100 ms
		enter: func(ctx context.Context, e *env) []*contestant {
			return []*contestant{ourLocks(ctx, e, ours, 4, 16, lingers), ourLocks(ctx, e, queued, 4, 16, lock.WithLocalQueue())}
		},
	}, {
		name: "linger/handback", title: "lock that another session holds unused, until it is granted", unit: "acquisition",
		enter: func(ctx context.Context, e *env) []*contestant {
			return []*contestant{handedBack(ctx, e, ours, lock.WithLinger(time.Minute)), handedBack(ctx, e, ours+", a lock that is free")}
		},
	}}
}}

// handedBack measures how long a session waits for a lock that another session has just used.
func handedBack(ctx context.Context, e *env, name string, opts ...lock.Option) *contestant {
	path, t := e.newPath(), new(traffic)
	clients := e.clients(ctx, t, 2)
	holder := lock.New(clients[0], path, append(opts, lock.WithData(payload))...)
	// The other session never lingers. Otherwise the next round would begin with a hand-back.
	other := lock.New(clients[1], path, lock.WithData(payload))
	return &contestant{name: name, traffic: t, run: func(ctx context.Context, m *meter) {
		for first := true; first || m.more(); first = false {
			// The holder uses the lock once and keeps its node, so that the other session must ask
			// for it.
			must.Succeed(must.Get(holder.Lock(ctx)).Unlock(context.WithoutCancel(ctx)))
			time.Sleep(5 * time.Millisecond) // the holder watches the line
			m.start()
			l := must.Get(other.Lock(ctx))
			m.stop(1)
			must.Succeed(l.Unlock(context.WithoutCancel(ctx)))
		}
	}}
}
