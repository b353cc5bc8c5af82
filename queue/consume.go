package queue

import (
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

// Items yields one item after the other, as [Queue.Reserve] returns them. It ends with the loop,
// when ctx is cancelled, or with an error of Reserve (ctx's if its deadline has passed), which it
// yields last.
//
// Items reserves nothing ahead. When the loop ends, the items that it was given stay reserved until
// they are acknowledged or given back, or the session ends. [Queue.Consume] looks after its items
// itself.
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

// orderly returns err, which has ended a verb that goes on until ctx ends, or nil if ctx was cancelled.
func orderly(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && !errors.Is(err, protocol.ErrClosed) && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// A ConsumeOption shapes a call of [Queue.Consume]. A nil option does nothing.
type ConsumeOption func(*workforce) error

// WithGrace lets fn finish its work when ctx ends: the context of fn ends d later. The default is 0:
// it ends at once.
func WithGrace(d time.Duration) ConsumeOption {
	return func(w *workforce) error {
		if d < 0 {
			return fmt.Errorf("a grace of %v is negative", d)
		}
		w.grace = d
		return nil
	}
}

// WithPanics lets Consume panic with a [PanicError] after fn has panicked. The item is given back and
// all workers stop before that.
func WithPanics() ConsumeOption {
	return func(w *workforce) error {
		w.panics = true
		return nil
	}
}

// Consume works on items with that many workers until ctx ends. Each worker reserves an item, calls
// fn, settles the item, and begins again. So no more items are reserved than there are workers. The
// context of fn is [Item.Context] of ctx: it is cancelled when ctx ends, or [WithGrace] later, and
// when the item is lost.
//
//   - If fn returns nil, the item is acknowledged.
//   - If fn returns an error, the attempt has failed. The item is given back with [After] and
//     [Because]. The delay grows with the attempt, from 100 milliseconds to a minute: see
//     [WithRetryDelay]. [WithDeadLetter] bounds the attempts. The logger gets a warning, the
//     observer the error, and [Info] the reason.
//   - If fn returns an error after its context has ended with ctx, the item was not finished. It goes
//     back to its place at once, and that is no attempt.
//   - If fn panics, the attempt has failed, with the stack as a part of the reason, and the worker
//     goes on: see [WithPanics].
//   - If the item is lost meanwhile, it is not acknowledged, and the worker goes on.
//   - fn may settle the item itself.
//
// Settling does not depend on ctx. If an item cannot be given back with its delay, the logger gets a
// warning, and the worker pauses for the delay.
//
// Consume blocks. When ctx ends, no worker reserves any more. Consume waits for the calls of fn and
// settles their items. It returns nil if ctx was cancelled, and ctx's error if its deadline has
// passed. If Reserve fails, or Ack for another reason than a loss, all workers end in the same way,
// and Consume returns that error. If a session is lost, the workers go on in the next one.
//
// Consume returns an error before anything is sent if workers is less than 1, fn is nil or an option
// is bad. fn is called by several goroutines at the same time. Several calls of Consume may be under
// way.
func (q *Queue) Consume(
	ctx context.Context, workers int, fn func(ctx context.Context, it *Item) error, opts ...ConsumeOption,
) error {
	switch {
	case workers < 1:
		return q.recipe.Wrap(fmt.Errorf("%d workers: at least one is needed", workers))
	case fn == nil:
		return q.recipe.Wrap(errors.New("nil function"))
	}
	w := &workforce{queue: q, ctx: ctx, fn: fn}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option(w); err != nil {
			return q.recipe.Wrap(err)
		}
	}
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	w.working = ctx
	if w.grace > 0 {
		working, stop := recipe.Linger(ctx, w.grace)
		w.working = working
		defer stop()
	}
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
		runtime.Goexit() // as fn did
	}
	panic(w.panicked)
}

// A PanicError is a panic of the function that was given to [Queue.Consume].
type PanicError struct {
	Value any    // what fn has panicked with
	Stack string // of fn's goroutine
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value, if that is an error.
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
	working context.Context // of fn
	wait    sync.WaitGroup
	run     context.Context // until no more items are reserved
	stop    context.CancelFunc

	mu       sync.Mutex  // protects what follows
	err      error       // the first one, which has ended the work
	panicked *PanicError // the first one that has
}

// end makes the workers end because of err or a panic.
func (w *workforce) end(err error, panicked *PanicError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	if w.panicked == nil {
		w.panicked = panicked
	}
	w.stop()
}

// work is one worker.
func (w *workforce) work() {
	for {
		it, err := w.queue.Reserve(w.run)
		if err != nil {
			w.end(orderly(w.ctx, err), nil)
			return
		}
		if w.run.Err() != nil { // it came too late
			w.unfinished(it)
			w.end(w.queue.recipe.Wrap(orderly(w.ctx, w.run.Err())), nil)
			return
		}
		w.serve(it)
	}
}

// serve calls fn for an item and settles it.
func (w *workforce) serve(it *Item) {
	exited := true
	defer func() {
		if exited { // by fn, with its goroutine
			w.end(nil, &PanicError{})
			w.giveBack(it, errors.New("the function has ended its goroutine"))
		}
	}()
	err := w.call(it)
	exited = false

	panicked := (*PanicError)(nil)
	switch {
	case err == nil:
		if err := it.Ack(context.WithoutCancel(w.ctx)); err != nil && !over(err) {
			w.end(err, nil)
		}
	case errors.As(err, &panicked):
		if w.panics {
			w.end(nil, panicked)
		}
		w.giveBack(it, err)
	case w.working.Err() != nil:
		w.unfinished(it)
	default:
		w.giveBack(it, err)
	}
}

// call calls fn, and returns its panic as an error.
func (w *workforce) call(it *Item) (err error) {
	ctx, cancel := it.Context(w.working)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, string(debug.Stack())}
		}
	}()
	return w.fn(ctx, it)
}

// unfinished gives an item back that has not failed.
func (w *workforce) unfinished(it *Item) {
	err := it.decide(context.WithoutCancel(w.ctx), unused, nack{}, nil)
	if err != nil && !over(err) {
		w.queue.recipe.Logger().Warn("unfinished item not given back yet", "path", w.queue.path, "id", it.ID(), "error", err)
	}
}

// giveBack gives an item back that fn has failed with. If that is not possible with a delay, the
// item may come back at once, so the worker pauses.
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
		select {
		case <-time.After(max(delay, 1)): // a timer of 0 would not let others run
		case <-w.run.Done():
		}
	}
}

// over reports whether an item had ended, or may have, before it could be settled.
func over(err error) bool {
	return errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrReleased) ||
		errors.Is(err, protocol.ErrUncertain)
}
