package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
)

// A chapter is a table.
type chapter struct {
	name, title string
	works       func(*env) []work
}

// A work is something that several contestants do. The first contestant can be the floor (the least
// possible cost). Whatever a work does fails by package must.
type work struct {
	name   string // chapter/what, for -run
	title  string
	unit   string        // what an operation is
	rounds int           // at most; 0 for as many as time allows
	slice  time.Duration // a contestant's time in a round; 0 for usualSlice
	enter  func(context.Context, *env) []*contestant
}

// usualSlice is short, so that other load affects all contestants alike.
const usualSlice = 50 * time.Millisecond

// The names of contestants that the tables treat specially.
const (
	floor = "floor"
	ours  = "zkrecipes"
	bare  = floor + ", our requests" // the requests that we send, without our code
)

// A contestant does a work in its own way.
type contestant struct {
	name    string
	run     func(context.Context, *meter)
	traffic *traffic // nil for peers, whose packets the server counts
	peer    *peer    // nil if it isn't one
	shares  *shares  // of its sessions; nil if there's nothing to share
}

// A meter measures a contestant between start and stop. The contestant can call them several times
// in a round.
type meter struct {
	env   *env
	of    *contestant
	slice time.Duration // how long the round should take
	total figures

	before  figures
	started time.Time
	spent   time.Duration // in this round
	began   time.Time
}

// figures are costs.
type figures struct {
	ops                      int
	elapsed                  time.Duration
	requests, bytes, mallocs int64
	client, server           time.Duration // CPU
}

func (m *meter) now() (f figures) {
	if t := m.of.traffic; t != nil {
		f.requests, f.bytes = t.requests.Load(), t.sent.Load()+t.received.Load()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		f.mallocs = int64(mem.Mallocs)
		f.client = cpuTime(os.Getpid())
	} else {
		f.requests = m.env.received()
		f.client = cpuTime(m.of.peer.PID())
	}

	f.server = m.env.server.cpuTime()
	return f
}

func (m *meter) start() {
	m.before = m.now()
	m.started = time.Now()
}

// within reports whether there's time left since start.
func (m *meter) within() bool { return time.Since(m.started) < m.slice }

// more reports whether the round goes on. It ends once its measured parts have taken a slice
// together, or the whole round has taken three.
func (m *meter) more() bool { return m.spent < m.slice && time.Since(m.began) < 3*m.slice }

func (m *meter) stop(ops int) { m.stopAt(ops, time.Since(m.started)) }

// stopAt is stop for a contestant that measures time itself.
func (m *meter) stopAt(ops int, elapsed time.Duration) {
	after := m.now()
	// Each stop uses up some of the slice, even if a peer reports no time at all.
	m.spent += max(elapsed, time.Millisecond)
	// Before and after are readings of counters that never go back.
	after.ops, after.elapsed = ops, elapsed
	m.total.add(after, 1)
	m.total.add(m.before, -1)
}

// A row is the outcome of a contestant.
type row struct {
	*contestant
	perOp  []float64 // seconds, by round
	total  figures
	failed error // if not nil, it failed after these rounds
}

// measure lets the contestants work in turn in each round, so that other load affects all of them.
// The first round is only a warm-up and takes longer.
func measure(ctx context.Context, e *env, w work) []*row {
	defer e.closeWork()
	contestants := w.enter(ctx, e)

	// At least three rounds, because ratios need a median and quartiles.
	rounds := max(int(e.time/cmp.Or(w.slice, usualSlice)), 3)
	if w.rounds > 0 {
		rounds = min(rounds, w.rounds)
	}

	slice := e.time / time.Duration(rounds)
	rows := make([]*row, len(contestants))
	for i, c := range contestants {
		rows[i] = &row{contestant: c}
	}

	for round := range rounds + 1 {
		// No contestant has to collect the garbage of another.
		if round%8 == 0 {
			runtime.GC()
		}

		// Each round begins with another contestant, so that none is always the first.
		for i := range rows {
			r := rows[(i+round)%len(rows)]
			if r.failed != nil {
				continue
			}

			m := &meter{env: e, of: r.contestant, slice: slice, began: time.Now()}
			if round == 0 {
				m.slice = max(slice, e.time/8)
			}

			err := must.Try(func() { r.run(ctx, m) })
			// A peer that fails is left out from here on: another library's bug must not end our
			// measurement.
			if err != nil && r.peer != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "bench: %s goes on without %s: %v\n", w.name, r.name, err)
				e.dismiss(r.peer)
				r.failed = err
				continue
			}
			if err != nil {
				must.Fail("%s: %w", r.name, err)
			}

			if round > 0 {
				r.perOp = append(r.perOp, m.total.elapsed.Seconds()/float64(max(m.total.ops, 1)))
				r.total.add(m.total, 1)
			}
		}
	}

	return slices.DeleteFunc(rows, func(r *row) bool { return len(r.perOp) == 0 })
}

// add adds g, or takes it away if sign is -1.
func (f *figures) add(g figures, sign int) {
	f.ops += sign * g.ops
	f.elapsed += time.Duration(sign) * g.elapsed
	f.requests += int64(sign) * g.requests
	f.bytes += int64(sign) * g.bytes
	f.mallocs += int64(sign) * g.mallocs
	f.client += time.Duration(sign) * g.client
	f.server += time.Duration(sign) * g.server
}

func (r *row) median() float64 { return quantile(r.perOp, 0.5) }

// quiet returns the time of a round with little other load: one round in ten was faster.
func (r *row) quiet() float64 { return quantile(r.perOp, 0.1) }

// A ratio compares two contestants round by round.
type ratio struct{ median, spread float64 }

// against returns r's time as a multiple of s's.
func (r *row) against(s *row) ratio {
	each := make([]float64, min(len(r.perOp), len(s.perOp))) // fewer if one of the two has failed
	for i := range each {
		each[i] = r.perOp[i] / s.perOp[i]
	}
	return ratio{quantile(each, 0.5), (quantile(each, 0.75) - quantile(each, 0.25)) / 2}
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	// Interpolate between the nearest two values, because there can be as few as three.
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
