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
)

// Items yields one item after the other, as [Queue.Reserve] returns them, until the loop ends or
// Reserve fails. The error of Reserve is yielded last. Where Reserve would return
// [ErrTooManyItems], Items waits until there is room.
//
// Items reserves nothing ahead. When the loop ends, the items that it was given stay reserved until
// they are acknowledged or given back, or the session ends. A loop that does neither with its items
// may wait for room in vain. [Queue.Consume] looks after its items itself.
func (q *Queue) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			it, err := q.reserveWithRoom(ctx)
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}

// reserveWithRoom is [Queue.Reserve], and waits for room for another claim.
func (q *Queue) reserveWithRoom(ctx context.Context) (*Item, error) {
	for {
		it, err := q.Reserve(ctx)
		if !errors.Is(err, ErrTooManyItems) {
			return it, err
		}
		if err := q.awaitBudget(ctx); err != nil {
			return nil, q.recipe.Wrap(err)
		}
	}
}

// awaitBudget blocks until the current session may have another claim.
func (q *Queue) awaitBudget(ctx context.Context) error {
	s, err := q.recipe.Session(ctx)
	if err != nil {
		return err
	}
	return q.under(s).budget.await(ctx)
}

// Consume works on items with that many workers until ctx ends. Each worker reserves an item, calls
// fn, settles the item, and begins again. So no more items are reserved than there are workers. The
// context of fn is [Item.Context] of ctx: it is cancelled when ctx ends and when the item is lost.
//
//   - If fn returns nil, the item is acknowledged.
//   - If fn returns an error, the item is given back with [After]. The delay grows with the
//     attempt, from 100 milliseconds to a minute: see [WithRetryDelay]. [WithDeadLetter] bounds the
//     attempts. A dead letter says what the error was.
//   - If fn panics, the item is given back likewise, and all workers stop. Consume then panics with
//     a [PanicError].
//   - If the item is lost meanwhile, it is not acknowledged, and the worker goes on.
//   - fn may settle the item itself.
//
// Settling does not depend on ctx. If an item cannot be given back with its delay, the client's
// logger is told, and the worker pauses for the delay.
//
// Consume blocks. When ctx ends, no worker reserves any more. Consume waits for the calls of fn,
// settles their items, and returns an error that wraps ctx's. If Reserve fails, or Ack for another
// reason than a loss, all workers end in the same way, and Consume returns that error. Where
// Reserve would return [ErrTooManyItems], a worker waits until there is room. If a session is lost,
// the workers go on in the next one.
//
// Consume returns an error before anything is sent if workers is less than 1 or fn is nil. fn is
// called by several goroutines at the same time. Several calls of Consume may be under way.
func (q *Queue) Consume(
	ctx context.Context, workers int, fn func(ctx context.Context, it *Item) error,
) error {
	switch {
	case workers < 1:
		return q.recipe.Wrap(fmt.Errorf("%d workers: at least one is needed", workers))
	case fn == nil:
		return q.recipe.Wrap(errors.New("nil function"))
	}
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	w := &workforce{queue: q, ctx: ctx, fn: fn}
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

// A PanicError is what [Queue.Consume] panics with after fn has panicked.
type PanicError struct {
	Value any    // what fn has panicked with
	Stack string // of fn's goroutine
}

func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value, if that is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// A workforce is a call of Consume.
type workforce struct {
	queue *Queue
	ctx   context.Context
	fn    func(context.Context, *Item) error
	wait  sync.WaitGroup
	run   context.Context // until no more items are reserved
	stop  context.CancelFunc

	mu       sync.Mutex  // protects what follows
	err      error       // the first one, which has ended the work
	panicked *PanicError // the first one
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
		it, err := w.queue.reserveWithRoom(w.run)
		if err != nil {
			w.end(err, nil)
			return
		}
		if w.run.Err() != nil { // it came too late
			it.decide(context.WithoutCancel(w.ctx), unused, nack{})
			w.end(w.queue.recipe.Wrap(w.run.Err()), nil)
			return
		}
		w.serve(it)
	}
}

// serve calls fn for an item and settles it.
func (w *workforce) serve(it *Item) {
	returned := false
	defer func() {
		if !returned {
			value := recover() // nil if fn has ended its goroutine
			w.end(nil, &PanicError{value, string(debug.Stack())})
			w.giveBack(it, fmt.Errorf("panic: %v", value))
		}
	}()
	ctx, cancel := it.Context(w.ctx)
	defer cancel()
	err := w.fn(ctx, it)
	returned = true

	if err != nil {
		w.giveBack(it, err)
	} else if err := it.Ack(context.WithoutCancel(w.ctx)); err != nil && !over(err) {
		w.end(err, nil)
	}
}

// giveBack gives an item back that fn has failed with. If that is not possible with a delay, the
// item may come back at once, so the worker pauses.
func (w *workforce) giveBack(it *Item, failure error) {
	delay := max(0, w.queue.retryDelay(it.Attempt()))
	err := it.Nack(context.WithoutCancel(w.ctx), After(delay), because(failure))
	if err == nil || over(err) {
		return
	}

	w.queue.recipe.Logger().Warn("item not given back as it should be",
		"path", w.queue.path, "id", it.ID(), "error", err, "failure", failure)
	select {
	case <-time.After(max(delay, 1)): // see makeWay
	case <-w.run.Done():
	}
}

// over reports whether an item had ended, or may have, before it could be settled.
func over(err error) bool {
	return errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrReleased) ||
		errors.Is(err, protocol.ErrUncertain)
}

// retryDelay is what [WithRetryDelay] says by default.
func retryDelay(attempt int) time.Duration {
	return min(100*time.Millisecond<<min(attempt-1, 10), time.Minute)
}
