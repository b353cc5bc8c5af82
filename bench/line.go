package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A contender waits in line at path until it is granted, and returns what gives that back. It
// belongs to one session, and fails by package must.
type contender func(ctx context.Context, path string) (release func(context.Context) error)

// chain measures only hand-offs. All contenders line up, and then each releases as soon as it is
// granted. No contender joins meanwhile.
func chain(e *env, contenders []contender, sessions int) func(context.Context, *meter) {
	return func(ctx context.Context, m *meter) {
		for m.more() {
			chainOnce(ctx, e, m, contenders, sessions)
		}
	}
}

func chainOnce(ctx context.Context, e *env, m *meter, contenders []contender, sessions int) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	path := e.newPath()
	// The first contender keeps all others in line until they are measured.
	release := contenders[0](ctx, path)

	// Only the grants belong to the measurement, not the releases.
	granted, released := make(chan struct{}, len(contenders)), make(chan struct{}, len(contenders))
	for _, c := range contenders[1:] {
		go func() {
			err := must.Try(func() {
				release := c(ctx, path)
				granted <- struct{}{}
				must.Succeed(release(context.WithoutCancel(ctx))) // as callers should
			})
			if err != nil {
				cancel(err)
			}
			released <- struct{}{}
		}()
	}
	all := func(signals <-chan struct{}) {
		for range contenders[1:] {
			select {
			case <-signals:
			case <-ctx.Done():
			}
		}
		must.Succeed(context.Cause(ctx))
	}

	e.awaitLine(ctx, path, len(contenders), sessions, m.of.traffic)

	// From here on, each contender releases as soon as it is granted.
	m.start()
	must.Succeed(release(context.WithoutCancel(ctx)))
	all(granted)

	// The last release hands nothing on, so the clock stops before it.
	m.stop(len(contenders) - 1)
	all(released)
	e.removeAll(path)
}

// awaitLine waits until n nodes are below path and their owners have become silent. Silence means
// at most 3+sessions/8 requests in 10 ms, because sessions must be kept alive.
func (e *env) awaitLine(ctx context.Context, path string, n, sessions int, t *traffic) {
	requests := func() int64 {
		if t != nil {
			return t.requests.Load()
		}
		return e.received()
	}

	const pause = 10 * time.Millisecond
	// One quiet pause isn't enough: a slow contender's requests can be further apart.
	calm := 0

	for began, last := time.Now(), requests(); calm < 3; {
		time.Sleep(pause)
		_, stat, err := e.admin.Exists(path)
		must.Succeed(errors.Join(err, context.Cause(ctx)))

		now := requests()
		// A contender whose node exists can still have requests under way (for a watch, say).
		if int(stat.NumChildren) < n || now-last > int64(3+sessions/8) {
			calm = 0
		} else {
			calm++
		}

		last = now
		// A contender that hangs without an error must not hang the benchmark.
		if time.Since(began) > 3*time.Minute {
			must.Fail("%d of %d in line after %v", stat.NumChildren, n, time.Since(began).Round(time.Second))
		}
	}
}

// floorLine makes contenders that cost as little as a hand-off can. Each watches its predecessor,
// and deletes its own node as soon as the predecessor's is gone. With marker it also watches for
// the predecessor's release marker, and creates and deletes its own marker in the transaction that
// deletes its node (as we do).
func floorLine(conns []*zk.Conn, n int, marker bool) []contender {
	all := make([]contender, n)
	for i := range all {
		c := conns[i%len(conns)]
		all[i] = func(ctx context.Context, path string) func(context.Context) error {
			// The contender knows its predecessor's name, and needs no listing of the line.
			own, before := fmt.Sprintf("%s/n-%010d", path, i), fmt.Sprintf("%s/n-%010d", path, i-1)
			var gone <-chan zk.Event
			if i > 0 {
				if marker {
					_, _, _, err := c.ExistsW(before + "-marker")
					must.Succeed(err)
				}
				gone = watchNode(ctx, c, before)
			}

			// The line is complete with the last node. Watch first, because no predecessor may go
			// before it is watched.
			must.Get(c.Create(own, payload, zk.FlagEphemeral, acl))
			if i > 0 {
				await(ctx, gone)
			}

			if !marker {
				return func(context.Context) error { return c.Delete(own, -1) }
			}

			// Creating and deleting the marker in one transaction still fires the watch of the next
			// contender.
			return func(context.Context) error {
				_, err := c.Multi(
					&zk.CreateRequest{Path: own + "-marker", Acl: acl, Flags: zk.FlagEphemeral},
					&zk.DeleteRequest{Path: own + "-marker", Version: -1},
					&zk.DeleteRequest{Path: own, Version: -1})
				return err
			}
		}
	}

	return all
}

// watchNode waits until a node exists. The channel has an event when it is deleted.
func watchNode(ctx context.Context, c *zk.Conn, node string) <-chan zk.Event {
	for {
		exists, _, event, err := c.ExistsW(node)
		must.Succeed(err)
		if exists {
			return event
		}
		await(ctx, event)
	}
}

func await(ctx context.Context, event <-chan zk.Event) {
	select {
	case ev := <-event:
		must.Succeed(ev.Err)
	case <-ctx.Done():
		must.Succeed(context.Cause(ctx))
	}
}

// floorLines returns a chain that costs as little as it can, without and with release markers.
func floorLines(ctx context.Context, e *env, n, sessions int) (all []*contestant) {
	for _, name := range []string{floor, bare} {
		t := new(traffic)
		contenders := floorLine(e.raws(ctx, t, sessions), n, name == bare)
		all = append(all, &contestant{name: name, traffic: t, run: chain(e, contenders, sessions)})
	}
	return all
}

// ourLine returns a chain of n contenders in that many of our sessions.
func ourLine(ctx context.Context, e *env, n, sessions int, of func(*protocol.Client) contender) *contestant {
	t := new(traffic)
	return line(e, ours, t, e.clients(ctx, t, sessions), n, of)
}

// line returns a chain of n contenders in these sessions. Neighbours in line belong to different
// sessions, so that each hand-off is between sessions.
func line[S any](e *env, name string, t *traffic, sessions []S, n int, of func(S) contender) *contestant {
	all := make([]contender, n)
	for i := range all {
		all[i] = of(sessions[i%len(sessions)])
	}
	return &contestant{name: name, traffic: t, run: chain(e, all, len(sessions))}
}

// peerLines returns the contestants of a chain that are written in other languages.
func (e *env) peerLines(kind string, n, sessions int) []*contestant {
	return e.peersWith(kind, func(ctx context.Context, m *meter, p *peer, dir string) {
		for i := 0; m.more(); i++ {
			path := fmt.Sprintf("%s/%d", dir, i)
			must.Get(e.admin.Create(path, nil, 0, acl))
			// The peer answers when the first contender holds the lock and the others have begun to
			// wait.
			p.do(ctx, kind, path, n, sessions)
			e.awaitLine(ctx, path, n, sessions, nil)
			p.measured(ctx, m, "drain")
		}
	})
}
