package protocol

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// An Observer receives events for metrics and traces. No event has credentials or data in it.
//
// Observe is called in order, for one event at a time. It can block and can call the client (even
// [Client.Close]). An observer that is a thousand calls behind misses events. Then the logger gets
// a warning.
//
// Each [EventWaiting] is followed by one [EventAcquired] with the same Context, Recipe, Path and
// Mode. An EventAcquired with a Token begins a hold, and an [EventReleased] or [EventLost] with
// that Token ends it. A hold that is lost at once can end before its EventAcquired. A hold has only
// an EventReleased if it comes after ctx has ended, or if its call fails all the same (as a run of
// package once does under a full quota).
type Observer interface {
	Observe(Event)
}

// An Event is something that has happened. A field that does not apply is zero (except Time and
// Context).
type Event struct {
	Kind EventKind

	// Time is when it happened. Observe may be called later.
	Time time.Time

	// Context has the values of the caller's context (which can have ended). An EventReleased has
	// the context of the call that gave back. An EventLost has the context of the call that
	// acquired. If there are several callers or none, it has no values. It is never nil.
	Context context.Context

	Recipe   string        // such as "lock"; empty for the events of a client and for your own requests
	Path     string        // as it was given to the recipe
	Mode     string        // such as "read" or "write", if the recipe has several
	Session  int64         // the session in which it happened (if it is known)
	Token    int64         // the token of the hold that begins or ends
	Count    int           // the number of entries or (for EventConnecting) of failed attempts
	Duration time.Duration // how long the wait, the hold or the outage was; the pause before a retry
	Err      error         // why the call failed, a hold was lost or a request is repeated
}

// An EventKind is the kind of an [Event].
type EventKind int

const (
	// EventAcquired says that a wait has ended. Err is nil if it succeeded. A wait that acquires
	// nothing (at a barrier, say) has no Token.
	EventAcquired EventKind = iota + 1

	// EventReleased says that the holder has given something back. Its node is about to be deleted.
	EventReleased

	// EventLost says that something was lost after Duration. Err says why.
	EventLost

	// EventRetried says that a request has failed with Err and is tried again after Duration.
	EventRetried

	// EventOffered says that one transaction has appended Count entries to a queue.
	EventOffered

	// EventTaken says that one transaction of Take, Poll or PollN has removed Count entries.
	EventTaken

	// EventRedelivered says that an item is about to be delivered once more.
	EventRedelivered

	// EventCollided says that another client was faster: the request for Count entries is repeated.
	EventCollided

	// EventDeadLettered says that an item went to the dead letters.
	EventDeadLettered

	// EventWaiting says that a call begins to wait (before its first request). One EventAcquired
	// follows even if the call fails or need not wait. A call that is refused because of its
	// arguments has no EventWaiting.
	EventWaiting

	// EventConnecting says that there has been no connection for Duration. Err says why. It comes
	// after a second and then at growing intervals (a minute at most). Only the observer that was
	// given to [Connect] gets it.
	EventConnecting

	// EventAcknowledged says that an acknowledged item is removed. It follows the item's
	// EventReleased.
	EventAcknowledged

	// EventReturned says that an item is in the queue again after Nack. It follows the item's
	// EventReleased.
	EventReturned
)

var kinds = [...]string{
	EventAcquired:     "acquired",
	EventReleased:     "released",
	EventLost:         "lost",
	EventRetried:      "retried",
	EventOffered:      "offered",
	EventTaken:        "taken",
	EventRedelivered:  "redelivered",
	EventCollided:     "collided",
	EventDeadLettered: "dead-lettered",
	EventWaiting:      "waiting",
	EventConnecting:   "connecting",
	EventAcknowledged: "acknowledged",
	EventReturned:     "returned",
}

// String returns the kind in lower case, as in "acquired".
func (k EventKind) String() string {
	if k < EventAcquired || k > EventReturned {
		return "unknown"
	}
	return kinds[k]
}

// LogObserver returns an observer that logs each event to l. Losses, dead letters and missing
// connections are warnings. Everything else has level info or debug. The observer is safe for
// concurrent use.
func LogObserver(l *slog.Logger) Observer { return logObserver{l} }

type logObserver struct{ log *slog.Logger }

func (o logObserver) Observe(e Event) {
	ctx := e.Context
	if ctx == nil { // the user has made this event
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
