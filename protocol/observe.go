package protocol

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A State is the state of a client's session: see [WithStateListener].
type State int

// The states of a client.
const (
	Connected State = iota + 1 // there is a session, and a connection
	Suspended                  // the connection is gone; the session is not, and can still be trusted
	Lost                       // the session is over, and with it all that was held
	Closed                     // the client was closed; no state comes after this one
)

// String returns the state in lower case, as in "connected".
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

// An Observer is told of events, for metrics and traces. Give it to [WithObserver].
//
// Observe is called for one event at a time, in order, from a goroutine of the client's own. It may
// call the client, [Client.Close] included. While it blocks, state listeners wait, too. An observer
// misses the events that come while 1,000 calls are due already. The logger then gets a warning.
type Observer interface {
	Observe(Event)
}

// An Event is what an [Observer] is told of.
type Event struct {
	Kind     EventKind
	Time     time.Time       // when it happened, which is before Observe is called
	Context  context.Context // the caller's, for its values: it may have ended; never nil
	Recipe   string          // "lock", "election"; empty for the events of a client
	Path     string          // as it was given to the recipe
	Mode     string          // "read" or "write" in package rwlock, the verb in package queue, or empty
	Session  int64           // the session in which it happened, or 0
	Token    int64           // of the hold that began or ended, or 0
	Count    int             // of entries, for the events of queues; of attempts, for EventConnecting
	Duration time.Duration   // of the wait or the hold that has ended; of the pause before a retry
	Err      error           // why a wait failed, a hold was lost or a request is repeated
}

// An EventKind is the kind of an [Event].
type EventKind int

// The kinds of events. Those from EventOffered to EventDeadLettered are of queues.
const (
	EventAcquired     EventKind = iota + 1 // a wait is over; Err is nil if it succeeded
	EventReleased                          // a hold was given back
	EventLost                              // a hold was lost
	EventRetried                           // a request did not succeed and will be tried again
	EventOffered                           // entries were appended
	EventTaken                             // entries were removed by Take, Poll or PollN
	EventRedelivered                       // an item is delivered that was delivered before
	EventCollided                          // another client was faster, and the request is repeated
	EventDeadLettered                      // an item went to the dead letters
	EventWaiting                           // a wait begins; one EventAcquired follows
	EventConnecting                        // for this Duration there has been no connection; Err says why
)

// String returns the kind in lower case, as in "acquired".
func (k EventKind) String() string {
	switch k {
	case EventAcquired:
		return "acquired"
	case EventReleased:
		return "released"
	case EventLost:
		return "lost"
	case EventRetried:
		return "retried"
	case EventOffered:
		return "offered"
	case EventTaken:
		return "taken"
	case EventRedelivered:
		return "redelivered"
	case EventCollided:
		return "collided"
	case EventDeadLettered:
		return "dead-lettered"
	case EventWaiting:
		return "waiting"
	case EventConnecting:
		return "connecting"
	}
	return "unknown"
}

// LogObserver returns an observer that logs each event to l. Retries, collisions and the beginnings
// of waits have level debug. Losses, dead letters and missing connections are warnings. All others
// have level info. It is safe for concurrent use.
func LogObserver(l *slog.Logger) Observer { return logObserver{l} }

type logObserver struct{ log *slog.Logger }

func (o logObserver) Observe(e Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case EventRetried, EventCollided, EventWaiting:
		level = slog.LevelDebug
	case EventLost, EventDeadLettered, EventConnecting:
		level = slog.LevelWarn
	}

	o.log.LogAttrs(context.Background(), level, e.Kind.String(),
		slog.String("recipe", e.Recipe), slog.String("path", e.Path),
		slog.String("session", fmt.Sprintf("%#x", uint64(e.Session))), slog.Int64("token", e.Token),
		slog.Int("count", e.Count), slog.Duration("duration", e.Duration), slog.Any("error", e.Err))
}

// noObserver is the observer of a client that was given none.
type noObserver struct{}

func (noObserver) Observe(Event) {}

// observe posts an event to the observer, if there is one.
func (c *Client) observe(e Event) {
	if c.observer == (noObserver{}) {
		return
	}
	e.Time = time.Now()
	if e.Context == nil {
		e.Context = context.Background()
	}
	if first := c.events.post(func() { c.observer.Observe(e) }, 0); first {
		c.log.Warn("observer is too slow: events are left out")
	}
}

// setState posts a new state to the listeners. The caller holds mu.
func (c *Client) setState(state State) {
	if state == c.state || c.state == Closed {
		return
	}
	c.state = state
	if len(c.listeners) == 0 {
		return
	}
	c.events.post(func() {
		for _, f := range c.listeners {
			f(state)
		}
	}, state)
}

// A dispatcher calls the functions that are posted to it, one after the other, in a goroutine that
// lives only while there is a function to call. It is safe for concurrent use.
type dispatcher struct {
	mu      sync.Mutex // protects what follows
	queue   []call
	omitted bool // an event was left out since the queue was last empty
	running bool
	calling bool
	idle    chan struct{} // closed when running becomes false
}

// A call is a function that reports a state, or an event if state is zero.
type call struct {
	f     func()
	state State
}

// maxCalls is how many calls may be due before some are left out. It bounds the memory that a call
// that blocks costs.
const maxCalls = 1000

// post queues a call. If too many calls are due, post leaves out events, and states that cancel
// each other out. It reports whether an event is the first to be left out for a while.
func (d *dispatcher) post(f func(), state State) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxCalls {
		if state == 0 {
			first, d.omitted = !d.omitted, true
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

// foldStates removes the states behind the last one that is the same as state. These are
// connections that came and went before the listeners were told of them. A loss always stays. The
// caller holds mu.
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
	d.running, d.omitted = false, false
	close(d.idle)
}

// drain blocks until the queue is empty or ctx ends. It does not wait for a call that is under way,
// as that may be the caller's own.
func (d *dispatcher) drain(ctx context.Context) {
	d.mu.Lock()
	wait, idle := d.running && !d.calling, d.idle
	d.mu.Unlock()
	if !wait {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
