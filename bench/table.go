package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A table is the result of a chapter.
type table struct {
	chapter
	groups []group
}

type group struct {
	work
	rows []*row
}

func (t *table) add(w work, rows []*row) { t.groups = append(t.groups, group{w, rows}) }

func (g group) row(name string) *row {
	for _, r := range g.rows {
		if r.name == name {
			return r
		}
	}
	return nil
}

// bestPeer returns the fastest of the other libraries.
func (g group) bestPeer() (best *row) {
	for _, r := range g.rows {
		if strings.HasPrefix(r.name, floor) || strings.HasPrefix(r.name, ours) {
			continue
		}
		if best == nil || r.median() < best.median() {
			best = r
		}
	}
	return best
}

// A goal bounds our time, as a multiple of another contestant's.
type goal struct {
	text   string
	atMost float64
	of     func(group) *row
}

// atMostFloor asks for at most that many times the floor's time.
func atMostFloor(times float64) goal {
	return goal{fmt.Sprintf("at most %.3g of the floor's time", times), times, func(g group) *row { return g.row(floor) }}
}

// ofFloorRate asks for at least that share of the floor's rate.
func ofFloorRate(share float64) goal {
	return goal{fmt.Sprintf("at least %.3g of the floor's rate", share), 1 / share, func(g group) *row { return g.row(floor) }}
}

// timesBestPeer asks us to be at least that many times as fast as the best other library.
func timesBestPeer(times float64) goal {
	return goal{fmt.Sprintf("at least %.3g times the best peer's rate", times), 1 / times, group.bestPeer}
}

// timesThe asks us to be at least that many times as fast as the contestant with that name.
func timesThe(name string, times float64) goal {
	return goal{fmt.Sprintf("at least %.3g times the rate of %s", times, name), 1 / times, func(g group) *row { return g.row(name) }}
}

func (g group) verdict(a goal) string {
	mine, theirs := g.row(ours), a.of(g)
	if mine == nil || theirs == nil {
		return a.text + ": not measured"
	}
	r := mine.against(theirs)
	word := "reached"
	if r.median > a.atMost {
		word = "MISSED"
	}
	return fmt.Sprintf("%s: %s, the time is %.2f ±%.2f of %s's, the rate %.2f; when quiet %.2f, %.2f",
		a.text, word, r.median, r.spread, theirs.name, 1/r.median, mine.quiet()/theirs.quiet(), theirs.quiet()/mine.quiet())
}

func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%s\n", t.title, strings.Repeat("=", len(t.title)))
	const line = "  %-22s %11s %11s %9s %6s %8s %9s %8s %7s %10s %10s  %s\n"
	fmt.Fprintf(out, line, "", "time", "quiet", "of floor", "", "of ours", "requests", "kB", "allocs", "client CPU", "server CPU", "")

	for _, g := range t.groups {
		fmt.Fprintf(out, "%s, per %s (%s)\n", g.title, g.unit, g.name)
		for _, r := range g.rows {
			var ofFloor, spread, ofOurs string
			if f := g.row(floor); f != nil {
				q := r.against(f)
				ofFloor, spread = fmt.Sprintf("%.2f", q.median), fmt.Sprintf("±%.2f", q.spread)
			}
			if o := g.row(ours); o != nil {
				ofOurs = fmt.Sprintf("%.2f", r.against(o).median)
			}
			f := r.total
			fmt.Fprintf(out, line, r.name, microseconds(r.median()), microseconds(r.quiet()), ofFloor, spread, ofOurs,
				each(float64(f.requests), f.ops), each(float64(f.bytes)/1000, f.ops), each(float64(f.mallocs), f.ops),
				each(f.client.Seconds()*1e6, f.ops), each(f.server.Seconds()*1e6, f.ops), r.remarks())
		}

		for _, a := range g.goals {
			fmt.Fprintf(out, "    to reach: %s\n", g.verdict(a))
		}
	}
}

// remarks returns further remarks about a row.
func (r *row) remarks() string {
	if r.failed != nil {
		return fmt.Sprintf("failed after %d rounds", len(r.perOp))
	}
	if r.shares != nil {
		return fmt.Sprintf("%s; %s", r.shares, r.total.breakdown())
	}
	return r.total.breakdown()
}

// breakdown returns how many requests of each kind an operation takes.
func (f figures) breakdown() string {
	sums := make(map[string]int64)
	for i, n := range f.kinds {
		sums[kinds[i]] += n
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		if share := float64(sums[kind]) / float64(max(f.ops, 1)); share >= 0.05 {
			all = append(all, fmt.Sprintf("%s %.2f", kind, share))
		}
	}
	return strings.Join(all, ", ")
}

func each(total float64, ops int) string {
	if total <= 0 || ops == 0 {
		return "–"
	}
	v := total / float64(ops)
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func microseconds(seconds float64) string {
	us := seconds * 1e6
	if us >= 100 {
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.1f µs", us)
}
