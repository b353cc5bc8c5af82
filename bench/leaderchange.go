package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

var leaderChangeStudy = study{
	title:   "The leader fails while contenders in line hand a lock over, and each session holds a lock of its own",
	columns: []string{"", ""},
	cases: func(e *env) (all []studyCase) {
		if e.fail == nil {
			return nil
		}
		contenders := e.few(2000)
		for _, sessions := range []int{contenders / 10, contenders} {
			all = append(all, studyCase{fmt.Sprintf("scale/leaderchange-%d", sessions), func(ctx context.Context, e *env) ([][]any, error) {
				return leaderChange(ctx, e, sessions, contenders)
			}}, studyCase{fmt.Sprintf("scale/leaderchange-plain-%d", sessions), func(ctx context.Context, e *env) ([][]any, error) {
				return plainLeaderChange(ctx, e, sessions)
			}})
		}
		return all
	},
}

// A record is what happened to all sessions, and when.
type record struct {
	mu       sync.Mutex
	times    map[string][]time.Time
	failures map[string]int
}

// The things that happen.
const (
	dialled    = "dialled"
	resumed    = "connected again"
	handedOver = "hand-offs"
)

func (r *record) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[what] = append(r.times[what], time.Now())
}

func newRecord() *record {
	return &record{times: make(map[string][]time.Time), failures: make(map[string]int)}
}

// particular is what differs between failures of the same kind.
var particular = regexp.MustCompile(`/\S*|0x[0-9a-f]+|\d[\d.]*m?s\b`)

func (r *record) failed(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures[what+": "+particular.ReplaceAllString(err.Error(), "…")]++
}

// dialer notes each attempt to connect.
func (r *record) dialer(t *traffic) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		r.note(dialled)
		return t.dial(network, address, timeout)
	}
}

// reconnects returns lines of how the sessions came back after a moment.
func (r *record) reconnects(moment time.Time) [][]any {
	dials, back := r.since(dialled, moment), r.since(resumed, moment)
	lines := [][]any{
		{"connected again, sessions", len(back)},
		{"the last of them after, s", lastOf(back).Seconds()},
		{"connection attempts", len(dials)},
		{"the most in 100 ms", slices.Max(histogram(dials))},
	}
	for what, n := range r.failures {
		lines = append(lines, []any{what, n})
	}

	attempts, connected := histogram(dials), histogram(back)
	const shown = 30
	for i := 0; i < shown && i < max(len(attempts), len(connected)); i++ {
		var a, c int
		if i < len(attempts) {
			a = attempts[i]
		}
		if i < len(connected) {
			c = connected[i]
		}
		lines = append(lines, []any{fmt.Sprintf("from %.1f s: attempts, connected", float64(i)/10), fmt.Sprintf("%d, %d", a, c)})
	}
	return lines
}

// since returns how long after a moment each thing of a kind happened.
func (r *record) since(what string, moment time.Time) (after []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.times[what] {
		if t.After(moment) {
			after = append(after, t.Sub(moment))
		}
	}
	slices.Sort(after)
	return after
}

