package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A Failure is a schedule under which something went wrong.
type Failure struct {
	Seed     uint64
	Err      error   // what went wrong
	Faults   []Fault // all faults that had happened
	Enough   []Fault // the faults that suffice, as far as a few replays show
	Plays    int     // how many schedules were played, this one included
	Timeline string  // the name of a file to look at, or the reason why there is none

	test   string
	record *record
	lanes  []string
	log    []string
}

func newFailure(test string, seed uint64, w *World, err error) *Failure {
	f := &Failure{Seed: seed, Err: err, test: test, record: &w.record, lanes: []string{"server"}}
	w.record.mu.Lock()
	f.Faults = w.record.faults
	w.record.mu.Unlock()
	for _, c := range w.clients {
		f.lanes = append(f.lanes, c.Name)
	}

	w.bench.mu.Lock()
	defer w.bench.mu.Unlock()

	f.log = w.bench.log
	return f
}

// shrink finds out which faults suffice by leaving out one after the other. fails plays the seed
// without those to skip.
func (f *Failure) shrink(fails func(skip []int) bool) {
	const tries, most = 3, 10 * time.Second // each fault is left out at least once
	var skip []int
	began := time.Now()
	for _, fault := range f.Faults {
		without := append(slices.Clone(skip), fault.index)
		needed := true
		for try := 0; needed && (try == 0 || try < tries && time.Since(began) < most); try++ {
			needed = !fails(without)
		}
		if needed {
			f.Enough = append(f.Enough, fault)
		} else {
			skip = without
		}
	}
}

// String returns a report of several lines.
func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d fails, after %d schedules:\n\n%v\n\nFaults:\n\n", f.Seed, f.Plays, f.Err)
	for _, fault := range f.Faults {
		mark := " "
		if len(f.Enough) < len(f.Faults) && slices.Contains(f.Enough, fault) {
			mark = "*"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, fault)
	}

	switch {
	case len(f.Faults) == 0:
		b.WriteString("  none\n")
	case len(f.Enough) == 0:
		b.WriteString("\nIt fails without faults, too.\n")
	case len(f.Enough) < len(f.Faults):
		b.WriteString("\nThose marked * suffice.\n")
	}

	for _, l := range f.log {
		fmt.Fprintf(&b, "\n%s", l)
	}

	fmt.Fprintf(&b, "\nreplay:   %s\ntimeline: %s\n", replay(f.test, f.Seed), f.Timeline)
	return b.String()
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Error returns what String does.
func (f *Failure) Error() string { return f.String() }

// replay returns the command that plays a seed of a test again.
func replay(test string, seed uint64) string {
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}

	var pattern []string
	for name := range strings.SplitSeq(test, "/") {
		pattern = append(pattern, "^"+name+"$")
	}

	return fmt.Sprintf("go test %s -run '%s' -sim.seed=%d", pkg, strings.Join(pattern, "/"), seed)
}
