package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Items yields one item after the other, as [Queue.Reserve] returns them. It ends when the loop
// does or ctx is cancelled. If Reserve fails (or ctx's deadline passes), Items yields the error
// last.
//
// Items reserves nothing ahead. When the loop ends, its items stay reserved until you settle them
// or the session ends. ([Queue.Consume] settles its items itself.)
func (q *Queue) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			it, err := q.Reserve(ctx)
			if err != nil && orderly(ctx, err) == nil || !yield(it, err) || err != nil {
				return
			}
		}
	}
}

// orderly returns nil if err is the end of a verb by a cancelled ctx, and err otherwise.
func orderly(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && !errors.Is(err, protocol.ErrClosed) && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// A ConsumeOption configures a call of [Queue.Consume]. A nil option does nothing.
type ConsumeOption func(*workforce) error

// WithGrace lets fn finish its work when ctx ends: fn's context ends d later. By default it ends at
// once.
func WithGrace(d time.Duration) ConsumeOption {
	return func(w *workforce) error {
		if d < 0 {
			return fmt.Errorf("a grace of %v is negative", d)
		}
		w.grace = d
		return nil
	}
}

// WithPanics makes Consume panic with a [PanicError] if fn panics. Before that the item is given
// back and all workers stop.
func WithPanics() ConsumeOption {
	return func(w *workforce) error {
		w.panics = true
		return nil
	}
}

// Consume calls fn for one item after the other, in the given number of workers, until ctx ends.
// Each worker reserves an item, calls fn and settles the item. So at most one item per worker is
// reserved. The context of fn is [Item.Context] of ctx: it is cancelled when the item is lost, and
// when ctx ends (or [WithGrace] later).
//
//   - If fn returns nil, the item is acknowledged.
//   - If fn returns an error, the attempt has failed. The item is given back with [After] and
//     [Because]. The delay grows with the attempt from 100 milliseconds to a minute (see
//     [WithRetryDelay]). [WithDeadLetter] limits the attempts. The logger gets a warning, the
//     observer gets the error and [Info] shows the reason.
//   - If fn returns an error after its context has ended with ctx, the item is unfinished. It
//     goes back to its place at once. That doesn't count as an attempt.
//   - If fn panics, the attempt has failed and its reason contains the stack. The worker goes on
//     (but see [WithPanics]).
//   - If the item is lost meanwhile, it is not acknowledged and the worker goes on.
//   - fn can settle the item itself.
//
// Settling does not depend on ctx. If an item can't be given back with its delay, the logger gets a
// warning and the worker pauses for the delay.
//
// Consume blocks until all workers have ended. When ctx ends, no worker reserves any more. Consume
// waits for the calls of fn and settles their items. It returns nil if ctx was cancelled, and ctx's
// error if its deadline has passed. If Reserve fails (or Ack for another reason than a loss), all
// workers end in the same way and Consume returns that error. If a session is lost, the workers go
// on in the next session.
//
// If workers is less than 1, fn is nil or an option is bad, Consume returns an error before it
// sends anything. Several goroutines call fn at the same time. Several calls of Consume can be
// under way.
func (q *Queue) Consume(
	ctx context.Context, workers int, fn func(ctx context.Context, it *Item) error, opts ...ConsumeOption,
) error {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	w := &workforce{queue: q, ctx: ctx, fn: fn}
	call := q.recipe.Mode("consume")
	recipe.Configure(call, w, opts)
	if workers < 1 {
		call.Reject(fmt.Errorf("%d workers: at least one is needed", workers))
	}
	if fn == nil {
		call.Reject(errors.New("nil function"))
	}
	if err := call.ValidateCall(ctx, nil); err != nil {
		return err
	}

	w.working = ctx
	if w.grace > 0 {
		working, stop := recipe.Linger(ctx, w.grace)
		w.working = working
		defer stop()
	}

	// Workers end with ctx, or when one of them fails.
	w.run, w.stop = context.WithCancel(ctx)
	defer w.stop()
	for range workers {
		w.wait.Go(w.work)
	}

	w.wait.Wait()

	switch {
	case w.panicked == nil:
		return w.err
	case w.panicked.Value == nil:
		// fn has ended its goroutine, so its caller's goroutine must end too.
		runtime.Goexit()
	}

	panic(w.panicked)
}

// A PanicError is a panic of the function that [Queue.Consume] called.
type PanicError struct {
	Value any    // the value of the panic, or nil if fn ended its goroutine
	Stack string // of the goroutine that fn ran in
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// A workforce is a call of Consume.
type workforce struct {
	queue   *Queue
	ctx     context.Context
	fn      func(context.Context, *Item) error
	grace   time.Duration
	panics  bool
	working context.Context // the context of fn
	wait    sync.WaitGroup
	run     context.Context // ends when no more items may be reserved
	stop    context.CancelFunc

	mu       sync.Mutex  // protects the fields below
	err      error       // the first error, which ended the work
	panicked *PanicError // the first panic that ended the work
}

// end makes all workers end, because of err or a panic.
func (w *workforce) end(err error, panicked *PanicError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.panicked = cmp.Or(w.err, err), cmp.Or(w.panicked, panicked)
	w.stop()
}

// work runs one worker.
func (w *workforce) work() {
	for {
		it, err := w.queue.Reserve(w.run)
		if err != nil {
			w.end(orderly(w.ctx, err), nil)
			return
		}

		w.serve(it)
	}
}

// serve calls fn for an item and settles the item.
func (w *workforce) serve(it *Item) {
	ctx, cancel := it.Context(w.working)
	err := errors.New("the function has ended its goroutine")
	exit := &PanicError{} // nil once fn has returned
	defer func() {
		cancel()
		if value := recover(); value != nil {
			exit = &PanicError{value, string(debug.Stack())}
			err = exit
		}

		w.settle(it, err, exit)
	}()

	err = w.fn(ctx, it)
	exit = nil
}

// settle settles an item after fn has returned err. If fn did not return, exit says how it ended.
func (w *workforce) settle(it *Item, err error, exit *PanicError) {
	switch {
	case exit != nil:
		if w.panics || exit.Value == nil {
			w.end(nil, exit)
		}

		w.giveBack(it, err)
	case err == nil:
		if err := it.Ack(context.WithoutCancel(w.ctx)); err != nil && !over(err) {
			w.end(err, nil)
		}
	case w.working.Err() != nil:
		w.unfinished(it)
	default:
		w.giveBack(it, err)
	}
}

// unfinished gives back an item without a failed attempt.
func (w *workforce) unfinished(it *Item) {
	err := it.decide(context.WithoutCancel(w.ctx), new(ending))
	if err != nil && !over(err) {
		w.queue.recipe.Logger().Warn("unfinished item not given back yet", "path", w.queue.path, "id", it.ID(), "error", err)
	}
}

// giveBack gives back an item after a failed attempt. If that isn't possible with a delay, the
// worker pauses (because the item can come back at once).
func (w *workforce) giveBack(it *Item, failure error) {
	log := w.queue.recipe.Logger().With("path", w.queue.path, "id", it.ID(), "attempt", it.Attempt(), "failure", failure)
	delay := max(0, w.queue.retryDelay(it.Attempt()))
	back := After(delay)
	if delay == 0 {
		back = AtTail()
	}

	err := it.Nack(context.WithoutCancel(w.ctx), back, Because(failure))
	switch {
	case err == nil && it.lastAttempt():
		log.Warn("item has failed for the last time, and is with the dead letters", "dead", w.queue.deadLetters.path)
	case err == nil:
		log.Warn("item has failed, and is tried again", "after", delay)
	case !over(err):
		log.Warn("item has failed, and could not be given back as it should be", "error", err)
		// Even without a delay the worker must let other goroutines run.
		wait(w.run, max(delay, time.Millisecond))
	}
}

// over reports whether the item had ended, or may have ended, before it was settled.
func over(err error) bool {
	return errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrReleased) ||
		errors.Is(err, protocol.ErrUncertain)
}
