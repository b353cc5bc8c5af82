package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A place is where one process runs after another. They share their name and their follower.
type place struct {
	index   int // the first is 0
	began   int // processes
	program func(*Client)
	opts    []protocol.ConnectOption
}

// Processes is [World.Clients] for clients that may die, by [Death]. It calls program with each
// client, and also with each successor. A program makes its recipes, calls [Client.Go], and
// returns. It is called for one client at a time. [World.Alive] returns the clients that are left
// in the end.
//
// Nothing that a process does after its death counts. No packet of it passes any more. Its
// contexts are cancelled, its calls fail, its errors are none, and what it held is not held from
// that moment on. Its session lasts until the server ends it. After a pause a successor comes, with
// a network, a session and random numbers of its own.
//
// A loop must end when its context does, or it goes on for ever.
//
// A call that was under way may have been executed. So a history that is kept by the simulation
// itself must look at [Client.Dead] when a call has failed.
func (w *World) Processes(n int, program func(c *Client), opts ...protocol.ConnectOption) {
	for _, c := range w.connectAll(n, program, opts) {
		program(c)
	}
}

// Alive returns the clients, without those whose successors have come.
func (w *World) Alive() []*Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.clients)
}

// mortal reports whether clients may die.
func (w *World) mortal() bool {
	return slices.ContainsFunc(w.Alive(), func(c *Client) bool { return c.place.program != nil })
}

// Dead reports whether the process has died.
func (c *Client) Dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// die makes a process die that has work to do, and a successor come after a pause. If the host dies
// with it, the server is not told.
func (w *World) die(c *Client, host bool, pause time.Duration) (done string) {
	if c.place.program == nil || c.Dead() || c.working.Load() == 0 || !w.work.begin() {
		return "there is none"
	}

	c.mu.Lock()
	c.dead = true
	ports := slices.Clone(c.ports)
	c.mu.Unlock()
	w.held.endAll(c)
	if host {
		c.Link.Stall()
	} else {
		c.Link.Cut()
	}

	// From here on nothing passes, so the process may learn of its death.
	for _, p := range ports {
		p.Conn.Close()
	}
	c.runOn()
	c.kill()
	go c.Client.Close()

	go func() {
		defer w.work.end()
		defer w.recovered("a successor of " + c.Name)
		sleep(w.over, pause)
		next := w.connect(c.place, c.follower)
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
