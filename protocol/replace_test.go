package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// granted returns a grant whose node is below path.
func granted(t *testing.T, s *recipe.Session, r *recipe.Recipe) (g *recipe.Grant, node string) {
	t.Helper()
	own, err := s.CreateOwn(lasting(t), recipe.OwnNode{Dir: r.Path(), Prefix: s.NewOwner().String() + "-"})
	require.NoError(t, err)
	node = r.Path() + "/" + own.Name()
	stat, err := s.Exists(lasting(t), node)
	require.NoError(t, err)
	g, err = r.NewGrant(lasting(t), s, node, stat.Czxid, func(ctx context.Context, s *recipe.Session) error { return s.Delete(ctx, node, -1) })
	require.NoError(t, err)
	return g, node
}

// swap puts next in the place of old.
func swap(ctx context.Context, s *recipe.Session, old, next string) error {
	_, err := s.Multi(ctx, &zk.CreateRequest{Path: next, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: old, Version: -1})
	return err
}

func TestReplacementWhoseOutcomeIsUnknownIsGivenBack(t *testing.T) {
	for name, done := range map[string]bool{"done": true, "not done": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				c, path := srv.Client(t), srv.Root(t)+"/x"
				s := session(t, c)
				g, old := granted(t, s, recipe.New(c, "test", path))

				_, err := g.Replace(lasting(t), recipe.New(c, "test", path), path+"/next", func(ctx context.Context, s *recipe.Session) error {
					if done {
						require.NoError(t, swap(ctx, s, old, path+"/next"))
					}
					return protocol.ErrUncertain
				})

				require.ErrorIs(t, err, protocol.ErrUncertain)
				require.ErrorIs(t, g.Err(), protocol.ErrReleased)
				_ = g.Release(lasting(t))
				names, _, err := s.Children(lasting(t), path)
				require.NoError(t, err)
				require.Empty(t, names)
			})
		})
	}
}

// Whichever way deletes the old node of a grant that is being replaced knows nothing of the new
// one.
func TestReleaseInAnotherWayWhileReplacedLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s, r := session(t, c), recipe.New(c, "test", path)
		g, old := granted(t, s, r)
		next := path + "/next"
		remove := func(ctx context.Context, s *recipe.Session) error { return s.Delete(ctx, old, -1) }
		swapped, released := make(chan struct{}), make(chan struct{})
		replaced := later(func() error {
			_, err := g.Replace(lasting(t), r, next, func(ctx context.Context, s *recipe.Session) error {
				err := swap(ctx, s, old, next)
				close(swapped)
				<-released
				return err
			})
			return err
		})
		wait(t, swapped)

		begun, err := g.ReleaseWith(lasting(t), remove)
		close(released)

		require.False(t, begun)
		require.ErrorIs(t, err, protocol.ErrReleased)
		require.ErrorIs(t, wait(t, replaced), protocol.ErrReleased)
		names, _, err := s.Children(lasting(t), path)
		require.NoError(t, err)
		require.Empty(t, names)
	})
}

// replacing returns work for Replace that puts the node at path in g's place.
func replacing(g *recipe.Grant, line, path string) func(context.Context, *recipe.Session) error {
	return func(ctx context.Context, s *recipe.Session) error {
		_, err := s.Multi(ctx,
			&zk.CreateRequest{Path: path, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: line + "/" + g.Node(), Version: -1})
		return err
	}
}

func requireNoChildren(t *testing.T, s *recipe.Session, path string) {
	t.Helper()
	requireSoon(t, func() bool {
		children, _, err := s.Children(lasting(t), path)
		require.NoError(t, err)
		return len(children) == 0
	}, "a node is left")
}

// The holder watches its node, and may hear of its end before Replace has returned.
func TestReplacementIsNotMistakenForALoss(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		watched := link.Answered(recipestest.OpGetData, 1)
		c := link.Client(t)
		g := hold(t, c, path)
		wait(t, watched)
		replace := replacing(g, path, path+"/next")

		next, err := g.Replace(lasting(t), recipe.New(c, "test", path), path+"/next", func(ctx context.Context, s *recipe.Session) error {
			err := replace(ctx, s)
			synctest.Wait() // whatever can be found out has been
			return err
		})

		require.NoError(t, err)
		require.ErrorIs(t, g.Err(), protocol.ErrReleased)
		require.NoError(t, next.Err())
		require.Equal(t, g.Token(), next.Token())
		release(t, next)
		requireNoChildren(t, g.Session(), path)
	})
}

// An endingContext is one that has ended before that is heard of, as that of a grant may.
type endingContext struct {
	context.Context
	ended atomic.Bool
}

func (c *endingContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

func TestReplacementForACallerThatHasGoneIsGivenBack(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/line", srv.Client(t)
		g := hold(t, c, path)
		replace, ctx := replacing(g, path, path+"/next"), &endingContext{Context: lasting(t)}

		_, err := g.Replace(ctx, recipe.New(c, "test", path), path+"/next", func(life context.Context, s *recipe.Session) error {
			err := replace(life, s)
			ctx.ended.Store(true)
			return err
		})

		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, g.Err(), protocol.ErrReleased)
		requireNoChildren(t, g.Session(), path)
	})
}

// Where it stays unknown which of the two nodes is there, neither may stay.
func TestReplacementOfUnknownOutcomeGivesBothNodesBack(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/line", srv.Client(t)
		g := hold(t, c, path)
		s := g.Session()

		_, err := g.Replace(lasting(t), recipe.New(c, "test", path), path+"/next", func(ctx context.Context, s *recipe.Session) error {
			if err := s.Create(ctx, path+"/next", nil, zk.FlagEphemeral); err != nil {
				return err
			}
			return fmt.Errorf("%w: no answer", protocol.ErrUncertain)
		})

		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, g.Err(), protocol.ErrReleased)
		requireNoChildren(t, s, path)
		require.NoError(t, s.Err())
	})
}

// A swap that fails changes nothing: the grant is held, may be replaced again, and is given back.
func TestReplacementThatFailsChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s, r := session(t, c), recipe.New(c, "test", path)
		g, old := granted(t, s, r)
		_, err := g.Replace(lasting(t), r, path+"/first", func(context.Context, *recipe.Session) error { return zk.ErrBadVersion })
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.NoError(t, g.Err())

		next, err := g.Replace(within(t, time.Minute), r, path+"/second", func(ctx context.Context, s *recipe.Session) error {
			return swap(ctx, s, old, path+"/second")
		})
		require.NoError(t, err)
		require.NoError(t, g.Release(lasting(t)), "it was given back")
		_, err = next.Replace(lasting(t), r, path+"/third", func(context.Context, *recipe.Session) error { return zk.ErrBadVersion })
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.NoError(t, next.Release(lasting(t)))
		requireNoChildren(t, s, path)
	})
}

// The grant is lost meanwhile, whatever swap returns.
func TestReplacementOfAGrantThatIsLostMeanwhile(t *testing.T) {
	for name, swapped := range map[string]error{
		"its node is deleted":            zk.ErrNoNode,
		"its session ends, and it fails": zk.ErrBadVersion,
		"its session ends":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				c, path := srv.Client(t), srv.Root(t)+"/x"
				s, r := session(t, c), recipe.New(c, "test", path)
				g, node := granted(t, s, r)
				next, err := g.Replace(lasting(t), r, path+"/next", func(ctx context.Context, s *recipe.Session) error {
					if swapped == zk.ErrNoNode {
						require.NoError(t, s.Delete(ctx, node, -1))
						return swapped
					}
					srv.ExpireSession(s.ID())
					<-g.Done()
					return swapped
				})
				require.Nil(t, next)
				require.ErrorIs(t, err, protocol.ErrLost)
				require.ErrorIs(t, g.Err(), protocol.ErrLost)
				require.Equal(t, swapped == zk.ErrNoNode, errors.Is(g.Err(), protocol.ErrNodeDeleted))
			})
		})
	}
}

// A caller whose back-off ends is told, and both nodes go.
func TestReplacementThatIsGivenUpIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/x", session(t, srv.Client(t))
		c := srv.Client(t, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		s, r := session(t, c), recipe.New(c, "test", path)
		g, old := granted(t, s, r)
		attempts := 0
		_, err := g.Replace(lasting(t), r, path+"/next", func(ctx context.Context, s *recipe.Session) error {
			_, err := recipe.Do(ctx, s, func(*zk.Conn) (struct{}, error) {
				attempts++
				if attempts == 1 {
					return struct{}{}, zk.ErrConnectionClosed
				}
				return struct{}{}, swap(ctx, s, old, path+"/next")
			})
			return err
		})
		require.ErrorContains(t, err, "given up")
		require.ErrorIs(t, g.Err(), protocol.ErrReleased)
		requireNoChildren(t, other, path)
	})
}

// Of two replacements the second waits for the first.
func TestReplacementWaitsForOneThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s, r := session(t, c), recipe.New(c, "test", path)
		g, old := granted(t, s, r)
		fail := make(chan struct{})
		first := later(func() error {
			_, err := g.Replace(lasting(t), r, path+"/first", func(context.Context, *recipe.Session) error { <-fail; return zk.ErrBadVersion })
			return err
		})
		synctest.Wait()
		second := later(func() *recipe.Grant {
			next, _ := g.Replace(lasting(t), r, path+"/second", func(ctx context.Context, s *recipe.Session) error { return swap(ctx, s, old, path+"/second") })
			return next
		})
		synctest.Wait()
		require.Empty(t, second)
		close(fail)
		require.ErrorIs(t, wait(t, first), zk.ErrBadVersion)
		release(t, wait(t, second))
		requireNoChildren(t, s, path)
	})
}

// The session of a replacement that was given back holds nothing, and so proves nothing and loses
// nothing.
func TestReplacementThatIsGivenBackCostsNothingAfterwards(t *testing.T) {
	for name, finish := range map[string]bool{"its ctx ends after the swap": true, "its ctx ends during the swap": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, told := srv.Root(t)+"/line", srv.Link(t), make(observer, 20)
				c := link.Client(t, protocol.WithObserver(told))
				g := hold(t, c, path)
				replace := replacing(g, path, path+"/next")
				ctx, cancel := context.WithCancel(t.Context())
				ending, returned := &endingContext{Context: lasting(t)}, make(chan struct{})
				var caller context.Context = ctx
				if finish {
					caller = ending
				}
				_, err := g.Replace(caller, recipe.New(c, "test", path), path+"/next", func(life context.Context, s *recipe.Session) error {
					err := replace(life, s)
					if ending.ended.Store(true); !finish {
						cancel()
						<-returned
					}
					return err
				})
				close(returned)
				cancel()
				require.ErrorIs(t, err, context.Canceled)
				requireNoChildren(t, g.Session(), path)

				time.Sleep(time.Minute)
				requests := link.Count(recipestest.OpAny)
				time.Sleep(10 * time.Minute)
				require.Equal(t, requests, link.Count(recipestest.OpAny))
				for len(told) > 0 {
					require.NotEqual(t, protocol.EventLost, (<-told).Kind)
				}
			})
		})
	}
}

func TestReplacementIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		told := make(observer, 20)
		c, path := srv.Client(t, protocol.WithObserver(told)), srv.Root(t)+"/line"
		g := hold(t, c, path)
		next, err := g.Replace(lasting(t), recipe.New(c, "test", path), path+"/next", replacing(g, path, path+"/next"))
		require.NoError(t, err)
		synctest.Wait()
		var kinds []protocol.EventKind
		for len(told) > 0 {
			kinds = append(kinds, (<-told).Kind)
		}
		require.Equal(t, []protocol.EventKind{
			protocol.EventWaiting, protocol.EventAcquired, // the first
			protocol.EventWaiting, protocol.EventReleased, protocol.EventAcquired,
		}, kinds)
		release(t, next)
	})
}
