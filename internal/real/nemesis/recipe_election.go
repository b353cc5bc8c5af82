package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/election"
)

// electionWork campaigns, and asks for the leader. The first process only asks, so that no write of
// its own makes a lagging server catch up for it.
func electionWork(w *worker) workload {
	e := election.New(w.client, w.Path)
	return workload{step: func() error {
		if !w.proves && (w.Client == 0 || w.chance(3)) {
			return w.askForLeader(e)
		}
		ctx, cancel := w.wait()
		defer cancel()
		o := w.call("campaign", "")
		term, err := e.Campaign(ctx, fmt.Append(nil, w.Client))
		if err != nil {
			return w.returns(o, err, Failed)
		}

		w.hold(o, term, w.spell(), true)
		resign := term.Resign
		if last := w.lastCandidate(e, term); last != "" && w.chance(4) {
			resign = func(ctx context.Context) error { return term.ResignTo(ctx, last) }
		}
		_, err = w.release(o, term, resign)
		if term.Err() == nil { // ResignTo has done nothing: the successor has left, or ctx had ended
			_, err = w.release(o, term, term.Resign)
		}
		return err
	}}
}

// lastCandidate returns the node of the last candidate, or "" if that's the leader.
func (w *worker) lastCandidate(e *election.Election, t *election.Term) string {
	ctx, cancel := w.wait()
	defer cancel()
	all, err := e.Candidates(ctx)
	if err != nil || len(all) == 0 || all[len(all)-1].Node == t.Node() {
		return ""
	}
	return all[len(all)-1].Node
}

// askForLeader notes the token of the leader, or 0 if there's none.
func (w *worker) askForLeader(e *election.Election) error {
	ctx, cancel := w.wait()
	defer cancel()
	o := w.call("leader", "")
	l, err := e.Leader(ctx)
	if errors.Is(err, election.ErrNoLeader) {
		l, err = election.Leader{}, nil
	}
	o.Token = l.Token
	return w.returns(o, err, Failed)
}

// checkElection checks the terms like the leases of a lock, and also the answers about leaders.
func checkElection(r *Round, name string) error {
	terms := r.ops(name, "campaign")
	if err := fenced(r.writes(name), terms); err != nil {
		return err
	}
	for _, told := range r.ops(name, "leader") {
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
