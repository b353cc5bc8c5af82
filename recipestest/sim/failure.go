package sim

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
)

// A Failure is a schedule that broke something.
type Failure struct {
	Seed     uint64
	Err      error   // the error
	Faults   []Fault // all faults that had happened
	Enough   []Fault // the faults that are enough, as short as possible (as far as some replays show)
	Only     string  // the part of the seed that is enough, for -sim.only; empty if all of it is needed
	Plays    int     // how many schedules were played, including this one
	Timeline string  // the name of a file to look at, or why there is none

	test string
	history
}

// A history is what a failure knows about its schedule. If the failure was shrunk, the history (and
// Err) is about the part that is enough.
type history struct {
	record  *record
	clients int
	log     []string
	packets map[string][]event // the latest packets of each client, by its name
}

func newFailure(test string, seed uint64, w *World, err error) *Failure {
	f := &Failure{Seed: seed, Err: err, test: test}
	f.record, f.clients, f.packets = &w.record, len(w.clients), make(map[string][]event)

	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	f.Faults = w.record.faults

	w.bench.mu.Lock()
	defer w.bench.mu.Unlock()

	until := w.bench.failed.Sub(w.began)
	if len(f.Faults) > 0 || len(w.record.turns) > 0 { // the checks find things that happened before
		until = min(until, f.end())
	}
	for _, c := range w.clients {
		if w.plan.has(c.Name) {
			f.packets[c.Name] = latestPackets(c.Name, c.Link.Trace(), c.linked, until)
		}
	}

	f.log = slices.DeleteFunc(slices.Clone(w.bench.log), func(line string) bool {
		return strings.HasPrefix(line, "recipestest: packets of a link") // they are in packets
	})
	return f
}

// String returns a report of several lines.
func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d fails, after %d schedules:\n\n%v\n\nFaults:\n\n", f.Seed, f.Plays, f.Err)
	for _, fault := range f.Faults {
		// A star marks the faults that are enough.
		mark := " "
		if slices.ContainsFunc(f.Enough, func(other Fault) bool { return other.index == fault.index }) {
			mark = "*"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, fault)
	}

	if len(f.Faults) == 0 {
		b.WriteString("  none\n")
	}

	if f.Only != "" {
		b.WriteString(f.suffices())
	}

	for _, l := range f.log {
		fmt.Fprintf(&b, "\n%s", l)
	}

	for _, name := range slices.Sorted(maps.Keys(f.packets)) {
		packets := f.packets[name]
		if len(packets) == 0 {
			continue
		}
		// The timeline has more packets.
		fmt.Fprintf(&b, "\nLatest packets of %s:\n\n%s", name, lines(packets[max(0, len(packets)-packetLines):]))
	}

	fmt.Fprintf(&b, "\nreplay:   %s\ntimeline: %s\n", replay(f.test, f.Seed, f.Only), f.Timeline)
	return b.String()
}

// suffices describes the rest of a schedule that was shrunk.
func (f *Failure) suffices() string {
	var b strings.Builder
	if len(f.Faults) > 0 && len(f.Enough) == 0 {
		b.WriteString("\nIt fails without faults, too.\n")
	}
	b.WriteString("\nThis part of it suffices, and the error above is from it:\n\n")
	for _, name := range slices.Sorted(maps.Keys(f.packets)) {
		if n := f.record.turns[name]; n > 0 {
			fmt.Fprintf(&b, "  turns of %s: %d\n", name, n)
		}
	}

	for _, fault := range f.Enough {
		fmt.Fprintf(&b, "  %s\n", fault)
	}
	return b.String()
}

// replay returns the command that plays a seed of a test (or a part of it) again.
func replay(test string, seed uint64, only string) string {
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}

	// Anchor each level, so that no other test with the same beginning runs.
	var pattern []string
	for name := range strings.SplitSeq(test, "/") {
		pattern = append(pattern, "^"+name+"$")
	}

	command := fmt.Sprintf("go test %s -run '%s' -sim.seed=%d", pkg, strings.Join(pattern, "/"), seed)
	if only != "" {
		command += fmt.Sprintf(" -sim.only='%s'", only)
	}
	return command
}
