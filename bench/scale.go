package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A study is a table of part scale. Its columns are its own.
type study struct {
	title   string
	columns []string
	cases   func(*env) []studyCase
}

// A studyCase measures some lines of a study.
type studyCase struct {
	name    string // scale/what, for -run
	measure func(context.Context, *env) (lines [][]any, err error)
}

// print measures the cases that run matches. It prints the table as Markdown, line by line.
func (s study) print(ctx context.Context, e *env, out io.Writer, run *regexp.Regexp) error {
	begun := false
	for _, c := range s.cases(e) {
		if !run.MatchString(c.name) {
			continue
		}
		if !begun {
			fmt.Fprintf(out, "\n## %s\n\n| %s |\n|%s\n", s.title, strings.Join(s.columns, " | "), strings.Repeat("---|", len(s.columns)))
			begun = true
		}

		lines, err := c.measure(ctx, e)
		e.closeWork()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, line := range lines {
			for _, cell := range line {
				if v, ok := cell.(float64); ok {
					cell = number(v)
				}
				fmt.Fprintf(out, "| %v ", cell)
			}
			fmt.Fprintln(out, "|")
		}
	}
	return nil
}

// number formats a figure with three digits.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// scaleTimeout is the session timeout of part scale, the default of the recipes.
const scaleTimeout = 10 * time.Second

// idleSessions is how many sessions do each thing in scale/idle.
const idleSessions = 4

var idleStudy = study{
	title:   "A session that waits or holds, per second, at a session timeout of 10 s",
	columns: []string{"session", "requests and pings", "pings", "writes"},
	cases:   func(*env) []studyCase { return []studyCase{{"scale/idle", idle}} },
}

// A role is what sessions do for as long as they idle. They wait behind a helper's session.
type role struct {
	name string
	help func(ctx context.Context, helper *protocol.Client, path string) error
	wait func(ctx context.Context, c *protocol.Client, path string) error // until ctx ends
}

var roles = []role{
	{"only connected", nil, nil},
	{"waits: `lock.Mutex`", holdLock, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.New(c, path).Lock(ctx)
		return err
	}},
	{"waits: `lock.Simple`", func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.NewSimple(c, path).Lock(ctx)
		return err
	}, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.NewSimple(c, path).Lock(ctx)
		return err
	}},
	{"waits: `rwlock`, to write", holdShared, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := rwlock.New(c, path).Lock(ctx)
		return err
	}},
	{"waits: `rwlock`, to read", func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := rwlock.New(c, path).Lock(ctx)
		return err
	}, holdShared},
	{"waits: `semaphore`", func(ctx context.Context, c *protocol.Client, path string) error {
		return twice(func() error { return acquire(ctx, c, path) })
	}, acquire},
	{"waits: `election`, candidate", campaign, campaign},
	{"observes: `election`", campaign, func(ctx context.Context, c *protocol.Client, path string) error {
		for _, err := range election.New(c, path).Observe(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"waits: `queue`, Take", nil, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path).Take(ctx)
		return err
	}},
	{"waits: `barrier`", func(ctx context.Context, c *protocol.Client, path string) error {
		return barrier.New(c, path+"/b").Set(ctx)
	}, func(ctx context.Context, c *protocol.Client, path string) error {
		return barrier.New(c, path+"/b").Wait(ctx)
	}},
	{"waits: `doublebarrier`, Enter", nil, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := doublebarrier.New(c, path, idleSessions+1).Enter(ctx)
		return err
	}},
	{"holds a lock", nil, func(ctx context.Context, c *protocol.Client, path string) error {
		return holdLocks(ctx, c, path, 1)
	}},
	{"holds 100 locks", nil, func(ctx context.Context, c *protocol.Client, path string) error {
		return holdLocks(ctx, c, path, 100)
	}},
}

func twice(do func() error) error {
	if err := do(); err != nil {
		return err
	}
	return do()
}

