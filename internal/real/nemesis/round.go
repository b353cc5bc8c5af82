package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
)

// play plays rounds until time is up. It returns the failure, if any.
func (p plan) play(ctx context.Context, on ensemble, report *report) (failure string, err error) {
	r, err := begin(ctx, on, p)
	defer r.end()
	if err != nil {
		return "", err
	}

	err = must.Try(func() {
		for end := time.Now().Add(p.For); failure == "" && time.Now().Before(end); {
			round := r.round(ctx)
			v := judge(round)
			must.Succeed(report.add(round, v))
			r.log("round %d: %d operations, %d faults, %d failures", round.Number, len(round.Ops), len(round.Faults), len(v.Failures))
			failure = v.text()
		}
	})
	return failure, err
}

// convergeLimit is how long a process may take for one operation when nothing is broken. It is long
// because the machine can be busy. (If something hangs, it hangs longer.)
const convergeLimit = time.Minute

// healLimit is how long the ensemble may take to recover. That can include a restart of members
// that don't recover by themselves.
const healLimit = 3 * time.Minute

// round plays one round. It fails by package must if the nemesis itself has failed.
func (r *run) round(ctx context.Context) *Round {
	round := &Round{Number: r.rounds, Clients: r.Clients, From: r.now()}
	r.rounds++
	r.fleet.tell(cmdWork)

	faults, cancel := context.WithTimeout(ctx, r.Length)
	onEnsemble, onProcesses := draw(r.Seed, round.Number, r.Kinds, r.Timeout, r.Length)
	round.Faults = r.strike(faults, onEnsemble, onProcesses)
	// Without faults, the processes still work until the round's time is up.
	<-faults.Done()
	cancel()
	must.Succeed(ctx.Err())

	// From here on, nothing is broken.
	healing, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	if err := r.on.Heal(healing); err != nil {
		must.Fail("the ensemble does not heal: %w", err)
	}

	// Each process must do one more operation, and give back everything.
	round.Healed = r.now()
	for _, command := range []string{cmdProve, cmdRest} {
		// After a failure, the next command would only time out.
		if len(round.Broken) == 0 {
			limit, cancel := context.WithTimeout(ctx, convergeLimit)
			round.Broken = r.fleet.ask(limit, command)
			cancel()
		}
	}

	limit, cancel := context.WithTimeout(ctx, convergeLimit)
	defer cancel()
	// Nodes of a process that is still at work say nothing.
	if len(round.Broken) == 0 {
		for _, node := range must.Get(r.remains(limit)) {
			round.Broken = append(round.Broken, "left behind: "+node)
		}
	}

	var died []string
	round.Ops, died = r.fleet.take()
	round.Broken = append(round.Broken, died...)
	// Entries that are still in the queue belong to the history, too.
	if slices.Contains(r.Recipes, "queue") && len(round.Broken) == 0 {
		round.Ops = append(round.Ops, must.Get(drain(limit, r.observer, r.root+"/queue", r.now))...)
	}

	round.Writes = r.store.take()
	round.To = r.now()
	must.Succeed(ctx.Err()) // if we were interrupted, nothing is wrong
	return round
}

// remains returns the ephemeral nodes that stay although all processes rest. It waits for a while,
// because the sessions of killed processes must end and clients clean up in the background.
func (r *run) remains(ctx context.Context) (nodes []string, err error) {
	for until := time.Now().Add(4*r.Timeout + 20*time.Second); ; sleep(ctx, 100*time.Millisecond) {
		nodes, err = r.ephemerals(ctx)
		// If the connection breaks, look again.
		over := ctx.Err() != nil || time.Now().After(until)
		if over || err == nil && len(nodes) == 0 {
			return nodes, err
		}
	}
}

// ephemerals returns the ephemeral nodes below the root.
func (r *run) ephemerals(ctx context.Context) (nodes []string, err error) {
	s, err := r.observer.Session(ctx)
	if err != nil {
		return nil, err
	}
	all, err := cluster.Tree(s.Conn(), r.root)
	for _, n := range all {
		if n.Stat.EphemeralOwner != 0 {
			nodes = append(nodes, fmt.Sprintf("%s of session %#x", n.Path, n.Stat.EphemeralOwner))
		}
	}
	return nodes, err
}
