package recipestest

import (
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// leakLabel is a profiler label. Goroutines inherit the labels of the goroutine that starts them,
// so a test's label tells its goroutines from the goroutines of parallel tests.
const leakLabel = "recipestest"

// How long goroutines may take to end. Goroutines of clients and servers take as long as their
// clean-up (which is bounded, except on a busy machine). All others are reported soon.
const (
	goroutineGrace = 1800 * time.Millisecond
	clientGrace    = 30 * time.Second
)

var (
	goroutineChecks sync.Map // of testing.TB: tests that will be checked
	checkCount      atomic.Int64
)

// checkGoroutines fails tb at its end if a goroutine is left that tb started from now on. Only the
// first call for a tb has an effect. tb's own goroutine must call it.
func checkGoroutines(tb testing.TB) {
	if _, ok := tb.(interface{ BubbleLooksForGoroutines() }); ok {
		return // it's a world of package sim
	}

	if _, ok := goroutineChecks.LoadOrStore(tb, nil); ok {
		return
	}

	name := fmt.Sprintf("%s#%d", tb.Name(), checkCount.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(leakLabel, name)))
	tb.Cleanup(func() {
		tb.Helper()
		goroutineChecks.Delete(tb)
		pprof.SetGoroutineLabels(context.Background()) // otherwise this goroutine would be found too
		if tb.Failed() {
			return // the test may have been stopped half-way
		}

		if stacks := waitForGoroutines(name); len(stacks) > 0 {
			tb.Errorf("recipestest: goroutines of this test are still running:\n\n%s", strings.Join(stacks, "\n\n"))
		}
	})
}

// ofClient matches the stack of a goroutine that runs code of a client, a server or a recipe.
var ofClient = regexp.MustCompile(`\tgithub\.com/(go-zookeeper/zk|zkrecipes/zkrecipes/[a-z/]+)\.`)

// ofSignals matches the stack of the goroutine of package os/signal. The first test that uses
// signals starts it, and it never ends.
var ofSignals = regexp.MustCompile(`\tos/signal\.loop\+`)

// minLooks is how often a check must look before it reports anything, even if time is up. If a busy
// machine didn't run the check, it may not have run the clean-up either.
const minLooks = 20

// waitForGoroutines waits until no goroutine has the label name. It returns the stacks of
// goroutines that stay.
func waitForGoroutines(name string) []string {
	began := time.Now()
	pause := time.Millisecond
	for look := 1; ; look++ {
		stacks := labelledGoroutines(name)
		grace := goroutineGrace
		if slices.ContainsFunc(stacks, ofClient.MatchString) {
			grace = clientGrace
		}
		// Time alone proves nothing on a busy machine, so look a few times in any case.
		if len(stacks) == 0 || look >= minLooks && time.Since(began) > grace {
			return stacks
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// labelledGoroutines returns the stacks of all goroutines with the label name. Goroutines with
// equal stacks share one entry, which begins with their number.
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
		if strings.Contains(labels, label) && !ofSignals.MatchString(stack) {
			stacks = append(stacks, stack)
		}
	}

	return stacks
}
