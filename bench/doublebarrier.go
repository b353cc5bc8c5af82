package main

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
)

var doubleBarrierChapter = chapter{"doublebarrier", "A double barrier, each member in a session of its own", func(e *env) []work {
	var all []work
	for _, members := range []int{4, 16, max(e.few(64), 32), e.few(200)} {
		w := work{
			name: fmt.Sprintf("doublebarrier/%d", members), title: fmt.Sprintf("%d members enter and leave", members), unit: "member",
			enter: func(ctx context.Context, e *env) ([]*contestant, error) { return enterAndLeave(ctx, e, members) },
		}
		if members == 16 {
			w.goals = []goal{timesThe("Curator", 2)}
		}
		all = append(all, w)
	}
	return all
}}

// enterAndLeave leaves kazoo out: its first leaver opens the gate to the next round, and a slow
// member can then wait for ever.
func enterAndLeave(ctx context.Context, e *env, members int) ([]*contestant, error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	t := new(traffic)
	clients, err := e.clients(ctx, t, members)
	if err != nil {
		return nil, err
	}

	all := []*contestant{{name: ours, traffic: t, run: oneRound(members, func(ctx context.Context, i int) error {
		entry, err := doublebarrier.New(clients[i], path+"/"+ours, members).Enter(ctx)
		if err != nil {
			return err
		}
		return entry.Leave(ctx)
	})}}

	return append(all, e.peersWith("doublebarrier", func(p *peer) func(context.Context, *meter) error {
		return func(ctx context.Context, m *meter) error {
			return e.onNewPath(func(dir string) error {
				const paths = 64
				var ops []any
				for i := range paths {
					ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%d", dir, i), Acl: acl})
				}
				if _, err := e.admin.Multi(ops...); err != nil {
					return err
				}
				return p.measured(ctx, m, "doublebarrier", dir, members, m.slice.Milliseconds(), paths)
			})
		}
	})...), nil
}

// oneRound makes all members do something, and again once all have done it, until time is up.
func oneRound(members int, do func(ctx context.Context, member int) error) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		m.start()
		total := 0
		for total == 0 || m.within() {
			n, err := inParallel(members, func(i int) (int, error) { return 1, do(ctx, i) })
			if err != nil {
				return err
			}
			total += n
		}
		m.stop(total)
		return nil
	}
}
