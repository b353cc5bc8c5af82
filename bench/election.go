package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/election"
)

var electionChapter = chapter{"election", "Leader election", func(*env) []work {
	const candidates = 8
	return []work{{
		name: "election/resign", title: "8 candidates, from resignation until the next leader knows",
		unit:  "hand-off; the floor is a delete and its event",
		goals: []goal{atMostFloor(1.4)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) {
			all, err := goLines(ctx, e, candidates, candidates, ourElection)
			if err != nil {
				return nil, err
			}
			return append(all, e.peerLines("electionline", candidates, candidates)...), nil
		},
	}}
}}

func ourElection(ctx context.Context, e *env, n, sessions int) (*contestant, error) {
	t := new(traffic)
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	all := make([]contender, n)

	for i := range all {
		c := clients[i%sessions]
		all[i] = func(ctx context.Context, path string) (func(context.Context) error, error) {
			term, err := election.New(c, path).Campaign(ctx, payload)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return term.Resign(context.WithoutCancel(ctx)) }, nil
		}
	}

	return &contestant{name: ours, traffic: t, run: chain(e, all, sessions)}, nil
}
