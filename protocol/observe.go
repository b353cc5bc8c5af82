package protocol

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// An Observer receives events for metrics and traces. Give it to [WithObserver].
//
// Observe is called for one event at a time, in order, from a goroutine of the client's own. It may
// block, and may call the client (even [Client.Close]). If 1,000 calls are due, an observer misses
// the next events. The logger then gets a warning, and the number of missed events once Observe
// returns. If Observe panics, the logger gets a warning, too.
//
// Each [EventWaiting] is followed by one [EventAcquired], which has the same Context, Recipe, Path
// and Mode. So a wait goes on until its EventAcquired. An EventAcquired with a Token begins a hold,
// and an [EventReleased] or [EventLost] with that Token ends it. A hold that is lost at once can
// end before its EventAcquired. A hold that comes after ctx has ended is given back at once, and
// has only an EventReleased.
//
// No event has credentials or data in it.
type Observer interface {
	Observe(Event)
}

// An Event is something that has happened, for an [Observer]. A field that does not apply is zero
// (except Time and Context).
//
// The modes are "read" and "write" in package rwlock, "take", "reserve", "offer" and "drain" in
// package queue, "await" for Await in package group, and "leave" for Leave in package
// doublebarrier.
type Event struct {
	Kind EventKind

	// Time is when it happened. Observe may be called later.
	Time time.Time

	// Context is the caller's, for its values: it may have ended. An EventReleased has the context
	// of the call that gave back, and an EventLost the context of the call that acquired. An event
	// of several callers together, or of none, has a context without values. It is never nil.
	Context context.Context

	Recipe   string        // "lock", "election"; empty for the events of a client, and for your own requests
	Path     string        // as it was given to the recipe
	Mode     string        // the way in which the recipe is used, if it has several
	Session  int64         // the session in which it happened, if it is known
	Token    int64         // of the hold that begins, ends or is settled
	Count    int           // of entries, for the events of queues; of failed attempts, for EventConnecting
	Duration time.Duration // of the wait, the hold or the outage; of the pause before a retry
	Err      error         // the caller's error, why a hold was lost, or why a request is repeated
}

// An EventKind is the kind of an [Event].
type EventKind int

const (
	// EventAcquired says that a wait has ended. Err is nil if it succeeded. A wait that acquires
	// nothing (at a barrier, say) has no Token.
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
	// observer that was given to [Connect], not to an observer of [Client.With].
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
	add(e.Session != 0, slog.Any("session", layout.SessionID(e.Session)))
	add(e.Token != 0, slog.Int64("token", e.Token))
	add(e.Count != 0, slog.Int("count", e.Count))
	add(e.Duration != 0, slog.Duration("duration", e.Duration))
	add(e.Err != nil, slog.Any("error", e.Err))
	o.log.LogAttrs(ctx, level, message, attrs...)
}
