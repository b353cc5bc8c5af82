package recipestest

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Goroutines inherit the profiler labels of the goroutine that starts them. So
// a label on the test's goroutine tells its offspring from that of tests in parallel.
const leakLabel = "recipestest"

// Clean-up finishes in the background. This is how long it may take.
const goroutinePatience = 30 * time.Second

var (
	checked    sync.Map // of testing.TB: those with a check to come
	checkCount atomic.Int64
)

// checkGoroutines has tb fail if goroutines are left that it started from now on.
// Only the first call for a tb does anything; it must be made by tb's goroutine.
func checkGoroutines(tb testing.TB) {
	if _, ok := tb.(interface{ BubbleLooksForGoroutines() }); ok {
		return // as package sim has it
	}
	if _, ok := checked.LoadOrStore(tb, nil); ok {
		return
	}
	name := fmt.Sprintf("%s#%d", tb.Name(), checkCount.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(leakLabel, name)))
	tb.Cleanup(func() {
		tb.Helper()
		checked.Delete(tb)
		pprof.SetGoroutineLabels(context.Background()) // or this goroutine would be found
		if tb.Failed() {
			return // it may have been stopped half-way
		}
		if stacks := waitForGoroutines(name, goroutinePatience); len(stacks) > 0 {
			tb.Errorf("recipestest: goroutines of this test are still running:\n\n%s", strings.Join(stacks, "\n\n"))
		}
	})
}

// Whatever the clock says, what is to go away is looked for that many times: a busy machine that did not run the one who
// looks may not have run the others either.
const looks = 20

// waitForGoroutines waits until no goroutine is labelled name, or returns the stacks of those that stay.
func waitForGoroutines(name string, patience time.Duration) []string {
	deadline := time.Now().Add(patience)
	pause := time.Millisecond
	for look := 1; ; look++ {
		stacks := labelledGoroutines(name)
		if len(stacks) == 0 || look >= looks && time.Now().After(deadline) {
			return stacks
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// labelledGoroutines returns the stacks of all goroutines labelled name: equal ones once, behind their number.
func labelledGoroutines(name string) []string {
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return []string{err.Error()}
	}
	var stacks []string
	label := fmt.Sprintf("%q:%q", leakLabel, name)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		_, labels, _ := strings.Cut(stack, "\n# labels: ")
		labels, _, _ = strings.Cut(labels, "\n")
		if strings.Contains(labels, label) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
