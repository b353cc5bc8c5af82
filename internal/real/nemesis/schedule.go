package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// The faults of processes. Their clocks have no faults: a Go program reads them without the C
// library, and libfaketime only replaces functions of that library.
const (
	killed = "kill -9"
	paused = "pause"
)

// A step of a schedule is one fault. Seed decides the choices within the fault.
type step struct {
	After time.Duration // after the previous step
	Kind  string
	Lasts time.Duration
	Seed  uint64
}

// draw draws a round's faults from the seed. Faults of one list follow each other, and faults of
// different lists overlap. Every other round has only two kinds of the ensemble's faults (which
// gets further than all kinds together). Each kind has its turn before any kind has another.
func draw(seed uint64, round int, kinds []string, timeout, length time.Duration) (onEnsemble, onProcesses []step) {
	r := rand.New(rand.NewPCG(seed, uint64(round)))
	processes := []string{killed, paused}
	if round%2 == 0 {
		// All rounds have this order in common, so the kinds take turns.
		turns := rand.New(rand.NewPCG(seed, 0)).Perm(len(kinds))
		first, second := turns[round%len(turns)], turns[(round+1)%len(turns)]
		kinds = []string{kinds[first], kinds[second]}
		if r.IntN(2) == 0 {
			processes = nil // so that holders live long enough to be hit by the ensemble's faults
		}
	}
	return drawList(r, kinds, timeout, length), drawList(r, processes, timeout, length)
}

func drawList(r *rand.Rand, kinds []string, timeout, length time.Duration) []step {
	var steps []step
	// A short fault, a fault of about a session timeout, or a fault that outlasts sessions.
	most := []time.Duration{timeout / 2, timeout, 3 * timeout}
	for at := time.Duration(0); len(kinds) > 0 && at < length; {
		s := step{
			After: time.Duration(r.Int64N(int64(timeout / 2))),
			Kind:  kinds[r.IntN(len(kinds))],
			Lasts: time.Duration(r.Int64N(int64(most[r.IntN(len(most))]))),
			Seed:  r.Uint64(),
		}
		at += s.After + s.Lasts
		steps = append(steps, s)
	}

	return steps
}

// strike makes the faults of both lists happen, and returns when they have ended.
func (r *run) strike(ctx context.Context, onEnsemble, onProcesses []step) []Fault {
	var mu sync.Mutex
	var faults []Fault
	var lists sync.WaitGroup
	play := func(steps []step, strike func(step) Fault) {
		lists.Go(func() {
			for _, s := range steps {
				select {
				case <-time.After(s.After):
				case <-ctx.Done():
					return
				}
				f := strike(s)
				r.log("%v", f)
				mu.Lock()
				faults = append(faults, f)
				mu.Unlock()
			}
		})
	}

	// Faults of processes and of the ensemble overlap.
	play(onEnsemble, func(s step) Fault { return r.strikeEnsemble(ctx, s) })
	play(onProcesses, func(s step) Fault { return r.strikeProcess(ctx, s) })
	lists.Wait()
	return faults
}

func (r *run) strikeEnsemble(ctx context.Context, s step) Fault {
	f := Fault{Kind: s.Kind, From: r.now()}
	detail, err := r.on.Inject(ctx, s.Kind, rand.New(rand.NewPCG(s.Seed, 0)), s.Lasts, len(r.fleet.all()))
	// Keep and Hurry end with the fault.
	r.fleet.pace(cmdFree)
	f.To, f.Detail, f.Error = r.now(), detail, text(err)
	return f
}

// strikeProcess hits one process, and one in six of the others. Half of the time the first is a
// process that holds a lock. A pause is then longer than the session timeout, so that it makes a
// stale holder. If a process must keep its lock during a fault of the ensemble, it is spared.
func (r *run) strikeProcess(ctx context.Context, s step) Fault {
	f := Fault{Kind: s.Kind, From: r.now()}
	random := rand.New(rand.NewPCG(s.Seed, 0))
	var victims []*process
	all := r.fleet.all()
	first := random.IntN(len(all))
	if holders := r.fleet.Holders(); len(holders) > 0 && random.IntN(2) == 0 {
		first = holders[random.IntN(len(holders))]
		if s.Kind == paused {
			s.Lasts += r.Timeout
		}
	}

	for i, p := range all {
		if (i == first || random.IntN(6) == 0) && !r.fleet.keeps(p) {
			victims = append(victims, p)
			f.Detail += fmt.Sprintf("%s %d, ", p.config.Recipe, p.config.Client)
		}
	}

	f.Detail = strings.TrimSuffix(f.Detail, ", ")

	// The fault begins for all victims.
	var failed []error
	for _, p := range victims {
		if s.Kind == killed {
			r.fleet.kill(p)
		} else {
			failed = append(failed, stop(p.cmd.Process))
		}
	}

	sleep(ctx, s.Lasts)
	// It ends even if ctx has ended, because the proof needs all processes.
	for _, p := range victims {
		if s.Kind == killed {
			failed = append(failed, r.fleet.restart(p))
		} else {
			failed = append(failed, cont(p.cmd.Process))
		}
	}

	f.To, f.Error = r.now(), text(errors.Join(failed...))
	return f
}
