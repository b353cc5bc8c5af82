package protocol

import (
	"context"
	"errors"
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
//
// Each [EventWaiting] is followed by one [EventAcquired], which has the same Context, Recipe, Path
// and Mode. So the waits under way are those without their EventAcquired. An EventAcquired with a
// Token begins a hold, which one [EventReleased] or [EventLost] with that Token ends. A hold that
// is lost at once may end before its EventAcquired. One that comes when ctx has ended is given
// back, and has an EventReleased alone.
//
// No event has credentials or data in it.
type Observer interface {
	Observe(Event)
}

// An Event is what an [Observer] is told of. A field that does not apply is zero, but for Time and
// Context.
//
// The modes are "read" and "write" in package rwlock, "take", "reserve", "offer" and "drain" in
// package queue, "await" for Await in package group, and "leave" for Leave in package
// doublebarrier.
type Event struct {
	Kind EventKind

	// Time is when it happened. Observe may be called later.
	Time time.Time

	// Context is that of the caller, for its values: it may have ended. Of EventReleased it is that
	// of the call which gave back, of EventLost that of the call which acquired. What serves
	// several callers together, or none, has a context without values. It is never nil.
	Context context.Context

	Recipe   string        // "lock", "election"; empty for the events of a client, and for your own requests
	Path     string        // as it was given to the recipe
	Mode     string        // the way in which the recipe is used, if it has several
	Session  int64         // the session in which it happened, if it is known
	Token    int64         // of the hold that begins, ends or is settled
	Count    int           // of entries, for the events of queues; of failed attempts, for EventConnecting
	Duration time.Duration // of the wait, the hold or the outage; of the pause before a retry
	Err      error         // what the caller got, why a hold was lost, or why a request is repeated
}

// An EventKind is the kind of an [Event].
type EventKind int

const (
	// EventAcquired says that a wait is over. Err is nil if it succeeded. A wait that acquires
	// nothing, such as that at a barrier, has no Token.
	EventAcquired EventKind = iota + 1

	// EventReleased says that the holder has given something back. The deletion of its node begins.
	EventReleased

	// EventLost says that something was lost, and Err says why. Duration is how long it was held.
	EventLost

	// EventRetried says that a request has failed with Err, and is tried again after Duration.
	EventRetried

	// EventOffered says that Count entries were appended to a queue, in one transaction.
	EventOffered

	// EventTaken says that Take, Poll or PollN removed Count entries, in one transaction.
	EventTaken

	// EventRedelivered says that an item is about to be delivered that was delivered before.
	EventRedelivered

	// EventCollided says that another client was faster, and that the request for Count entries is
	// repeated.
	EventCollided

	// EventDeadLettered says that an item went to the dead letters.
	EventDeadLettered

	// EventWaiting says that a call begins to wait, before it asks the servers to be granted
	// something. One EventAcquired follows, also if the call need not wait, fails, or its ctx ends.
	// There is none for a call that is refused because of its arguments.
	EventWaiting

	// EventConnecting says that there has been no connection for Duration, and Err says why. It
	// comes after one second, and then at intervals that double up to a minute. It goes to the
	// observer that was given to [Connect], and not to those of [Client.With].
	EventConnecting

	// EventAcknowledged says that the servers have removed an item which its holder had
	// acknowledged. It follows the item's EventReleased.
	EventAcknowledged

	// EventReturned says that the servers have an item again which its holder had given back with
	// Nack, in its place or at the tail. It follows the item's EventReleased.
	EventReturned
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
	case EventAcknowledged:
		return "acknowledged"
	case EventReturned:
		return "returned"
	}
	return "unknown"
}

// LogObserver returns an observer that logs each event to l, with the event's Context. What does
// not apply is left out.
//
// Retries, collisions, the beginnings of waits, and calls that do not wait and would have to, have
// level debug. Losses, dead letters and missing connections are warnings. All others have level
// info. It is safe for concurrent use.
func LogObserver(l *slog.Logger) Observer { return logObserver{l} }

type logObserver struct{ log *slog.Logger }

func (o logObserver) Observe(e Event) {
	ctx := e.Context
	if ctx == nil { // an event of the user's own
		ctx = context.Background()
	}
	level, message := slog.LevelInfo, e.Kind.String()
	var busy interface{ Busy() bool }
	switch {
	case e.Kind == EventRetried, e.Kind == EventCollided, e.Kind == EventWaiting:
		level = slog.LevelDebug
	case e.Kind == EventLost, e.Kind == EventDeadLettered, e.Kind == EventConnecting:
		level = slog.LevelWarn
	case e.Kind == EventAcquired && e.Err != nil:
		message = "not acquired"
		if errors.As(e.Err, &busy) {
			level = slog.LevelDebug
		}
	}
	if !o.log.Enabled(ctx, level) {
		return
	}

	var attrs []slog.Attr
	add := func(applies bool, a slog.Attr) {
		if applies {
			attrs = append(attrs, a)
		}
	}
	add(e.Recipe != "", slog.String("recipe", e.Recipe))
	add(e.Path != "", slog.String("path", e.Path))
	add(e.Mode != "", slog.String("mode", e.Mode))
	add(e.Session != 0, slog.Any("session", hexID(e.Session)))
	add(e.Token != 0, slog.Int64("token", e.Token))
	add(e.Count != 0, slog.Int("count", e.Count))
	add(e.Duration != 0, slog.Duration("duration", e.Duration))
	add(e.Err != nil, slog.Any("error", e.Err))
	o.log.LogAttrs(ctx, level, message, attrs...)
}

// noObserver is the observer of a client that was given none.
type noObserver struct{}

func (noObserver) Observe(Event) {}

// observed reports whether there is an observer.
func (c *Client) observed() bool { return c.observer != (noObserver{}) }

// observe posts an event to the observer, if there is one.
func (c *Client) observe(e Event) {
	if !c.observed() {
		return
	}
	event := e // e itself would be allocated without an observer, too
	event.Time = time.Now()
	if event.Context == nil {
		event.Context = context.Background()
	}
	if first := c.events.post(func() { c.observer.Observe(event) }, 0); first {
		c.log.Warn("observer is too slow: events are left out")
	}
}

// setState posts a new state to the listeners. The caller holds mu.
func (c *Client) setState(state State) {
	if state == c.state || c.state == Closed {
		return
	}
	c.state = state
	switch state {
	case Connected:
		c.endOutage()
	case Suspended, Lost:
		c.beginOutage()
	}
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
