package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/election"
)

// electionWork has two candidates in each process, and asks for the leader. The first process only
// asks, so that no write of its own makes a lagging server catch up for it.
func electionWork(w *worker) workload {
	return workload{step: func() error {
		if !w.proves && (w.Client == 0 || w.chance(3)) {
			return candidate{w, election.New(w.client, w.Path)}.askForLeader()
		}
		return together(2, func() error { return candidate{w, election.New(w.client, w.Path)}.campaign() })
	}}
}

type candidate struct {
	*worker
	election *election.Election
}

func (c candidate) campaign() error {
	o, term, err := acquire(c.worker, "campaign", func(ctx context.Context) (*election.Term, error) {
		return c.election.Campaign(ctx, fmt.Append(nil, c.Client))
	})
	if err != nil {
		return err
	}

	c.hold(o, term, c.spell(), true)
	resign := term.Resign
	if last := c.last(term); last != "" && c.chance(4) {
		resign = func(ctx context.Context) error { return term.ResignTo(ctx, last) }
	}
	_, err = c.release(o, term, resign)
	if term.Err() == nil { // ResignTo has done nothing: the successor has left, or ctx had ended
		_, err = c.release(o, term, term.Resign)
	}
	return err
}

// last returns the node of the last candidate, or "" if that's the leader.
func (c candidate) last(t *election.Term) string {
	ctx, cancel := c.wait()
	defer cancel()
	all, err := c.election.Candidates(ctx)
	if err != nil || len(all) == 0 || all[len(all)-1].Node == t.Node() {
		return ""
	}
	return all[len(all)-1].Node
}

// askForLeader notes the token of the leader, or 0 if there's none.
func (c candidate) askForLeader() error {
	ctx, cancel := c.wait()
	defer cancel()
	o := c.call("leader", "")
	l, err := c.election.Leader(ctx)
	if errors.Is(err, election.ErrNoLeader) {
		l, err = election.Leader{}, nil
	}
	o.Token = l.Token
	return c.returns(o, err, Failed)
}

// checkElection checks the terms like the leases of a lock, and also the answers about leaders.
func checkElection(r *Round, name string) error {
	terms := r.ops(name, "campaign")
	if err := fenced(r, name, terms); err != nil {
		return err
	}
	for _, told := range r.ops(name, "leader") {
		// Only contradictions count: the term began before the call, or lasted during all of it.
		for _, t := range terms {
			switch {
			case told.Outcome != OK || !t.certain() || r.stale(told):
			case told.Token != 0 && t.Begun < told.Call && t.Token > told.Token:
				return fmt.Errorf("an earlier leader is named:\n  %v\n  %v", told, t)
			case told.Token == 0 && t.Begun <= told.Call && told.Return <= t.Held:
				return fmt.Errorf("no leader is named while there is one:\n  %v\n  %v", told, t)
			}
		}
	}

	return exclusive(terms)
}
