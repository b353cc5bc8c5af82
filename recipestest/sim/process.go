package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// At a place, one process runs after another. They share their name and their follower.
type place struct {
	index   int // the first is 0
	began   int // how many processes have begun
	program func(*Client)
	opts    []protocol.ConnectOption
}

// Processes is [World.Clients] for clients that can die (see [Death]). It calls program with each
// client, and also with each successor. program makes its recipes, calls [Client.Go], and returns.
// It is called for one client at a time. [World.Alive] returns the clients that are left in the
// end.
//
// After its death, nothing that a process does counts. Its packets don't pass any more, its
// contexts are cancelled, its calls fail, its errors are ignored, and it holds nothing. Its session
// lasts until the server ends it. After a pause, a successor starts with its own network, session
// and random numbers.
//
// A loop must end when its context ends, or it goes on for ever.
//
// A call that was under way may have been executed. So if the simulation keeps a history itself, it
// must look at [Client.Dead] after a failed call.
func (w *World) Processes(n int, program func(c *Client), opts ...protocol.ConnectOption) {
	for _, c := range w.connectAll(n, program, opts) {
		program(c)
	}
}

// Alive returns the clients without those that have been replaced by successors.
func (w *World) Alive() []*Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.clients)
}

// mortal reports whether clients can die.
func (w *World) mortal() bool {
	return slices.ContainsFunc(w.Alive(), func(c *Client) bool { return c.place.program != nil })
}

// Dead reports whether the process has died.
func (c *Client) Dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// die kills a process that has work to do, and starts a successor after a pause. If the host dies
// with it, the server isn't notified.
func (w *World) die(c *Client, host bool, pause time.Duration) (done string) {
	// The successor counts as work from now on, so that the world waits for it.
	if c.place.program == nil || c.Dead() || c.working.Load() == 0 || !w.work.begin() {
		return "there is none"
	}

	c.mu.Lock()
	c.dead = true
	ports := slices.Clone(c.ports)
	c.mu.Unlock()
	for _, held := range w.held.of(c) {
		w.held.end(held, true)
	}
	if host {
		c.Link.Stall()
	} else {
		c.Link.Cut()
	}

	// From here on no packets pass, so the process may find out that it's dead.
	for _, p := range ports {
		p.Conn.Close()
	}
	c.runOn(time.Time{})
	c.kill()
	go c.Client.Close()

	go func() {
		defer w.work.end()
		defer w.recovered("a successor of " + c.Name)
		sleep(w.over, pause)
		next := w.connect(c.place, c.follower)
		// Processes promises that program runs for one client at a time.
		w.starting <- struct{}{}
		defer func() { <-w.starting }()
		w.mu.Lock()
		w.clients[c.place.index] = next
		w.mu.Unlock()
		next.Note("is process %d at this place", c.place.began)
		c.place.program(next)
	}()
	if host {
		return "with its host"
	}

	return fmt.Sprintf("session %#x", c.sessionID())
}
