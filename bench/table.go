package main

import (
	"fmt"
	"io"
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

func (g group) row(name string) *row {
	for _, r := range g.rows {
		if r.name == name {
			return r
		}
	}
	return nil
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
	}
}

// remarks returns further remarks about a row.
func (r *row) remarks() string {
	if r.failed != nil {
		return fmt.Sprintf("failed after %d rounds", len(r.perOp))
	}
	if r.shares != nil {
		return r.shares.String()
	}
	return ""
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
