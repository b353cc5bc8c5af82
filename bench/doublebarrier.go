package main

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/must"
)

var doubleBarrierChapter = chapter{"doublebarrier", "A double barrier, each member in a session of its own", func(e *env) []work {
	var all []work
	for _, members := range []int{4, 16, max(e.few(64), 32), e.few(200)} {
		all = append(all, work{
			name: fmt.Sprintf("doublebarrier/%d", members), title: fmt.Sprintf("%d members enter and leave", members), unit: "member",
			enter: func(ctx context.Context, e *env) []*contestant { return enterAndLeave(ctx, e, members) },
		})
	}
	return all
}}

// enterAndLeave leaves kazoo out: its first leaver opens the gate to the next round. A slow member
// can then wait for ever.
func enterAndLeave(ctx context.Context, e *env, members int) []*contestant {
	path := e.newPath()
	t := new(traffic)
	clients := e.clients(ctx, t, members)

	all := []*contestant{{name: ours, traffic: t, run: oneRound(members, func(ctx context.Context, i int) {
		entry := must.Get(doublebarrier.New(clients[i], path+"/"+ours, members).Enter(ctx))
		must.Succeed(entry.Leave(ctx))
	})}}

	return append(all, e.peersWith("doublebarrier", func(ctx context.Context, m *meter, p *peer, dir string) {
		// A peer repeats the barrier by itself, so it cannot ask us for a new path each time. It
		// uses these in turn.
		const paths = 64
		var ops []any
		for i := range paths {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%d", dir, i), Acl: acl})
		}
		must.Get(e.admin.Multi(ops...))
		p.measured(ctx, m, "doublebarrier", dir, members, m.slice.Milliseconds(), paths)
	})...)
}

// oneRound makes all members do something. Once all have done it they do it again, until time is
// up.
func oneRound(members int, do func(ctx context.Context, member int)) func(context.Context, *meter) {
	return func(ctx context.Context, m *meter) {
		m.start()
		total := 0
		// One round counts even if it takes longer than the slice, so that there is always a time
		// to show.
		for total == 0 || m.within() {
			total += inParallel(members, func(i int) int {
				do(ctx, i)
				return 1
			})
		}
		m.stop(total)
	}
}
