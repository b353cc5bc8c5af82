package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/protocol"
)

var electionChapter = chapter{"election", "Leader election", func(*env) []work {
	const candidates = 8
	return []work{{
		name: "election/resign", title: "8 candidates, from resignation until the next leader knows",
		unit: "hand-off; the floor is a delete and its event",
		enter: func(ctx context.Context, e *env) []*contestant {
			all := append(floorLines(ctx, e, candidates, candidates), ourLine(ctx, e, candidates, candidates, candidate))
			return append(all, e.peerLines("electionline", candidates, candidates)...)
		},
	}}
}}

func candidate(c *protocol.Client) contender {
	return func(ctx context.Context, path string) func(context.Context) error {
		return must.Get(election.New(c, path).Campaign(ctx, payload)).Resign
	}
}
