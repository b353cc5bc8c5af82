package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// A chapter is a table.
type chapter struct {
	name, title string
	works       func(*env) []work
}

// A work is something that several contestants do. The first contestant can be the floor (the least
// possible cost).
type work struct {
	name   string // chapter/what, for -run
	title  string
	unit   string // what an operation is
	goals  []goal
	rounds int           // at most; 0 for as many as time allows
	slice  time.Duration // a contestant's time in a round; 0 for usualSlice
	enter  func(context.Context, *env) ([]*contestant, error)
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
	run     func(context.Context, *meter) error
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
	kinds                    [len(kinds)]int64
	client, server, leader   time.Duration // CPU; the leader is one of the servers
}

func (m *meter) now() (f figures) {
	if t := m.of.traffic; t != nil {
		f.requests, f.bytes = t.requests.Load(), t.sent.Load()+t.received.Load()
		f.kinds = t.byKind()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		f.mallocs = int64(mem.Mallocs)
		f.client = cpuTime(os.Getpid())
	} else {
		f.requests = m.env.received()
		f.client = cpuTime(m.of.peer.PID())
	}

	f.server, f.leader = m.env.server.cpuTime(), cpuTime(m.env.members[len(m.env.members)-1].pid)
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
	m.spent += max(elapsed, time.Millisecond)
	m.total.ops += ops
	m.total.elapsed += elapsed
	m.total.requests += after.requests - m.before.requests
	m.total.bytes += after.bytes - m.before.bytes
	m.total.mallocs += after.mallocs - m.before.mallocs
	for i := range after.kinds {
		m.total.kinds[i] += after.kinds[i] - m.before.kinds[i]
	}

	m.total.client += after.client - m.before.client
	m.total.server += after.server - m.before.server
	m.total.leader += after.leader - m.before.leader
}

// A row is the outcome of a contestant.
type row struct {
	*contestant
	perOp  []float64 // seconds, by round
	total  figures
	failed error // if not nil, it failed after these rounds
}

// measure lets the contestants work in turn, round after round, so that other load affects all of
// them. The first round is only a warm-up, and longer.
func measure(ctx context.Context, e *env, w work) ([]*row, error) {
	defer e.closeWork()
	contestants, err := w.enter(ctx, e)
	if err != nil {
		return nil, err
	}

	rounds := max(int(e.budget/cmp.Or(w.slice, usualSlice)), 3)
	if w.rounds > 0 {
		rounds = min(rounds, w.rounds)
	}

	slice := e.budget / time.Duration(rounds)
	rows := make([]*row, len(contestants))
	for i, c := range contestants {
		rows[i] = &row{contestant: c}
	}

	for round := range rounds + 1 {
		if round%8 == 0 {
			runtime.GC()
		}

		for i := range rows {
			r := rows[(i+round)%len(rows)]
			if r.failed != nil {
				continue
			}

			m := &meter{env: e, of: r.contestant, slice: slice, began: time.Now()}
			if round == 0 {
				m.slice = max(slice, e.budget/8)
			}

			var err error
			pprof.Do(ctx, pprof.Labels("work", w.name, "contestant", r.name), func(ctx context.Context) {
				err = r.run(ctx, m)
			})

			if err != nil && r.peer != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "bench: %s goes on without %s: %v\n", w.name, r.name, err)
				e.dismiss(r.peer)
				r.failed = err
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}

			if round > 0 {
				r.perOp = append(r.perOp, m.total.elapsed.Seconds()/float64(max(m.total.ops, 1)))
				r.total.add(m.total)
			}
		}
	}

	return slices.DeleteFunc(rows, func(r *row) bool { return len(r.perOp) == 0 }), nil
}

func (f *figures) add(g figures) {
	f.ops += g.ops
	f.elapsed += g.elapsed
	f.requests += g.requests
	f.bytes += g.bytes
	f.mallocs += g.mallocs
	for i := range g.kinds {
		f.kinds[i] += g.kinds[i]
	}
	f.client += g.client
	f.server += g.server
	f.leader += g.leader
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
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
