package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

const sessionTimeout = 30 * time.Second // long, so that keeping sessions alive doesn't disturb

// payload is the data of nodes and queue entries.
var payload = []byte(strings.Repeat("0123456789", 10))

var acl = zk.WorldACL(zk.PermAll)

type options struct {
	servers    string
	embedded   bool
	standalone bool
	ensemble   int // how many members it has
	alone      bool
	run        *regexp.Regexp
	time       time.Duration // for each contestant
	latency    time.Duration // added to each round trip
}

// An env is the environment of contestants: a server with connections and paths, and the other
// libraries.
type env struct {
	*server
	options
	addresses []string // of the members, for contestants
	short     bool
	admin     *zk.Conn // for work that isn't measured
	root      string
	paths     atomic.Int64
	peers     []*peer
	absent    []string // why there are no more peers

	closers []func() // of the current work
}

// shortBudget is the largest budget with which the program not only runs for less time but also
// does less.
const shortBudget = 100 * time.Millisecond

// prepare prepares measurements on the server.
func (e *env) prepare(ctx context.Context) {
	e.moveAway()
	e.admin = connect(ctx, e.address, new(traffic).dial)
	e.root = fmt.Sprintf("/zkrecipes-bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	must.Get(e.admin.Create(e.root, nil, 0, acl))
	e.warmUp(ctx)

	// Peers dial the server's own addresses, where the added latency doesn't apply.
	if e.alone || e.latency > 0 {
		e.absent = append(e.absent, "libraries of other languages")
	} else {
		e.startPeers(ctx)
	}
}

// moveAway makes the members seem as far away as the options say.
func (e *env) moveAway() {
	for _, m := range e.members {
		address := m.address
		if e.latency > 0 {
			link := reach.NewLink()
			way := reach.Traffic{Delay: e.latency / 2}
			link.Set(way, way)
			address = reach.Local(must.Get(link.Listen(reach.Local(0), address)))
		}
		e.addresses = append(e.addresses, address)
	}
}

// warmUp gives a new server time to compile its most frequent operations.
func (e *env) warmUp(ctx context.Context) {
	until := time.Now().Add(2 * e.time)
	inParallel(16, func(int) int {
		for ctx.Err() == nil && time.Now().Before(until) {
			node := must.Get(e.admin.Create(e.root+"/n-", payload, zk.FlagEphemeralSequential, acl))
			must.Succeed(e.admin.Delete(node, -1))
		}
		return 0
	})
}

func (e *env) heading() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s.\n", e.where)
	if e.latency > 0 {
		fmt.Fprintf(&b, "The network makes each round trip %v longer.\n", e.latency)
	}

	if e.short {
		b.WriteString("Short mode: few rounds and few waiters. The figures mean little.\n")
	}

	for _, why := range e.absent {
		fmt.Fprintf(&b, "Left out: %s.\n", why)
	}

	b.WriteString(`
time is per operation, median of the rounds; quiet is the time that one round in ten undercuts, when
other load on the machine is low. Ratios compare times within a round, and are medians: ± is half the distance between quartiles.
requests, and kB of both directions, are counted at the connection (at the server, and no bytes, for other languages).
CPU time, in µs, is that of the whole client process, garbage collection included, and that of all servers.
`)

	return b.String()
}

func (e *env) close() {
	e.closeWork()
	// Peers first, because their sessions can still hold nodes below the root.
	for _, p := range e.peers {
		p.Close()
	}
	if e.admin != nil {
		if err := must.Try(func() { e.removeAll(e.root) }); err != nil {
			fmt.Fprintln(os.Stderr, "bench: not cleaned up:", err)
		}
		e.admin.Close()
	}
	e.server.stop()
}

// closeWork ends the connections of the current work.
func (e *env) closeWork() {
	for _, c := range slices.Backward(e.closers) {
		c()
	}
	e.closers = nil
}

// newPath creates a node for some work, and returns its path.
func (e *env) newPath() string {
	return must.Get(e.admin.Create(fmt.Sprintf("%s/%d", e.root, e.paths.Add(1)), nil, 0, acl))
}

// member returns the server for a contestant's next session. The sessions of all contestants are
// spread in the same way (the first is at a follower).
func (e *env) member(t *traffic) string {
	return e.addresses[int(t.sessions.Add(1)-1)%len(e.addresses)]
}

// raw opens a connection that lasts as long as the current work.
func (e *env) raw(ctx context.Context, t *traffic) *zk.Conn {
	c := connect(ctx, e.member(t), t.dial)
	e.closers = append(e.closers, c.Close)
	return c
}

func (e *env) raws(ctx context.Context, t *traffic, n int) []*zk.Conn {
	return several(n, func() *zk.Conn { return e.raw(ctx, t) })
}

// client opens a client that lasts as long as the current work.
func (e *env) client(ctx context.Context, t *traffic) *protocol.Client {
	c := must.Get(protocol.Connect(ctx, e.member(t), protocol.WithDialer(t.dial), protocol.WithSessionTimeout(sessionTimeout)))
	e.closers = append(e.closers, func() { c.Close() })
	return c
}

func (e *env) clients(ctx context.Context, t *traffic, n int) []*protocol.Client {
	return several(n, func() *protocol.Client { return e.client(ctx, t) })
}

func several[T any](n int, one func() T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = one()
	}
	return all
}

func connect(ctx context.Context, servers string, dial zk.Dialer) *zk.Conn {
	// zk.Connect returns at once and dials for ever, so a wrong address would hang the benchmark.
	c, events, err := zk.Connect(strings.Split(servers, ","), sessionTimeout, zk.WithDialer(dial), zk.WithLogInfo(false))
	must.Succeed(err)
	late := time.After(30 * time.Second)
	for {
		select {
		case ev := <-events:
			if ev.State == zk.StateHasSession {
				return c
			}
		case <-ctx.Done():
			c.Close()
			must.Succeed(ctx.Err())
		case <-late:
			c.Close()
			must.Fail("no session at %s", servers)
		}
	}
}

// removeAll deletes a node and everything below it, many nodes per transaction.
func (e *env) removeAll(dir string) {
	children, _, err := e.admin.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return
	}
	must.Succeed(err)

	// A transaction for each of them would take longer than the measurement.
	for some := range slices.Chunk(children, 500) {
		var ops []any
		for _, child := range some {
			ops = append(ops, &zk.DeleteRequest{Path: path.Join(dir, child), Version: -1})
		}
		if _, err := e.admin.Multi(ops...); err == nil {
			continue
		}
		for _, child := range some { // one of them has children
			e.removeAll(path.Join(dir, child))
		}
	}

	switch err := e.admin.Delete(dir, -1); {
	case errors.Is(err, zk.ErrNotEmpty): // sessions are still at work there
		e.removeAll(dir)
	case !errors.Is(err, zk.ErrNoNode):
		must.Succeed(err)
	}
}