func holdLock(ctx context.Context, c *protocol.Client, path string) error {
	_, err := lock.New(c, path).Lock(ctx)
	return err
}

func holdShared(ctx context.Context, c *protocol.Client, path string) error {
	_, err := rwlock.New(c, path).RLock(ctx)
	return err
}

func acquire(ctx context.Context, c *protocol.Client, path string) error {
	_, err := semaphore.New(c, path, 2).Acquire(ctx)
	return err
}

func campaign(ctx context.Context, c *protocol.Client, path string) error {
	_, err := election.New(c, path).Campaign(ctx, payload)
	return err
}

// holdLocks holds n locks of this session alone until ctx ends.
func holdLocks(ctx context.Context, c *protocol.Client, path string, n int) error {
	for i := range n {
		if err := holdLock(ctx, c, fmt.Sprintf("%s/%d-%d", path, time.Now().UnixNano(), i)); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// idle lets the sessions of all roles idle at the same time.
func idle(ctx context.Context, e *env) (lines [][]any, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	helpers := new(traffic)
	timeout := protocol.WithSessionTimeout(scaleTimeout)
	all := []*traffic{helpers}
	names := []string{"helpers"}

	for _, r := range roles {
		path, err := e.newPath()
		if err != nil {
			return nil, err
		}
		if r.help != nil {
			helper, err := e.client(ctx, helpers, timeout)
			if err != nil {
				return nil, err
			}
			if err := r.help(ctx, helper, path); err != nil {
				return nil, err
			}
		}

		t := new(traffic)
		clients, err := e.clients(ctx, t, idleSessions, timeout)
		if err != nil {
			return nil, err
		}
		all, names = append(all, t), append(names, r.name)
		for _, c := range clients {
			if r.wait == nil {
				continue
			}
			go func() {
				if err := r.wait(ctx, c, path); err != nil {
					cancel(fmt.Errorf("%s: %w", r.name, err)) // without effect once it was cancelled
				}
			}()
		}
	}

	t, err := zkLocksWait(ctx, e)
	if err != nil {
		return nil, err
	}
	all, names = append(all, t), append(names, "waits: `zk.Lock`")

	// Begun waits take some requests for a while. A session looks for entries of a queue every
	// minute, so that is how long a measurement takes.
	window := 30 * e.budget
	if err := sleep(ctx, window/3); err != nil {
		return nil, err
	}

	type counts struct{ requests, pings, writes int64 }
	count := func() (c []counts) {
		for _, t := range all {
			c = append(c, counts{t.requests.Load(), t.pings.Load(), t.written()})
		}
		return c
	}

	zxid, before, began := e.zxid(), count(), time.Now()
	if err := sleep(ctx, window); err != nil {
		return nil, err
	}
	after, seconds := count(), time.Since(began).Seconds()
	logged, written := e.zxid()-zxid, int64(0)

	for i, name := range names {
		pings, writes := after[i].pings-before[i].pings, after[i].writes-before[i].writes
		written += writes
		if i > 0 {
			per := seconds * idleSessions
			lines = append(lines, []any{name, float64(after[i].requests-before[i].requests+pings) / per, float64(pings) / per, float64(writes) / per})
		}
	}
	return append(lines, []any{"*all, with their helpers: sent, and in the servers' log*", "", "", fmt.Sprintf("%d, %d in all", written, logged)}), nil
}

// zkLocksWait makes sessions wait for a zk.Lock, until the present work ends.
func zkLocksWait(ctx context.Context, e *env) (*traffic, error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}
	if _, err := e.admin.Create(path+"/lock-0000000000", nil, 0, acl); err != nil { // the holder
		return nil, err
	}

	t := new(traffic)
	for range idleSessions {
		c, err := connectFor(ctx, e.member(t), e.dialer(t), scaleTimeout)
		if err != nil {
			return nil, err
		}
		e.closers = append(e.closers, c.Close)
		go zk.NewLock(c, path, acl).Lock()
	}
	return t, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var lineStudy = study{
	title: "Contenders for one lock, in 100 sessions of one process: lining up, memory of each, hand-offs",
	columns: []string{
		"in line", "", "lined up, s", "requests each", "kB received each", "peak, kB each", "in line, kB each", "goroutines each",
		"hand-off, µs", "of floor", "99 %, µs", "a second", "requests", "kB",
	},
	cases: func(e *env) (all []studyCase) {
		for _, n := range []int{100, 200, 2000, 5000, 10_000} {
			n := e.few(n)
			all = append(all, studyCase{fmt.Sprintf("scale/line-%d", n), func(ctx context.Context, e *env) ([][]any, error) { return lines(ctx, e, n) }})
		}
		return all
	},
}

// zkLockLimit is the longest line of zk.Lock: each of its contenders lists the line.
const zkLockLimit = 2000

// lines lets contestants line up and pass the lock down the line, in turn.
func lines(ctx context.Context, e *env, n int) (table [][]any, err error) {
	sessions := min(e.few(100), n)
	contestants := []string{floor, ours, "zk.Lock"}
	if n > zkLockLimit {
		contestants = contestants[:2]
	}

	makers := []func(*traffic) ([]contender, error){
		func(t *traffic) ([]contender, error) {
			conns, err := e.raws(ctx, t, sessions)
			return floorLine(conns, n, false), err
		},
		func(t *traffic) ([]contender, error) {
			all, err := ourContenders(ctx, e, t, n, sessions)
			return all, errors.Join(err, e.useOnce(ctx, all[:min(sessions, len(all))]))
		},
		func(t *traffic) ([]contender, error) { return zkContenders(ctx, e, t, n, sessions) },
	}

	all := make([]*lineUp, len(contestants))
	for i, name := range contestants {
		all[i] = &lineUp{row: &row{contestant: &contestant{name: name, traffic: new(traffic)}}}
		if all[i].contenders, err = makers[i](all[i].traffic); err != nil {
			return nil, err
		}
	}

	rounds := 3
	if e.short {
		rounds = 1
	}
	for range rounds {
		for _, l := range all {
			if err := l.round(ctx, e, sessions); err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}

	for _, l := range all {
		each := float64(n * rounds)
		hand := l.median()
		table = append(table, []any{
			n, l.name, quantile(l.took, 0.5), float64(l.joining.requests) / each, float64(l.received) / 1000 / each,
			quantile(l.peak, 1) / 1000, quantile(l.memory, 1) / 1000, quantile(l.goroutines, 0.5),
			hand * 1e6, l.against(all[0].row).median, quantile(l.gaps, 0.99) * 1e6, 1 / hand,
			float64(l.total.requests) / float64(l.total.ops), float64(l.total.bytes) / 1000 / float64(l.total.ops),
		})
	}
	return table, nil
}

// useOnce lets each contender have a path alone, so that what a session needs for its first lock is
// not counted as a waiter's.
func (e *env) useOnce(ctx context.Context, contenders []contender) error {
	for _, c := range contenders {
		path, err := e.newPath()
		if err != nil {
			return err
		}
		release, err := c(ctx, path)
		if err != nil {
			return err
		}
		if err := release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A lineUp is a contestant of the study of lines.
type lineUp struct {
	*row
	contenders               []contender
	joining                  figures
	received                 int64 // bytes, while joining
	took                     []float64
	peak, memory, goroutines []float64 // bytes, bytes, number, of each contender
	gaps                     []float64 // seconds between holders
}

func (l *lineUp) round(ctx context.Context, e *env, sessions int) error {
	n := len(l.contenders)
	grants := make([]time.Time, n)
	var granted atomic.Int64
	all := make([]contender, n)
	for i, c := range l.contenders {
		all[i] = func(ctx context.Context, path string) (func(context.Context) error, error) {
			release, err := c(ctx, path)
			grants[granted.Add(1)-1] = time.Now()
			return release, err
		}
	}

	collect()
	base, goroutines := memory(), runtime.NumGoroutine()
	peak := watchMemory()
	m := &meter{env: e, of: l.contestant}
	before, received, began := m.now(), l.traffic.received.Load(), time.Now()
	err := chainOnce(ctx, e, m, all, sessions, func() {
		l.took = append(l.took, time.Since(began).Seconds())
		l.received += l.traffic.received.Load() - received
		l.joining.requests += m.now().requests - before.requests
		l.peak = append(l.peak, float64(peak()-base)/float64(n))
		collect()
		l.memory = append(l.memory, float64(memory()-base)/float64(n))
		l.goroutines = append(l.goroutines, float64(runtime.NumGoroutine()-goroutines)/float64(n))
	})
	if err != nil {
		return err
	}

	l.perOp = append(l.perOp, m.total.elapsed.Seconds()/float64(m.total.ops))
	l.total.add(m.total)
	for i := 2; i < n; i++ { // what comes before is the wait for the whole line
		l.gaps = append(l.gaps, grants[i].Sub(grants[i-1]).Seconds())
	}
	return nil
}

// collect collects garbage, twice: what has a finalizer goes in the second run.
func collect() {
	runtime.GC()
	runtime.GC()
}

// memory returns the bytes of heap objects and stacks.
func memory() int64 {
	all := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(all)
	return int64(all[0].Value.Uint64() + all[1].Value.Uint64())
}

// watchMemory notes the most memory, garbage included, until peak is called.
func watchMemory() (peak func() int64) {
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		m := memory()
		for {
			select {
			case <-time.After(5 * time.Millisecond):
				m = max(m, memory())
			case <-done:
				most <- m
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}

var cycleStudy = study{
	title: "Lock and unlock",
	columns: []string{
		"sessions", "network", "", "cycles a second", "rate, of zk.Lock's", "±", "requests", "kB", "servers, µs", "client, µs",
	},
	cases: func(e *env) (all []studyCase) {
		for _, n := range []int{1, 8, 64} {
			all = append(all, studyCase{fmt.Sprintf("scale/cycle-%d", n), func(ctx context.Context, e *env) ([][]any, error) { return cycles(ctx, e, n) }})
		}
		return all
	},
}

// cycles measures with the network as it is, and with a millisecond more on one server.
func cycles(ctx context.Context, e *env, sessions int) (table [][]any, err error) {
	latencies := []time.Duration{e.latency}
	if len(e.members) == 1 && e.latency == 0 {
		latencies = append(latencies, time.Millisecond)
	}
	defer func(latency time.Duration, peers []*peer) { e.latency, e.peers = latency, peers }(e.latency, e.peers)

	for _, e.latency = range latencies {
		if e.latency > 0 {
			e.peers = nil
		}
		w := work{name: fmt.Sprintf("scale/cycle-%d", sessions), enter: func(ctx context.Context, e *env) ([]*contestant, error) { return contended(ctx, e, sessions) }}
		if sessions == 1 {
			w.slice, w.enter = 10*time.Millisecond, uncontended
		}
		rows, err := measure(ctx, e, w)
		if err != nil {
			return nil, err
		}

		zkLock := group{rows: rows}.row("zk.Lock")
		for _, r := range rows {
			f, ops, of := r.total, float64(r.total.ops), zkLock.against(r)
			table = append(table, []any{
				sessions, e.latency, r.name, ops / f.elapsed.Seconds(), of.median, of.spread, float64(f.requests) / ops, float64(f.bytes) / 1000 / ops,
				f.server.Seconds() * 1e6 / ops, f.client.Seconds() * 1e6 / ops,
			})
		}
	}
	return table, nil
}

var pricesStudy = study{
	title:   "What single requests cost the servers, 64 at a time in 8 sessions of the plain client",
	columns: []string{"request", "a second", "servers, µs", "the leader, µs", "client, µs", "kB"},
	cases:   func(*env) []studyCase { return []studyCase{{"scale/prices", prices}} },
}

// prices measures the requests of which the recipes are made.
func prices(ctx context.Context, e *env) (table [][]any, err error) {
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}
	if _, err := e.admin.Set(path, payload, -1); err != nil {
		return nil, err
	}
	const sessions, workers = 8, 64
	enter := func(name string, do func(*zk.Conn) error) func(ctx context.Context, e *env) (*contestant, error) {
		return func(ctx context.Context, e *env) (*contestant, error) {
			t := new(traffic)
			conns, err := e.raws(ctx, t, sessions)
			return &contestant{name: name, traffic: t, run: together(workers, func(_ context.Context, i, _ int) error {
				return do(conns[i%sessions])
			})}, err
		}
	}

	rows, err := measure(ctx, e, work{name: "scale/prices", enter: func(ctx context.Context, e *env) (all []*contestant, err error) {
		for _, one := range []func(context.Context, *env) (*contestant, error){
			enter("read 100 bytes", func(c *zk.Conn) error {
				_, _, err := c.Get(path)
				return err
			}),
			enter("sync", func(c *zk.Conn) error {
				_, err := c.Sync(path)
				return err
			}),
			enter("delete a node that does not exist", func(c *zk.Conn) error {
				if err := c.Delete(path+"/none", -1); !errors.Is(err, zk.ErrNoNode) {
					return fmt.Errorf("delete: %w", err)
				}
				return nil
			}),
			enter("set 100 bytes", func(c *zk.Conn) error {
				_, err := c.Set(path, payload, -1)
				return err
			}),
			enter("create an ephemeral node and delete it (2 requests)", func(c *zk.Conn) error {
				node, err := c.Create(path+"/n-", payload, zk.FlagEphemeralSequential, acl)
				if err != nil {
					return err
				}
				return c.Delete(node, -1)
			}),
		} {
			c, err := one(ctx, e)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		return all, nil
	}})
	if err != nil {
		return nil, err
	}

	for _, r := range rows {
		f, ops := r.total, float64(r.total.ops)
		table = append(table, []any{r.name, ops / f.elapsed.Seconds(), f.server.Seconds() * 1e6 / ops, f.leader.Seconds() * 1e6 / ops, f.client.Seconds() * 1e6 / ops, float64(f.bytes) / 1000 / ops})
	}
	return table, nil
}

var leasesStudy = study{
	title:   "Locks that one session holds, at a session timeout of 10 s, and a connection that breaks",
	columns: []string{"held", "taken, a second", "kB each", "goroutines each", "connected after, s", "sent for it, kB", "received, kB", "lost after 2 timeouts"},
	cases:   func(e *env) []studyCase { return []studyCase{{"scale/leases", leases}} },
}

// leases holds many locks in one session, and breaks its connection.
func leases(ctx context.Context, e *env) ([][]any, error) {
	n := e.few(e.leases)
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}
	t := new(traffic)
	states := make(chan protocol.State, 100)
	c, err := e.client(ctx, t, protocol.WithSessionTimeout(scaleTimeout), protocol.WithStateListener(func(s protocol.State) { states <- s }))
	if err != nil {
		return nil, err
	}

	const workers = 64
	held := make([]*lock.Lease, n)
	collect()
	base, goroutines, began := memory(), runtime.NumGoroutine(), time.Now()
	_, err = inParallel(workers, func(worker int) (_ int, err error) {
		for i := worker; i < n && err == nil; i += workers {
			held[i], err = lock.New(c, fmt.Sprintf("%s/%d/%d", path, i/1000, i)).Lock(ctx)
		}
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	if err := e.silence(ctx, t); err != nil {
		return nil, err
	}
	collect()
	each, more := float64(memory()-base)/float64(n), float64(runtime.NumGoroutine()-goroutines)/float64(n)

	for len(states) > 0 {
		<-states
	}
	sent, received, broke := t.sent.Load(), t.received.Load(), time.Now()
	t.cut()
	for s := protocol.Suspended; s != protocol.Connected; {
		select {
		case s = <-states:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	back := time.Since(broke)
	if err := e.silence(ctx, t); err != nil {
		return nil, err
	}
	sent, received = t.sent.Load()-sent, t.received.Load()-received

	// What was not confirmed in time is lost by then.
	if err := sleep(ctx, min(10*e.budget, 2*scaleTimeout)); err != nil {
		return nil, err
	}
	lost := 0
	for _, l := range held {
		if l.Err() != nil {
			lost++
		}
	}

	_, err = inParallel(workers, func(worker int) (_ int, err error) {
		for i := worker; i < n; i += workers {
			held[i].Unlock(ctx)
		}
		return 0, nil
	})
	return [][]any{{n, float64(n) / took.Seconds(), each / 1000, more, back.Seconds(), float64(sent) / 1000, float64(received) / 1000, lost}}, err
}

// silence waits until a session that idles has sent little for half a second.
func (e *env) silence(ctx context.Context, t *traffic) error {
	pause := min(e.budget, 500*time.Millisecond)
	for last := int64(-10); ; {
		now := t.requests.Load()
		if now-last <= 3 {
			return nil
		}
		last = now
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

var observersStudy = study{
	title:   "Observers of an election, and a change of leader",
	columns: []string{"observers", "sessions", "requests each", "packets received each", "bytes received each", "all know after, ms", "ms for each"},
	cases: func(e *env) (all []studyCase) {
		n := e.few(1000)
		for _, sessions := range []int{1, n / 10, n} {
			all = append(all, studyCase{fmt.Sprintf("scale/observers-%d", sessions), func(ctx context.Context, e *env) ([][]any, error) { return observers(ctx, e, n, sessions) }})
		}
		return all
	},
}

// observers lets the leader change a few times.
func observers(ctx context.Context, e *env, n, sessions int) ([][]any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	path, err := e.newPath()
	if err != nil {
		return nil, err
	}
	candidates, err := e.clients(ctx, new(traffic), 2)
	if err != nil {
		return nil, err
	}
	t := new(traffic)
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	term, err := election.New(candidates[0], path).Campaign(ctx, payload)
	if err != nil {
		return nil, err
	}

	seen := make(chan int64, n)
	for i := range n {
		watching.Go(func() {
			for leader, err := range election.New(clients[i%sessions], path).Observe(ctx) {
				if err != nil {
					cancel(err)
					return
				}
				select {
				case seen <- leader.Token:
				case <-ctx.Done():
				}
			}
		})
	}

	known := make(map[int64]int)
	allKnow := func(term *election.Term) error {
		for known[term.Token()] < n {
			select {
			case token := <-seen:
				known[token]++
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	if err := errors.Join(allKnow(term), e.silence(ctx, t)); err != nil {
		return nil, err
	}

	const changes = 4
	var took []float64
	requests, packets, received := t.requests.Load(), t.packets.Load(), t.received.Load()
	for i := range changes {
		next := make(chan *election.Term, 1)
		go func() {
			t, err := election.New(candidates[(i+1)%2], path).Campaign(ctx, payload)
			if err != nil {
				cancel(err)
			}
			next <- t
		}()
		if err := e.awaitLine(ctx, path, 2, sessions, t); err != nil {
			return nil, err
		}

		began := time.Now()
		if err := term.Resign(ctx); err != nil {
			return nil, err
		}
		if term = <-next; term == nil {
			return nil, context.Cause(ctx)
		}
		if err := allKnow(term); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	if err := e.silence(ctx, t); err != nil {
		return nil, err
	}

	each := float64(n * changes)
	ms := quantile(took, 0.5) * 1000
	return [][]any{{
		n, sessions, float64(t.requests.Load()-requests) / each, float64(t.packets.Load()-packets) / each,
		float64(t.received.Load()-received) / each, ms, ms / float64(n),
	}}, nil
}
