// Package batch serves the requests of many goroutines together (one batch at a time).
//
// A caller hands in a request with [Batcher.Do], which blocks until the request is answered. One
// goroutine serves the requests in order of arrival. The first request starts it, and it ends when
// no request is left. Requests that arrive during a batch wait for the next batch:
//
//	func (p *printer) serve(life context.Context) {
//		for range p.jobs.Rounds(nil) {
//			jobs := p.jobs.Collect(func(j *job, room *batch.Room) bool {
//				return room.Take(1, len(j.text))
//			})
//			p.jobs.Answer(p.print(life, jobs), jobs...)
//		}
//	}
//
// If a request's ctx ends before the request is in a batch, the request is answered at once and
// never sent. If the request is in a batch, it gets the batch's outcome if that comes within a
// moment of grace. Once the goroutine's host has ended, all requests that are left get the host's
// error.
package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Grace is how long a caller whose ctx has ended waits for the outcome of a batch with its request.
const Grace = 50 * time.Millisecond

// A Request must be embedded by value in the type of a batcher's requests, and be used for only one
// call of [Batcher.Do].
type Request struct {
	ctx  context.Context
	done chan struct{} // closed once there is an answer

	// The batcher's mu protects these. err is valid once done is closed.
	sent     bool // in a batch without an outcome so far
	answered bool
	err      error
}

func (r *Request) request() *Request { return r }

// A Requester is a pointer to a struct that embeds a [Request].
type Requester interface{ request() *Request }

// A Host runs the goroutine of a batcher (a session does).
type Host interface {
	// Start runs work in a goroutine. Its context lasts as long as the host. If the host takes no
	// more work, Start returns an error.
	Start(work func(life context.Context)) error

	// Err returns nil while the host lasts, and then why it ended.
	Err() error
}

// A Batcher collects requests and has them served in batches. It is safe for concurrent use. Only
// the serving function may call Rounds, Collect and Return (one call of it runs at a time).
type Batcher[R Requester] struct {
	host    Host
	limits  Limits
	serve   func(life context.Context)
	abandon func(r R, cause error) error
	woken   chan struct{}
	running chan struct{} // the serving function holds it
	hurried time.Time     // until then the serving function doesn't gather

	mu       sync.Mutex // protects the fields below
	pending  []R        // in order of arrival
	answered int        // how many of these have an answer, since the last compact
	likely   int        // how many requests the next batch will probably find
	serving  bool
}

// New returns a batcher whose goroutine calls serve. serve must range over [Batcher.Rounds] until
// that ends.
//
// If a caller's ctx ends while a batch with its request is under way, abandon turns ctx's error
// into the caller's error. abandon is called while the batcher is locked.
func New[R Requester](
	host Host, limits Limits, serve func(life context.Context), abandon func(r R, cause error) error,
) *Batcher[R] {
	return &Batcher[R]{
		host: host, limits: limits, serve: serve, abandon: abandon,
		woken: make(chan struct{}, 1), running: make(chan struct{}, 1),
	}
}

// Do hands in a request. It blocks until the request is answered and returns the answer's error.
//
// If ctx ends first, Do returns an error that wraps ctx's error, and the request has no effect. But
// if the request is already in a batch, Do waits a moment ([Grace]) for the outcome. After that it
// returns abandon's error, and the request may have an effect.
//
// If the host has ended, or takes no more work, Do returns the host's error.
func (b *Batcher[R]) Do(ctx context.Context, r R) error {
	request := r.request()
	request.ctx, request.done = ctx, make(chan struct{})
	b.add(r)

	select {
	case <-request.done:
		return request.err
	case <-ctx.Done():
	}

	if b.withdraw(r) {
		return request.err
	}

	// The request is in a batch, so its outcome can come in a moment.
	timer := time.NewTimer(Grace)
	defer timer.Stop()

	select {
	case <-request.done:
	case <-timer.C:
		b.leave(r)
	}

	return request.err
}

// add appends a request. If there is no goroutine, it starts one.
func (b *Batcher[R]) add(r R) {
	b.mu.Lock()
	b.pending = append(b.pending, r)
	start := !b.serving
	b.serving = true // also while Start runs, so that no other call starts a goroutine
	b.mu.Unlock()

	if !start {
		b.Wake()
	} else if err := b.host.Start(b.run); err != nil {
		b.handBack(err)
	}
}

// run calls serve. (The last call can still have work after its last round, so they take turns.)
func (b *Batcher[R]) run(life context.Context) {
	b.running <- struct{}{}
	defer func() { <-b.running }()
	b.serve(life)
}

// withdraw answers a request that is in no batch. It reports whether the request has an answer.
func (b *Batcher[R]) withdraw(r R) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	request := r.request()
	switch {
	case request.answered:
		return true
	case request.sent:
		return false
	}

	// The serving function may wait with a batch for this request.
	b.end(Ended(request.ctx), r)
	b.Wake()
	return true
}

// leave answers a request, even a request in a batch.
func (b *Batcher[R]) leave(r R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	request := r.request()
	if request.answered {
		return
	}

	// A batch that was returned meanwhile has not sent the request.
	err := Ended(request.ctx)
	if request.sent {
		err = b.abandon(r, err)
	}
	b.end(err, r)
	b.Wake()
}

// end answers the requests that have no answer. The caller holds mu.
func (b *Batcher[R]) end(err error, requests ...R) {
	for _, r := range requests {
		b.answer(r.request(), err)
	}

	// Many calls can end together, so don't compact each time.
	if 2*b.answered > len(b.pending) {
		b.compact()
	}
}

