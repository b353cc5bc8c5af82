package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/rpc"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A workload is the work of a process.
type workload struct {
	step func() error // does one operation
	rest func() error // gives back everything held across operations; can be nil
}

// together calls f from n goroutines of a process, which share its session.
func together(n int, f func() error) error {
	results := make(chan error)
	for range n {
		go func() { results <- f() }()
	}
	var errs []error
	for range n {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// A worker is a process that uses one recipe. It keeps one session.
type worker struct {
	workerConfig
	client *protocol.Client
	fenced *rpc.Client     // of the store
	life   context.Context // ends with the next command
	proves bool            // nothing is broken, so the operation must succeed
	first  usage           // at its first rest
	pace   atomic.Value    // the last of cmdKeep, cmdHurry and cmdFree; nil if there was none

	mu  sync.Mutex // protects ids and the output
	ids int
}

func (w *worker) now() Stamp { return Stamp(monotonic() - w.Base) }

// sleep blocks for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// chance reports true once in n times.
func (w *worker) chance(n int) bool { return rand.IntN(n) == 0 }

// wait returns the context of a call that may wait for other processes. Some contexts are short, so
// that calls are withdrawn at any moment.
func (w *worker) wait() (context.Context, context.CancelFunc) {
	switch {
	case w.proves:
		return context.WithCancel(w.life)
	case w.chance(3):
		return context.WithTimeout(w.life, time.Duration(rand.Int64N(int64(100*time.Millisecond))))
	}
	return context.WithTimeout(w.life, 4*w.Timeout)
}

// effect returns the context of a call that changes something and doesn't wait for other processes.
// It outlasts most faults, because calls with unknown outcomes weaken the checks.
func (w *worker) effect() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*w.Timeout)
}

// spell returns how long to keep a lock. Sometimes that's long enough for a fault.
func (w *worker) spell() time.Duration {
	switch {
	case w.proves:
		return 0
	case w.chance(4):
		return time.Duration(rand.Int64N(int64(3 * w.Timeout)))
	}
	return time.Duration(rand.Int64N(int64(50 * time.Millisecond)))
}

// print prints a line with a single write, so that a kill can't cut it in two.
func (w *worker) print(l line) {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := os.Stdout.Write(append(b, '\n')); err != nil {
		os.Exit(1) // the parent has ended
	}
}

func (w *worker) tell(o *Op) { w.print(line{Op: o}) }

// call begins an operation.
func (w *worker) call(kind, value string) *Op {
	w.mu.Lock()
	w.ids++
	o := &Op{Recipe: w.Recipe, Client: w.Client, Life: w.Life, ID: w.ids, Kind: kind, Value: value}
	w.mu.Unlock()
	// The stamp comes before the request, and its line is printed before it, too.
	o.Call = w.now()
	w.tell(o)
	return o
}

// returns notes that the call has returned. If err isn't nil the call has changed nothing, unless
// otherwise says more.
func (w *worker) returns(o *Op, err error, otherwise Outcome) error {
	o.Return = w.now()
	o.Outcome, o.Error = OK, text(err)
	if err != nil {
		o.Outcome = otherwise
	}
	w.tell(o)
	return err
}

func ignoring(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}
