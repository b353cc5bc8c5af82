package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/value"
)

// Clients set, update, delete and read a value, and one of them watches it. Operators leave the
// receipts alone: without a receipt, the outcome of a write is unknown.
func TestSimValue(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		w.Watches = 2 // the watcher's
		h := &valueHistory{}
		w.Check(h.check)
		for _, c := range w.Clients(2 + w.Rand.IntN(3)) {
			v := value.New(c.Client, w.Path)
			for g := range 1 + c.Rand.IntN(2) {
				c.Go(func(ctx context.Context) error {
					for n := range 2 + c.Rand.IntN(6) {
						c.Sleep(ctx, c.Upto(w.Timeout/2))
						if err := h.call(ctx, w, c, v, fmt.Sprint(c.Name, " ", g, " ", n)); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}

		watcher := w.Clients(1)[0]
		stop := watch(w, value.New(watcher.Client, w.Path).Watch, func(_, _ value.State) error { return nil })
		w.Finally("the last state is seen, and deleted", func(ctx context.Context) error {
			v := value.New(w.Operator(), w.Path)
			last, err := v.Get(ctx)
			if err != nil && !errors.Is(err, value.ErrUnset) {
				return err
			}
			watcher.Sleep(ctx, 2*w.Timeout)
			seen, err := stop()
			if err != nil {
				return err
			}
			if fmt.Sprint(seen) != fmt.Sprint(last) {
				return fmt.Errorf("%v, and the watcher saw %v last", last, seen)
			}
			return v.Delete(ctx)
		})
	}, truthfulSyncs, sim.WithoutFaults(sim.Deletion, sim.Uproot))
}

// A valueHistory is what clients have done to a value. Each write has data of its own.
type valueHistory struct {
	mu  sync.Mutex // protects ops
	ops []porcupine.Operation
}

// A valueStep makes before, or anything, to after. If it is not known whether it was done, it may
// have done nothing.
type valueStep struct {
	before, after string // empty: not set
	blind, open   bool
}

func (h *valueHistory) call(ctx context.Context, w *sim.World, c *sim.Client, v *value.Value, id string) error {
	bound, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
	defer cancel()
	var s valueStep
	var err error
	called := w.Now()
	switch kind := c.Rand.IntN(8); kind {
	case 0:
		s.blind = true
		err = v.Delete(bound)
	case 1:
		s.blind, s.after = true, id
		_, err = v.Set(bound, []byte(id))
	case 2, 3:
		var state value.State
		if state, err = v.Get(bound); errors.Is(err, value.ErrUnset) {
			err = nil
		}
		s.before, s.after = string(state.Data), string(state.Data)
	default:
		s.after = id
		_, err = v.Update(bound, func(old value.State) ([]byte, error) {
			s.before = string(old.Data)
			return []byte(id), nil
		})
	}
	c.Awake()

	returned := w.Now()
	switch {
	case errors.Is(err, protocol.ErrUncertain):
		s.open, returned = true, 1<<62 // it may yet be executed
	case errors.Is(err, context.DeadlineExceeded):
		return nil // and it was not executed
	case err != nil:
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: len(h.ops), Input: s, Call: int64(called), Return: int64(returned)})
	return nil
}

func (h *valueHistory) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[string]bool)
	for _, o := range h.ops {
		seen[o.Input.(valueStep).before] = true
	}
	// A write that nobody has seen may have been executed last. Without such writes the search is
	// short.
	h.ops = slices.DeleteFunc(h.ops, func(o porcupine.Operation) bool {
		s := o.Input.(valueStep)
		return s.open && s.after != "" && !seen[s.after]
	})
	if porcupine.CheckOperations(oneValue, h.ops) {
		return nil
	}
	err := errors.New("the value has no history that is linearizable")
	for _, o := range h.ops {
		err = fmt.Errorf("%w\n%v to %v: %+v", err, o.Call, o.Return, o.Input)
	}
	return err
}

var oneValue = porcupine.Model{
	Init: func() any { return "" },
	Step: func(now, input, _ any) (bool, any) {
		s := input.(valueStep)
		if s.blind || now == s.before {
			return true, s.after
		}
		return s.open, now
	},
}