// leaderChange lets contenders hand a lock over while the leader of the ensemble fails.
func leaderChange(ctx context.Context, e *env, sessions, inLine int) (_ [][]any, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var contenders sync.WaitGroup
	defer contenders.Wait()
	defer cancel()
	r := newRecord()
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}

	t := new(traffic)
	state := protocol.WithStateListener(func(s protocol.State) {
		if s == protocol.Connected {
			r.note(resumed)
		}
	})
	clients, err := several(sessions, func() (*protocol.Client, error) {
		return e.clientAt(ctx, e.address, t, protocol.WithDialer(r.dialer(t)), state, protocol.WithSessionTimeout(scaleTimeout))
	})
	if err != nil {
		return nil, err
	}

	held := make([]*lock.Lease, sessions)
	_, err = inParallel(sessions, func(i int) (_ int, err error) {
		held[i], err = lock.New(clients[i], fmt.Sprintf("%s/own/%d", path, i)).Lock(ctx)
		return 0, err
	})
	if err != nil {
		return nil, err
	}

	first, err := lock.New(clients[0], path+"/common").Lock(ctx)
	if err != nil {
		return nil, err
	}
	var holders, doubled atomic.Int64
	for i := range inLine {
		contenders.Go(func() {
			m := lock.New(clients[i%sessions], path+"/common")
			for ctx.Err() == nil {
				l, err := m.Lock(ctx)
				if ctx.Err() != nil {
					return // what it holds ends with its session
				} else if err != nil {
					r.failed("a contender", err)
					continue
				}
				r.note(handedOver)
				if holders.Add(1) > 1 && l.Err() == nil {
					doubled.Add(1)
				}
				holders.Add(-1)
				if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
					r.failed("an unlock", err)
				}
			}
		})
	}
	if err := e.awaitLine(ctx, path+"/common", inLine+1, sessions, t); err != nil {
		return nil, err
	}
	if err := first.Unlock(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sleep(ctx, 2*e.budget); err != nil {
		return nil, err
	}

	failed := time.Now()
	restore, err := e.fail()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if len(e.members) == 1 {
		time.Sleep(300 * time.Millisecond)
		if err := restore(); err != nil {
			return nil, err
		}
	}
	for len(r.since(handedOver, failed.Add(100*time.Millisecond))) == 0 {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, min(10*e.budget, 2*scaleTimeout)); err != nil {
		return nil, err
	}

	lost := 0
	for _, l := range held {
		if err := l.Err(); err != nil {
			lost++
			r.failed("a lease", err)
		}
	}
	before := len(r.since(handedOver, began)) - len(r.since(handedOver, failed))
	hands := r.since(handedOver, failed)
	next := slices.IndexFunc(hands, func(d time.Duration) bool { return d > 100*time.Millisecond })
	return append([][]any{
		{"**sessions, contenders**", fmt.Sprintf("**%d, %d**", sessions, inLine)},
		{"hand-offs a second, before", float64(before) / failed.Sub(began).Seconds()},
		{"hand-offs a second, after", float64(len(hands)-next) / (hands[len(hands)-1] - hands[next]).Seconds()},
		{"first hand-off after, s", hands[next].Seconds()},
		{"leases lost", fmt.Sprintf("%d of %d", lost, sessions)},
		{"moments with two holders", doubled.Load()},
	}, r.reconnects(failed)...), nil
}

// plainLeaderChange lets the leader fail with sessions of the plain client, which do nothing else.
func plainLeaderChange(ctx context.Context, e *env, sessions int) (_ [][]any, err error) {
	r, t := newRecord(), new(traffic)
	conns, err := several(sessions, func() (*zk.Conn, error) {
		c, events, err := zk.Connect(strings.Split(e.address, ","), scaleTimeout, zk.WithDialer(r.dialer(t)), zk.WithLogger(log.New(io.Discard, "", 0)),
			zk.WithEventCallback(func(ev zk.Event) {
				if ev.State == zk.StateHasSession {
					r.note(resumed)
				}
			}))
		if err != nil {
			return nil, err
		}
		e.closers = append(e.closers, c.Close)
		for c.SessionID() == 0 {
			select {
			case <-events:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	ids := make([]int64, sessions)
	for i, c := range conns {
		ids[i] = c.SessionID()
	}
	if err := sleep(ctx, e.budget); err != nil {
		return nil, err
	}

	failed := time.Now()
	restore, err := e.fail()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if len(e.members) == 1 {
		time.Sleep(300 * time.Millisecond)
		if err := restore(); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, min(50*e.budget, 2*scaleTimeout)); err != nil {
		return nil, err
	}

	lost := 0
	for i, c := range conns {
		if c.SessionID() != ids[i] {
			lost++
		}
	}
	return append([][]any{
		{"**plain client, sessions**", fmt.Sprintf("**%d**", sessions)},
		{"sessions lost", lost},
	}, r.reconnects(failed)...), nil
}

func lastOf(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}

// histogram counts what happened in each 100 ms.
func histogram(all []time.Duration) []int {
	counts := make([]int, lastOf(all)/(100*time.Millisecond)+1)
	for _, d := range all {
		counts[d/(100*time.Millisecond)]++
	}
	return counts
}
