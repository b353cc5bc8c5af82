package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

var handoffChapter = chapter{"handoff", "A lock that goes from session to session", func(e *env) []work {
	var all []work
	for _, sessions := range []int{8, max(e.few(64), 16)} {
		all = append(all, work{
			name:  fmt.Sprintf("handoff/latency-%d", sessions),
			title: fmt.Sprintf("%d sessions in line, from unlock to the next holder", sessions),
			unit:  "hand-off; the floor is a delete and its event",
			enter: func(ctx context.Context, e *env) []*contestant { return lockLines(ctx, e, sessions, sessions) },
		}, work{
			name:  fmt.Sprintf("handoff/throughput-%d", sessions),
			title: fmt.Sprintf("%d sessions that lock and unlock as fast as they can", sessions),
			unit:  "cycle",
			enter: func(ctx context.Context, e *env) []*contestant {
				all := []*contestant{ourLocks(ctx, e, ours, sessions, 1), zkLocks(ctx, e, sessions, 1)}
				return append(all, e.peersFor("lockloop", sessions)...)
			},
		})
	}
	return all
}}

var drainChapter = chapter{"drain", "A lock with many waiters, several in each of 50 sessions", func(e *env) []work {
	var all []work
	for _, waiters := range []int{e.few(500), e.few(2000)} {
		all = append(all, work{
			name:   fmt.Sprintf("drain/%d", waiters),
			title:  fmt.Sprintf("%d waiters drained", waiters),
			unit:   "hand-off; the floor is a delete and its event",
			rounds: 3,
			enter:  func(ctx context.Context, e *env) []*contestant { return lockLines(ctx, e, waiters, e.few(50)) },
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

// lockLines returns n contenders for a lock (in that many sessions) for each library.
func lockLines(ctx context.Context, e *env, n, sessions int) []*contestant {
	all := append(floorLines(ctx, e, n, sessions), ourLine(ctx, e, n, sessions, lockContender), zkLockLine(ctx, e, n, sessions))
	peers := e.peerLines("lockline", n, sessions)
	if n > 1000 { // it would take minutes
		peers = slices.DeleteFunc(peers, func(c *contestant) bool { return c.name == "kazoo" })
	}
	return append(all, peers...)
}

func lockContender(c *protocol.Client) contender {
	return func(ctx context.Context, path string) func(context.Context) error {
		return must.Get(lock.New(c, path, lock.WithData(payload)).Lock(ctx)).Unlock
	}
}

func zkLockLine(ctx context.Context, e *env, n, sessions int) *contestant {
	t := new(traffic)
	return line(e, "zk.Lock", t, e.raws(ctx, t, sessions), n, func(c *zk.Conn) contender {
		return func(_ context.Context, path string) func(context.Context) error {
			l := zk.NewLock(c, path, acl)
			must.Succeed(l.LockWithData(payload))
			return func(context.Context) error { return l.Unlock() }
		}
	})
}
