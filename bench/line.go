package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A contender waits in line at path until it is granted. It belongs to one session.
type contender func(ctx context.Context, path string) (release func(context.Context) error, err error)

// chain measures only hand-offs. All contenders line up, and then each releases as soon as it is
// granted. No contender joins meanwhile.
func chain(e *env, contenders []contender, sessions int) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		for m.more() {
			if err := chainOnce(ctx, e, m, contenders, sessions, func() {}); err != nil {
				return err
			}
		}
		return nil
	}
}

// chainOnce calls lined when all contenders are in line.
func chainOnce(ctx context.Context, e *env, m *meter, contenders []contender, sessions int, lined func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	path, err := e.newPath()
	if err != nil {
		return err
	}

	release, err := contenders[0](ctx, path)
	if err != nil {
		return err
	}

	var held, gone sync.WaitGroup
	held.Add(len(contenders) - 1)

	for _, c := range contenders[1:] {
		gone.Go(func() {
			release, err := c(ctx, path)
			held.Done()
			if err == nil {
				err = release(ctx)
			}
			if err != nil {
				cancel(err)
			}
		})
	}

	if err := e.awaitLine(ctx, path, len(contenders), sessions, m.of.traffic); err != nil {
		return err
	}

	lined()
	m.start()
	if err := release(ctx); err != nil {
		return err
	}

	if err := waitFor(ctx, &held); err != nil {
		return err
	}

	m.stop(len(contenders) - 1)
	if err := waitFor(ctx, &gone); err != nil {
		return err
	}

	return e.removeAll(path)
}

// awaitLine waits until n nodes are below path and their owners have become silent. Silence means
// at most 3+sessions/8 requests in 10 ms, because sessions must be kept alive.
func (e *env) awaitLine(ctx context.Context, path string, n, sessions int, t *traffic) error {
	requests := func() int64 {
		if t != nil {
			return t.requests.Load()
		}
		return e.received()
	}

	const pause = 10 * time.Millisecond
	calm := 0

	for began, last := time.Now(), requests(); calm < 3; {
		time.Sleep(pause)
		_, stat, err := e.admin.Exists(path)
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}

		now := requests()
		if int(stat.NumChildren) < n || now-last > int64(3+sessions/8) {
			calm = 0
		} else {
			calm++
		}

		last = now
		if time.Since(began) > 3*time.Minute {
			return fmt.Errorf("%d of %d in line after %v", stat.NumChildren, n, time.Since(began).Round(time.Second))
		}
	}

	return nil
}

// floorLine makes contenders that cost as little as a hand-off can. Each watches its predecessor,
// and deletes its own node as soon as the predecessor's is gone. With marker it also watches for
// the predecessor's release marker, and creates and deletes its own marker in the transaction that
// deletes its node (as we do).
func floorLine(conns []*zk.Conn, n int, marker bool) []contender {
	all := make([]contender, n)
	for i := range all {
		c := conns[i%len(conns)]
		all[i] = func(ctx context.Context, path string) (func(context.Context) error, error) {
			own := fmt.Sprintf("%s/n-%010d", path, i)
			if _, err := c.Create(own, payload, zk.FlagEphemeral, acl); err != nil {
				return nil, err
			}

			if i > 0 {
				before := fmt.Sprintf("%s/n-%010d", path, i-1)
				if marker {
					if _, _, _, err := c.ExistsW(before + "-marker"); err != nil {
						return nil, err
					}
				}
				if err := awaitEnd(ctx, c, before); err != nil {
					return nil, err
				}
			}

			if !marker {
				return func(context.Context) error { return c.Delete(own, -1) }, nil
			}

			return func(context.Context) error {
				_, err := c.Multi(
					&zk.CreateRequest{Path: own + "-marker", Acl: acl, Flags: zk.FlagEphemeral},
					&zk.DeleteRequest{Path: own + "-marker", Version: -1},
					&zk.DeleteRequest{Path: own, Version: -1})
				return err
			}, nil
		}
	}

	return all
}

// awaitEnd waits until a node exists, and then until it is deleted.
func awaitEnd(ctx context.Context, c *zk.Conn, node string) error {
	for {
		_, _, event, err := c.GetW(node)
		if errors.Is(err, zk.ErrNoNode) {
			select {
			case <-time.After(time.Millisecond):
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		} else if err != nil {
			return err
		}

		select {
		case ev := <-event:
			return ev.Err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goLines returns the contestants of a chain that are written in Go.
func goLines(ctx context.Context, e *env, n, sessions int, others ...func(context.Context, *env, int, int) (*contestant, error)) ([]*contestant, error) {
	t := new(traffic)
	conns, err := e.raws(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	all := []*contestant{{name: floor, traffic: t, run: chain(e, floorLine(conns, n, false), sessions)}}
	t = new(traffic)
	if conns, err = e.raws(ctx, t, sessions); err != nil {
		return nil, err
	}

	all = append(all, &contestant{name: bare, traffic: t, run: chain(e, floorLine(conns, n, true), sessions)})

	for _, other := range others {
		c, err := other(ctx, e, n, sessions)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}

	return all, nil
}

// peerLines returns the contestants of a chain that are written in other languages.
func (e *env) peerLines(kind string, n, sessions int) []*contestant {
	return e.peersWith(kind, func(p *peer) func(context.Context, *meter) error {
		return func(ctx context.Context, m *meter) error {
			for m.more() {
				path, err := e.newPath()
				if err != nil {
					return err
				}

				if _, _, err := p.do(ctx, kind, path, n, sessions); err != nil {
					return err
				}

				if err := e.awaitLine(ctx, path, n, sessions, nil); err != nil {
					return err
				}

				m.start()
				ops, elapsed, err := p.do(ctx, "drain")
				if err != nil {
					return err
				}

				m.stopAt(ops, elapsed)
				if err := e.removeAll(path); err != nil {
					return err
				}
			}

			return nil
		}
	})
}
