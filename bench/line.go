package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A contender stands in line for something at path until it has it. It belongs to one session.
type contender func(ctx context.Context, path string) (release func(context.Context) error, err error)

// chain measures hand-offs alone: all stand in line, then each, once it has the thing, releases it at once. Nobody comes
// in meanwhile.
func chain(e *env, contenders []contender, sessions int) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		for m.more() {
			if err := chainOnce(ctx, e, m, contenders, sessions); err != nil {
				return err
			}
		}
		return nil
	}
}

func chainOnce(ctx context.Context, e *env, m *meter, contenders []contender, sessions int) error {
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

// awaitLine waits until n nodes are below path, and those whose they are have nothing more to say: at most what keeps
// that many sessions alive.
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

// floorLine is the least that hand-offs could cost: each contender watches the one before it, and deletes its own node as
// soon as it hears that the other one's is gone. With a mark it also watches for that, and makes and deletes its own in
// the transaction in which it deletes its node, which is what we do.
func floorLine(conns []*zk.Conn, n int, mark bool) []contender {
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
				if mark {
					if _, _, _, err := c.ExistsW(before + "-mark"); err != nil {
						return nil, err
					}
				}
				if err := awaitEnd(ctx, c, before); err != nil {
					return nil, err
				}
			}
			if !mark {
				return func(context.Context) error { return c.Delete(own, -1) }, nil
			}
			return func(context.Context) error {
				_, err := c.Multi(
					&zk.CreateRequest{Path: own + "-mark", Acl: acl, Flags: zk.FlagEphemeral},
					&zk.DeleteRequest{Path: own + "-mark", Version: -1},
					&zk.DeleteRequest{Path: own, Version: -1})
				return err
			}, nil
		}
	}
	return all
}

// awaitEnd waits until a node is there, and then until it is not.
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

// goLines are the contestants of a chain that are written in Go.
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

// peerLines are those that are not.
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
