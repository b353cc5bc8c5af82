package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Gate is the history of something that is set and removed, and at which clients wait while it is
// set (a barrier).
type Gate struct {
	world *World
	what  string
	mu    sync.Mutex // protects calls
	calls []gateCall
}

// A gateCall has its effect at one moment between called and returned.
type gateCall struct {
	verb, client     string
	called, returned time.Duration
}

// Gate begins a history, which is checked in the end.
func (w *World) Gate(what string) *Gate {
	g := &Gate{world: w, what: what}
	w.Check(g.check)
	return g
}

// Set calls set, which sets the gate, and returns its error. After an error the gate can be set at
// any later time.
func (g *Gate) Set(c *Client, set func() error) error { return g.do(c, "set", set) }

// Remove calls remove, which removes the gate, and returns its error. After an error the gate can
// be removed at any later time.
func (g *Gate) Remove(c *Client, remove func() error) error { return g.do(c, "remove", remove) }

// Wait calls wait and returns its error. wait may succeed only if the gate is not set at some
// moment during the call.
func (g *Gate) Wait(c *Client, wait func() error) error { return g.do(c, "wait", wait) }

func (g *Gate) do(c *Client, verb string, do func() error) error {
	c.Awake()
	called := g.world.Now()
	err := do()
	// The caller sees the result only once its process runs.
	c.Awake()
	returned := g.world.Now()
	if err != nil && verb == "wait" { // it shows nothing
		return err
	}

	g.world.record.span(c.Name, verb, called, returned, err != nil)
	if err != nil {
		returned = math.MaxInt64 // it can still happen
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, gateCall{verb, c.Name, called, returned})
	return err
}

// check returns an error unless all calls have an order, each within its time, in which no wait is
// passed while the gate is set.
func (g *Gate) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()

	of := func(verb string) []gateCall {
		all := slices.DeleteFunc(slices.Clone(g.calls), func(c gateCall) bool { return c.verb != verb })
		slices.SortFunc(all, func(a, b gateCall) int { return cmp.Compare(a.returned, b.returned) })
		return all
	}

	removals := of("remove")
	var removed []time.Duration // the moments of removals that earlier waits need
	for _, wait := range of("wait") {
		set := time.Duration(-1)
		for _, c := range of("set") {
			if c.returned < wait.called {
				set = max(set, c.called)
			}
		}
		// The gate must be removed after all these sets, and before the wait returns.
		if set < 0 || slices.ContainsFunc(removed, func(at time.Duration) bool { return at >= set }) {
			continue
		}
		// Use the removal that is the first to be useless for later waits, as late as possible.
		i := slices.IndexFunc(removals, func(c gateCall) bool { return c.called <= wait.returned && c.returned >= set })
		if i < 0 {
			return g.passed(wait)
		}
		removed = append(removed, min(wait.returned, removals[i].returned))
		removals = slices.Delete(removals, i, i+1)
	}

	return nil
}

func (g *Gate) passed(wait gateCall) error {
	err := fmt.Errorf("%s was passed while it was set, from %v to %v by %s", g.what, wait.called, wait.returned, wait.client)
	for _, c := range g.calls {
		err = fmt.Errorf("%w\n%v to %v: %s of %s", err, c.called, c.returned, c.verb, c.client)
	}
	return err
}
