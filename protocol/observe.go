package protocol

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A State is what a client can say of its session.
type State int

const (
	Connected State = iota + 1 // there is a session, and a connection
	Suspended                  // the connection is gone, the session is not, and is trusted still
	Lost                       // the session is over, and with it all that was held
	Closed                     // the client was closed; nothing comes after that
)

func (s State) String() string {
	switch s {
	case Connected:
		return "connected"
	case Suspended:
		return "suspended"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	}
	return "unknown"
}

// An Observer is told what happens, for metrics and traces. Like state listeners it is called one event at a time,
// in order, from a goroutine of its own, and may call the client. One that blocks delays the state listeners, too. Of
// those events that come while 1,000 calls are due already it hears nothing; a warning of the logger says so.
type Observer interface {
	Observe(Event)
}

// An Event is one thing that an [Observer] is told.
type Event struct {
	Kind     EventKind
	Recipe   string        // "lock", "election"
	Path     string        // as it was given to the recipe
	Session  int64         // the session it happened under, or 0
	Token    int64         // of what is or was held, or 0
	Duration time.Duration // of the wait or the hold that has ended
	Err      error         // why a wait ended without success, why something was lost or has to be repeated
}

// An EventKind tells the kinds of events apart.
type EventKind int

const (
	Waited  EventKind = iota + 1 // a wait is over: Err is nil if it was granted
	Held                         // something that was held was given back
	Dropped                      // something that was held was lost
	Retried                      // an operation did not succeed and is tried again
)

func (k EventKind) String() string {
	switch k {
	case Waited:
		return "waited"
	case Held:
		return "held"
	case Dropped:
		return "dropped"
	case Retried:
		return "retried"
	}
	return "unknown"
}

// LogObserver returns an observer that writes each event to l: retries at level debug, losses as warnings, the rest
// for information. It is safe for concurrent use.
func LogObserver(l *slog.Logger) Observer { return logObserver{l} }

type logObserver struct{ log *slog.Logger }

func (o logObserver) Observe(e Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case Retried:
		level = slog.LevelDebug
	case Dropped:
		level = slog.LevelWarn
	}
	o.log.LogAttrs(context.Background(), level, e.Kind.String(),
		slog.String("recipe", e.Recipe), slog.String("path", e.Path),
		slog.String("session", fmt.Sprintf("%#x", uint64(e.Session))), slog.Int64("token", e.Token),
		slog.Duration("duration", e.Duration), slog.Any("error", e.Err))
}

type nobody struct{}

func (nobody) Observe(Event) {}

// observe tells the observer, if there is one.
func (c *Client) observe(e Event) {
	if c.observer != (nobody{}) {
		if first := c.events.post(func() { c.observer.Observe(e) }, 0); first {
			c.log.Warn("observer is too slow: events are left out")
		}
	}
}

// setState tells the listeners of a new state. The caller holds mu.
func (c *Client) setState(state State) {
	if state == c.state || c.state == Closed {
		return
	}
	c.state = state
	if len(c.listeners) > 0 {
		c.events.post(func() {
			for _, f := range c.listeners {
				f(state)
			}
		}, state)
	}
}

// A dispatcher calls what is posted to it, one after the other, in a goroutine that lives only while there is
// something to call. It is safe for concurrent use.
type dispatcher struct {
	mu      sync.Mutex // protects what follows
	queue   []call
	dropped bool // an event, since the queue was last empty
	running bool
	calling bool
	idle    chan struct{} // closed when running ends
}

// A call tells of a state, or of something else if state is zero.
type call struct {
	f     func()
	state State
}

// maxCalls is how many calls may be due before some are left out, so that one that blocks costs only so much memory.
const maxCalls = 1000

// post has f called. If too many calls are due it leaves out events, and of the states those that undo each other; it
// reports whether an event is the first that it leaves out for a while.
func (d *dispatcher) post(f func(), state State) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxCalls {
		if state == 0 {
			first, d.dropped = !d.dropped, true
			return first
		}
		d.foldStates(state)
		if d.queue[len(d.queue)-1].state == state {
			return false
		}
	}
	d.queue = append(d.queue, call{f, state})
	if !d.running {
		d.running, d.idle = true, make(chan struct{})
		go d.run()
	}
	return false
}

// foldStates removes the states behind the last one that is the same as state: connections that came and went, and were
// not told of yet. A loss always stays. The caller holds mu.
func (d *dispatcher) foldStates(state State) {
	for i := len(d.queue) - 1; i >= maxCalls-1 && d.queue[i].state != 0; i-- {
		if d.queue[i].state == state {
			clear(d.queue[i+1:])
			d.queue = d.queue[:i+1]
			return
		}
		if d.queue[i].state == Lost {
			return
		}
	}
}

func (d *dispatcher) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) > 0 {
		next := d.queue[0]
		d.queue[0] = call{}
		d.queue = d.queue[1:]
		d.calling = true
		d.mu.Unlock()
		next.f()
		d.mu.Lock()
		d.calling = false
	}
	d.running, d.dropped = false, false
	close(d.idle)
}

// drain blocks until everything was called or ctx ends. It does not wait for a call that is under way, because that
// may be the caller's own.
func (d *dispatcher) drain(ctx context.Context) {
	d.mu.Lock()
	wait, idle := d.running && !d.calling, d.idle
	d.mu.Unlock()
	if wait {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}
