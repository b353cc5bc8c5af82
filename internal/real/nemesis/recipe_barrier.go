package main

import (
	"context"
	"math/rand/v2"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/barrier"
)

// barrierWork sets and removes the barrier, and waits at it. The first process only waits, so that
// no write of its own makes a lagging server catch up for it. The last process never waits, because
// if all waited, none could remove the barrier.
func barrierWork(w *worker) workload {
	b := barrier.New(w.client, w.Path)
	do := func(kind string, verb func(context.Context) error, limit func() (context.Context, context.CancelFunc)) error {
		ctx, cancel := limit()
		defer cancel()
		o := w.call(kind, "")
		return w.returns(o, verb(ctx), Unknown)
	}

	return workload{step: func() error {
		switch {
		case w.proves:
			// Remove the barrier first. Otherwise this Wait could hang although nothing is broken.
			if err := do("remove", b.Remove, w.effect); err != nil {
				return err
			}
			return do("wait", b.Wait, w.wait)
		case rand.IntN(w.Clients-1) >= w.Client:
			return do("wait", b.Wait, w.wait)
		case w.chance(2):
			return do("set", b.Set, w.effect)
		}
		return do("remove", b.Remove, w.effect)
	}}
}

// checkBarrier looks for an order in which no wait returns while the barrier is set.
func checkBarrier(r *Round, name string) error {
	var ops []porcupine.Operation
	for _, o := range r.ops(name) {
		if o.Kind == "wait" && (o.Outcome != OK || r.stale(o)) {
			continue // it has no effect, or proves nothing
		}
		ops = append(ops, porcupine.Operation{
			ClientId: len(ops), Input: o.Kind, Call: int64(o.Call), Return: int64(o.returned()),
		})
	}
	return linear(setOrNot, ops, "a wait has returned while the barrier was set")
}

// setOrNot is a barrier. It isn't set when a round begins, because each round ends with a removal.
var setOrNot = porcupine.Model{
	Init: func() any { return false },
	Step: func(set, kind, _ any) (bool, any) {
		switch kind {
		case "set":
			return true, true
		case "remove":
			return true, false
		}
		return !set.(bool), set
	},
}
