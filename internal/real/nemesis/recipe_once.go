package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/once"
)

// keyEvery is how often there is a new key.
const keyEvery = 300 * time.Millisecond

var errRun = errors.New("this run fails")

func onceWork(w *worker) workload {
	o := once.New(w.client, w.Path)
	return workload{step: func() error {
		ctx, cancel := w.wait()
		defer cancel()
		key := fmt.Sprint(int64(w.now()) / int64(keyEvery))
		do := w.call("do", key)
		ran, err := o.Do(ctx, key, func(ctx context.Context, r *once.Run) error {
			run := w.call("run", key)
			run.Call = do.Call // the right to run came after this
			w.hold(run, r, w.spell(), false)
			run.Over = w.now()
			if err := ctx.Err(); err != nil {
				return w.returns(run, err, Failed)
			} else if !w.proves && w.chance(4) {
				return w.returns(run, errRun, Failed)
			}
			w.tell(run)
			return nil
		})
		if ran {
			do.Kind = "ran"
		}
		return w.returns(do, err, Unknown)
	}}
}

// checkOnce checks three things for each key: only one process at a time runs, at most one run is
// recorded, and after a call has returned that the key is done, no process runs.
func checkOnce(r *Round, name string) error {
	runs, calls := make(map[string][]*Op), make(map[string][]*Op)
	for _, o := range r.ops(name) {
		if o.Kind == "run" {
			runs[o.Value] = append(runs[o.Value], o)
		} else {
			calls[o.Value] = append(calls[o.Value], o)
		}
	}

	for key := range calls {
		if err := alone(runs[key], func(a, b *Op) bool { return true }); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		// A key is the number of its interval.
		var n int64
		fmt.Sscan(key, &n)
		earlier := Stamp(n*int64(keyEvery)) < r.From // it may have been done in the previous round
		if err := checkKey(runs[key], calls[key], earlier); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}

	return nil
}

func checkKey(runs, calls []*Op, earlier bool) error {
	var recorded *Op
	for _, o := range calls {
		if o.Outcome != OK {
			continue
		}
		if o.Kind == "ran" {
			if recorded != nil {
				return fmt.Errorf("two runs are recorded:\n  %v\n  %v", recorded, o)
			}
			recorded = o
		}

		ended := earlier // a run that may have been recorded before
		for _, run := range runs {
			if run.Held > o.Return {
				return fmt.Errorf("it runs after it was done:\n  %v\n  %v", o, run)
			}
			ended = ended || run.Outcome != Failed && run.Call < o.Return
		}
		if !ended {
			return fmt.Errorf("it is done, and no run has ended:\n  %v", o)
		}
	}

	return nil
}