// answer gives a request its answer, unless it has one. The caller holds mu.
func (b *Batcher[R]) answer(request *Request, err error) {
	if !request.answered {
		request.answered, request.err = true, err
		close(request.done)
		b.answered++
	}
}

// compact removes the requests that have an answer. The caller holds mu.
func (b *Batcher[R]) compact() {
	b.pending = slices.DeleteFunc(b.pending, func(r R) bool { return r.request().answered })
	b.answered = 0
}

// endExpired answers the requests whose ctx has ended, unless they are in a batch. It reports
// whether there were any. Afterwards no pending request has an answer. The caller holds mu.
func (b *Batcher[R]) endExpired() (ended bool) {
	for _, r := range b.pending {
		if request := r.request(); !request.sent && request.ctx.Err() != nil {
			b.answer(request, Ended(request.ctx))
			ended = true
		}
	}
	b.compact()
	return ended
}

// handBack answers all requests, because the goroutine has ended or couldn't be started.
func (b *Batcher[R]) handBack(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	// A clone, because end deletes from pending.
	b.end(err, slices.Clone(b.pending)...)
	b.serving = false
}

var errStopped = errors.New("no longer served")

// Rounds yields the pending requests (in order of arrival) again and again while there are any.
// Once the host has ended, Rounds answers them and ends. If the caller leaves the loop early, it
// answers them too.
//
// While nothing is pending, Rounds calls rest (unless it is nil). It ends once rest has reported
// that nothing is left to clean up. rest reports false when a request comes (see [Batcher.Idle]).
// That request can be gone before the next round, so only Rounds can decide whether to go on.
func (b *Batcher[R]) Rounds(rest func() (rested bool)) iter.Seq[[]R] {
	return func(yield func([]R) bool) {
		for rested := rest == nil; ; {
			if err := b.host.Err(); err != nil {
				b.handBack(err)
				return
			}

			b.gather()

			// Decide under the same lock whether this goroutine ends.
			b.mu.Lock()
			b.endExpired()
			pending := slices.Clone(b.pending)
			over := len(pending) == 0 && rested
			b.serving = !over
			if len(pending) > 0 {
				b.likely = 0
			}
			b.mu.Unlock()

			switch {
			case over:
				return
			case len(pending) == 0:
				rested = rest()
			case yield(pending):
				rested = rest == nil
			default:
				b.handBack(errStopped)
				return
			}
		}
	}
}

// Pending returns the requests that have no answer, in order of arrival.
func (b *Batcher[R]) Pending() []R {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endExpired() {
		b.Wake() // the callers find their answers
	}
	return slices.Clone(b.pending)
}

// Collect returns the next batch: the pending requests (in order of arrival) up to the first
// request that doesn't fit. fits takes room for a request and reports whether it got enough. If a
// request needs something else than room, fits can pass it over with [Room.Skip]. The batcher is
// locked while fits runs.
func (b *Batcher[R]) Collect(fits func(r R, room *Room) bool) (batch []R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endExpired() {
		b.Wake()
	}

	room := &Room{limits: b.limits}
	for _, r := range b.pending {
		if room.skipped = false; !fits(r, room) {
			if room.skipped {
				continue
			}
			break // a smaller request that fits must not overtake r
		}

		r.request().sent = true
		batch = append(batch, r)
	}

	return batch
}

// Return notes that a batch wasn't executed. Its requests keep their places for later batches.
// Return returns the requests whose callers have left.
func (b *Batcher[R]) Return(batch []R) (left []R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		r.request().sent = false
		if r.request().answered {
			left = append(left, r)
		}
	}
	return left
}

// Answer gives requests their outcome. It returns the requests whose callers have left and get no
// outcome.
func (b *Batcher[R]) Answer(err error, requests ...R) (left []R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range requests {
		if r.request().answered {
			left = append(left, r)
		}
	}
	b.end(err, requests...)
	b.likely = len(requests) + len(b.pending) - b.answered
	return left
}

// gather lets callers run that were just answered. Most of them call again at once, and shall go
// with the next batch instead of the one after it. It costs little time, so where goroutines wait
// long for a processor it seldom gathers.
func (b *Batcher[R]) gather() {
	began := time.Now()
	for n := 0; n < yields && began.After(b.hurried) && b.missing(); n++ {
		runtime.Gosched()
	}
	if took := time.Since(began); took > time.Millisecond {
		b.hurried = time.Now().Add(20 * took)
	}
}

// yields is how often a batcher lets other goroutines run before a batch, at most.
const yields = 5

// missing reports whether some of the likely requests have not come.
func (b *Batcher[R]) missing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)-b.answered < b.likely
}

// Idle blocks until a request is pending, and returns false. If d passes first (or life ends), it
// returns true.
func (b *Batcher[R]) Idle(life context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for len(b.Pending()) == 0 {
		select {
		case <-b.woken:
		case <-timer.C:
			return true
		case <-life.Done():
			return true
		}
	}
	return false
}

// Wake makes Woken ready.
func (b *Batcher[R]) Wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// Woken returns a channel for a serving function that can't answer the pending requests yet. It is
// ready after a request has come or gone, and after a call of Wake.
func (b *Batcher[R]) Woken() <-chan struct{} { return b.woken }

// Ended returns why ctx has ended, as an error that wraps ctx's error.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %v", ctx.Err(), cause)
	}
	return ctx.Err()
}
