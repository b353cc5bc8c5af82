package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Gate is the history of something that is set and removed, and at which clients wait while it is
// set (a barrier).
type Gate struct {
	world *World
	what  string
	mu    sync.Mutex // protects ops
	ops   []porcupine.Operation
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

func (g *Gate) do(c *Client, what string, do func() error) error {
	c.Awake()
	called := g.world.Now()
	err := do()
	c.Awake()
	returned := g.world.Now()
	if err != nil {
		if what == "wait" {
			return err
		}
		returned = 1 << 62 // it can still happen
	}

	g.world.record.span(c.Name, what, called, g.world.Now(), err != nil)
	g.mu.Lock()
	defer g.mu.Unlock()

	g.ops = append(g.ops, porcupine.Operation{
		ClientId: len(g.ops), Input: step{what: what}, Output: c.Name, Call: int64(called), Return: int64(returned),
	})

	return err
}

func (g *Gate) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()

	if porcupine.CheckOperations(openOrNot, g.ops) {
		return nil
	}

	err := fmt.Errorf("%s was passed while it was set", g.what)
	for _, o := range g.ops {
		err = fmt.Errorf("%w\n%v to %v: %s of %s", err, time.Duration(o.Call), time.Duration(o.Return), o.Input.(step).what, o.Output)
	}

	return err
}

var openOrNot = porcupine.Model{
	Init: func() any { return false },
	Step: func(set, input, _ any) (bool, any) {
		switch input.(step).what {
		case "set":
			return true, true
		case "remove":
			return true, false
		}
		return !set.(bool), set
	},
}
