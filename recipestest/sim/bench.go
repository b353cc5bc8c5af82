package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A bench is the testing.TB of one world. Its failures don't fail the test yet.
type bench struct {
	testing.TB // of the bubble, for all other methods
	ctx        context.Context
	cancel     context.CancelFunc

	mu       sync.Mutex // protects the fields below
	errs     []error
	failed   time.Time // for the first time
	cleanups []func()
	log      []string
}

func newBench(t testing.TB) *bench {
	b := &bench{TB: t}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

func (b *bench) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed.IsZero() {
		b.failed = time.Now()
	}
	b.errs = append(b.errs, err)
}

func (b *bench) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}

// cleanUp calls the functions that were given to Cleanup, last added first.
func (b *bench) cleanUp() {
	b.cancel()
	for {
		b.mu.Lock()
		n := len(b.cleanups)
		if n == 0 {
			// f can add more functions, so it runs without the lock.
			b.mu.Unlock()
			return
		}
		f := b.cleanups[n-1]
		b.cleanups = slices.Delete(b.cleanups, n-1, n)
		b.mu.Unlock()
		f()
	}
}

func (b *bench) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *bench) Logf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

func (b *bench) Context() context.Context { return b.ctx }
func (b *bench) Failed() bool             { return b.err() != nil }
func (b *bench) Helper()                  {}
func (b *bench) Log(args ...any)          { b.Logf("%s", line(args)) }
func (b *bench) Fail()                    { b.fail(errors.New("failed")) }
func (b *bench) Error(args ...any)        { b.fail(errors.New(line(args))) }
func (b *bench) Errorf(f string, a ...any) {
	b.fail(fmt.Errorf(f, a...))
}

// FailNow ends the goroutine that calls it. Unlike with testing.T, any goroutine of the world may
// call it.
func (b *bench) FailNow() {
	// An earlier Error has the reason.
	if !b.Failed() {
		b.Fail()
	}
	runtime.Goexit()
}

func (b *bench) Fatal(args ...any) {
	b.Error(args...)
	runtime.Goexit()
}

func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

// BubbleLooksForGoroutines keeps package recipestest from looking for leftover goroutines. They
// keep the bubble from ending, which fails the world.
func (b *bench) BubbleLooksForGoroutines() {}

func line(args []any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }
