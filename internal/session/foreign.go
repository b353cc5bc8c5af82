package session

import (
	"context"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// maxCalls is how many calls can be due to one callee before some are left out. It bounds the
// memory that a blocked call costs.
const maxCalls = 1000

// A Callee is a logger, an observer or a state listener: the user's code, which may block, panic,
// or call runtime.Goexit.
type Callee struct {
	key  any                               // callees with the same key share a queue
	what string                            // "observer"
	say  func(message string, args ...any) // logs a warning (a logger writes it)
	log  bool                              // the callee is a logger
}

// CalleeOf returns a callee for v. If v can be compared, it is the key.
func CalleeOf(v any, what string, say func(string, ...any)) *Callee {
	c := &Callee{key: v, what: what, say: say}
	if !reflect.ValueOf(v).Comparable() {
		c.key = c
	}
	return c
}

// A Foreign calls callees. Each callee has a queue, and a goroutine that lives only while the queue
// is not empty. So no callee delays another callee, or the code that posts a call. It is safe for
// concurrent use.
type Foreign struct {
	mu     sync.Mutex     // protects queues; nothing blocks while it is held
	queues map[any]*calls // only queues that aren't empty
}

// A listener is a state listener.
type listener struct {
	f func(State)
	*Callee
}

// calls are the calls due to one callee, the oldest first. The mu of Foreign protects them.
type calls struct {
	to      *Callee
	due     []call
	omitted int  // calls left out since the queue was last empty
	failed  bool // since then a call has panicked or ended its goroutine
	calling bool
	idle    chan struct{} // closed when the queue is empty
}

// A call is a function. If it reports a state, it says which.
type call struct {
	f     func()
	state State
}

// Post queues a call, without blocking. If too many calls are due, it leaves out the call, or two
// states that cancel each other out.
func (f *Foreign) Post(to *Callee, do func(), state State) {
	f.mu.Lock()
	q := f.queues[to.key]
	if q == nil {
		q = &calls{to: to, idle: make(chan struct{})}
		if f.queues == nil {
			f.queues = make(map[any]*calls)
		}

		f.queues[to.key] = q
		go f.run(q)
	}

	first := q.add(call{do, state})
	f.mu.Unlock()
	// A logger can't be warned about itself.
	if first && !to.log {
		to.say(to.what + " is too slow: events are left out")
	}
}

// add queues a call. It reports whether the call is the first to be left out for a while.
func (q *calls) add(next call) (first bool) {
	n := len(q.due)
	switch {
	case n < maxCalls:
	case next.state == 0:
		q.omitted++
		return q.omitted == 1
	case n > maxCalls && q.due[n-2].state == next.state && q.due[n-1].state != Lost:
		// A connection came and went before the listener was called. A loss always stays.
		q.due = q.due[:n-1]
		return false
	}

	q.due = append(q.due, next)
	return false
}

// run makes the calls until none is due.
func (f *Foreign) run(q *calls) {
	done := false
	defer func() {
		if !done { // a call has panicked, or ended this goroutine
			f.goOn(q, recover())
		}
	}()

	for next := f.next(q); next != nil; next = f.next(q) {
		next()
	}

	done = true
}

// next returns the next call, or nil if none is due. The last call says how many were left out.
func (f *Foreign) next(q *calls) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	q.calling = len(q.due) > 0
	if q.calling {
		next := q.due[0]
		// The queue must not keep the call's values alive.
		q.due[0] = call{}
		q.due = q.due[1:]
		return next.f
	}
	if n := q.omitted; n > 0 {
		q.omitted = 0
		return func() { q.to.say(q.to.what+" was too slow: events were left out", "count", n) }
	}

	delete(f.queues, q.to.key)
	close(q.idle)
	return nil
}

// goOn makes the remaining calls in another goroutine, after a call that didn't return.
func (f *Foreign) goOn(q *calls, panicked any) {
	f.mu.Lock()
	first := !q.failed
	q.failed = true
	if q.to.log {
		q.omitted += min(1, len(q.due)) // the logger itself gets the number, if it takes anything
	}

	f.mu.Unlock()
	go f.run(q)
	if first && !q.to.log {
		q.to.say(pace.Foreign(q.to.what, panicked).Error(), "stack", string(debug.Stack()))
	}
}

// drain blocks until the queues are empty or ctx ends. It doesn't wait for a call of an observer or
// a listener that is under way because that call can be the caller.
func (f *Foreign) drain(ctx context.Context) {
	for _, loggers := range []bool{false, true} { // loggers last, because the others log
		f.mu.Lock()
		var wait []chan struct{}
		for _, q := range f.queues {
			if q.to.log == loggers && (loggers || !q.calling) {
				wait = append(wait, q.idle)
			}
		}

		f.mu.Unlock()

		for _, idle := range wait {
			select {
			case <-idle:
			case <-ctx.Done():
				return
			}
		}
	}
}

// A queuedLog is a handler that queues records for the user's handler.
type queuedLog struct {
	queues  *Foreign
	to      *Callee
	handler func() slog.Handler
	least   slog.Level
	debug   *atomic.Bool // the user's handler took debug messages when it got the last record
}

// Queued returns a logger that never blocks and passes its records to l.
func (f *Foreign) Queued(l *slog.Logger) *slog.Logger {
	h := queuedLog{queues: f, handler: l.Handler, debug: new(atomic.Bool)}
	h.debug.Store(l.Enabled(context.Background(), slog.LevelDebug))
	h.to = &Callee{key: l, what: "logger", say: l.Warn, log: true}
	return slog.New(h)
}

// defaultLog returns a logger that passes warnings and errors to the default logger that slog has
// at that time.
func (f *Foreign) defaultLog() *slog.Logger {
	h := queuedLog{
		queues: f, handler: func() slog.Handler { return slog.Default().Handler() }, least: slog.LevelWarn, debug: new(atomic.Bool),
	}
	h.to = &Callee{key: h.debug, what: "logger", say: slog.Warn, log: true}
	return slog.New(h)
}

func (h queuedLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.least || h.least == slog.LevelInfo && h.debug.Load()
}

func (h queuedLog) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	h.queues.Post(h.to, func() {
		to := h.handler()
		if to.Enabled(ctx, r.Level) {
			to.Handle(ctx, r)
		}

		h.debug.Store(to.Enabled(context.Background(), slog.LevelDebug))
	}, 0)
	return nil
}

func (h queuedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	inner := h.handler
	h.handler = func() slog.Handler { return inner().WithAttrs(attrs) }
	return h
}

func (h queuedLog) WithGroup(name string) slog.Handler {
	inner := h.handler
	h.handler = func() slog.Handler { return inner().WithGroup(name) }
	return h
}
