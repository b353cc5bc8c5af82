package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestSemaphoreOfOneIsAFairLock(t *testing.T) {
	suite.Conform(t, map[string]suite.NewLocker{"Semaphore": single}, semaphore.ErrNoPermit)
}

func TestPermitsAreGrantedInOrderOfArrival(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 3) }
		var held []*semaphore.Permit
		for range 3 {
			held = append(held, acquire(t, at()))
		}
		var waiting []<-chan *semaphore.Permit
		for i := range 4 {
			waiting = append(waiting, later(t.Context(), at()))
			contenders(t, at(), 4+i)
		}
		_, err := at().TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)

		for i, p := range []*semaphore.Permit{held[1], held[2], held[0]} {
			release(t, p)
			next := suite.Wait(t, waiting[i])
			require.NoError(t, next.Err())
			held = append(held, next)
			for _, w := range waiting[i+1:] {
				require.Empty(t, w)
			}
		}
		release(t, held[4])
		release(t, suite.Wait(t, waiting[3]))
		release(t, held[3])
		release(t, held[5])
		contenders(t, at(), 0)
	})
}

// A contender that gives up in the middle of the line makes room for those behind it.
func TestWaiterThatLeavesLetsOthersIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 2) }
		first, second := acquire(t, at()), acquire(t, at())
		ctx, giveUp := context.WithCancel(t.Context())
		quitter := later(ctx, at())
		contenders(t, at(), 3)
		last := later(t.Context(), at())
		contenders(t, at(), 4)

		giveUp()
		require.Nil(t, suite.Wait(t, quitter))
		contenders(t, at(), 3)
		release(t, second)

		release(t, suite.Wait(t, last))
		release(t, first)
	})
}

// A contender that leaves the middle of the line, in whatever way, strands none of those behind it.
func TestLineGoesOnWithoutAWaiterInItsMiddle(t *testing.T) {
	for how, leave := range map[string]func(t *testing.T, srv *recipestest.Server, s *semaphore.Semaphore, c semaphore.Contender, giveUp func()){
		"gives up": func(_ *testing.T, _ *recipestest.Server, _ *semaphore.Semaphore, _ semaphore.Contender, giveUp func()) {
			giveUp()
		},
		"session expires": func(_ *testing.T, srv *recipestest.Server, _ *semaphore.Semaphore, c semaphore.Contender, _ func()) {
			srv.ExpireSession(c.Session)
		},
		"is broken": func(t *testing.T, _ *recipestest.Server, s *semaphore.Semaphore, c semaphore.Contender, _ func()) {
			require.NoError(t, s.Break(t.Context(), c.Node))
		},
	} {
		t.Run(how, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				path := srv.Root(t) + "/s"
				at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 2) }
				operator := at()
				held := []*semaphore.Permit{acquire(t, at()), acquire(t, at())}
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				var waiting []<-chan *semaphore.Permit
				for i := range 4 {
					mine := t.Context()
					if i == 1 {
						mine = ctx
					}
					waiting = append(waiting, later(mine, at()))
					contenders(t, operator, 3+i)
				}
				line := contenders(t, operator, 6)

				leave(t, srv, operator, line[3], giveUp)
				suite.Soon(t, func() bool {
					now, err := operator.Contenders(t.Context())
					return err == nil && !slices.ContainsFunc(now, func(c semaphore.Contender) bool { return c.Node == line[3].Node })
				}, "it has left")
				for _, i := range []int{0, 2, 3} { // the order of those that have stayed
					require.Empty(t, waiting[i])
					require.Empty(t, waiting[3])
					release(t, held[0])
					held = append(held[1:], suite.Wait(t, waiting[i]))
				}
				release(t, held...)
				if last := suite.Wait(t, waiting[1]); last != nil {
					release(t, last)
				}
				contenders(t, operator, 0)
			})
		})
	}
}

// A release lets in the first waiter, and wakes only those that watch the node that has gone.
func TestReleaseWakesAtMostAsManyWaitersAsThereArePermits(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		const permits, waiters = 3, 8
		path := srv.Root(t) + "/s"
		operator := semaphore.New(srv.Client(t), path, permits)
		var held []*semaphore.Permit
		for range permits {
			held = append(held, acquire(t, semaphore.New(srv.Client(t), path, permits)))
		}
		var links []*recipestest.Link
		var clients []*protocol.Client
		var waiting []<-chan *semaphore.Permit
		for i := range waiters {
			link := srv.Link(t)
			c := link.Client(t)
			links, clients = append(links, link), append(clients, c)
			asleep := link.Answered(recipestest.OpGetData, 1+permits) // its own node, and its blockers
			waiting = append(waiting, later(t.Context(), semaphore.New(c, path, permits)))
			contenders(t, operator, permits+i+1)
			suite.Wait(t, asleep)
		}
		listings := func() (n int) {
			for i, link := range links {
				suite.CatchUp(t, clients[i])
				n += link.Count(recipestest.OpGetChildren)
			}
			return n
		}
		require.Equal(t, waiters, listings(), "one each")

		// The last holder is watched by as many waiters as there are permits.
		release(t, held[permits-1])
		next := suite.Wait(t, waiting[0])
		for _, link := range links[:permits] {
			suite.Wait(t, link.Answered(recipestest.OpGetChildren, 2))
		}
		require.Equal(t, waiters+permits, listings())
		for i := range clients {
			require.Equal(t, i < permits, links[i].Events() > 0, i)
		}
		for _, w := range waiting[1:] {
			require.Empty(t, w)
		}

		// The first holder is watched by one.
		release(t, held[0])
		second := suite.Wait(t, waiting[1])
		require.Equal(t, waiters+permits+1, listings())

		release(t, held[1], next, second)
		for _, w := range waiting[2:] {
			release(t, suite.Wait(t, w))
		}
		contenders(t, operator, 0)
	})
}

func TestTryAcquireWritesOnlyIfThereIsAPermit(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		c := link.Client(t)
		s, other := semaphore.New(c, path, 2), semaphore.New(srv.Client(t), path, 2)
		writes := func() int { // without deletions of nothing, which confirm the session
			return link.Count(recipestest.OpCreate) + link.Count(recipestest.OpMulti)
		}

		one := acquire(t, other)
		suite.CatchUp(t, c)
		two, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		before := writes()
		_, err = s.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		require.EqualError(t, err, "semaphore: "+path+": no permit")
		require.ErrorIs(t, s.TryDo(t.Context(), func(context.Context, *semaphore.Permit) error { return nil }), semaphore.ErrNoPermit)
		require.Equal(t, before, writes())

		release(t, one)
		suite.CatchUp(t, c)
		require.NoError(t, s.TryDo(t.Context(), func(ctx context.Context, p *semaphore.Permit) error {
			require.NoError(t, p.Err())
			_, err := s.TryAcquire(ctx)
			require.ErrorIs(t, err, semaphore.ErrNoPermit)
			return nil
		}))
		release(t, two)
		contenders(t, s, 0)
	})
}

func TestContendersShowsHoldersAndWaiters(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		s := semaphore.New(srv.Client(t), path, 2, semaphore.WithData([]byte("ours")))
		require.NoError(t, s.Resize(t.Context(), 1))
		p := acquire(t, s)
		waiting := later(t.Context(), s)
		contenders(t, s, 2)
		require.NoError(t, s.Resize(t.Context(), 1)) // which tells them, and leaves their data
		line := contenders(t, s, 2)
		require.Equal(t, p.Node(), line[0].Node)
		require.Equal(t, p.Token(), line[0].Token)
		for _, c := range line {
			require.Equal(t, "ours", string(c.Data))
			require.NotZero(t, c.Session)
		}

		// The number of permits is no contender.
		limit := limits(t, srv.Client(t), path)
		require.Len(t, limit, 1)
		require.ErrorIs(t, s.Break(t.Context(), limit[0]), zk.ErrInvalidPath)
		require.Equal(t, limit, limits(t, srv.Client(t), path))

		require.NoError(t, s.Break(t.Context(), p.Node()))
		suite.Wait(t, p.Done())
		require.ErrorIs(t, p.Err(), protocol.ErrLost)
		release(t, suite.Wait(t, waiting))
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	tooMuch := semaphore.WithData(make([]byte, protocol.MaxData))
	bad := func(*semaphore.Semaphore) error { return errors.New("bad option") }

	for name, test := range map[string]struct {
		s    *semaphore.Semaphore
		want error
	}{
		"nil client":    {semaphore.New(nil, "/a", 1), nil},
		"empty path":    {semaphore.New(c, "", 1), zk.ErrInvalidPath},
		"relative path": {semaphore.New(c, "a", 1), zk.ErrInvalidPath},
		"root":          {semaphore.New(c, "/", 1), zk.ErrInvalidPath},
		"no permit":     {semaphore.New(c, "/a", 0), nil},
		"less than no":  {semaphore.New(c, "/a", -1), nil},
		"bad option":    {semaphore.New(c, "/a", 1, bad), nil},
		"too much data": {semaphore.New(c, "/a", 1, tooMuch), protocol.ErrTooLarge},
	} {
		calls := map[string]func() error{
			"Acquire":    func() error { _, err := test.s.Acquire(t.Context()); return err },
			"TryAcquire": func() error { _, err := test.s.TryAcquire(t.Context()); return err },
			"Do": func() error {
				return test.s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
			},
			"TryDo": func() error {
				return test.s.TryDo(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
			},
		}
		if name != "too much data" {
			calls["Contenders"] = func() error { _, err := test.s.Contenders(t.Context()); return err }
			calls["Break"] = func() error { return test.s.Break(t.Context(), "x") }
			calls["Resize"] = func() error { return test.s.Resize(t.Context(), 2) }
		}
		for verb, call := range calls {
			err := call()
			require.ErrorContains(t, err, "semaphore: ", "%s, %s", name, verb)
			if test.want != nil {
				require.ErrorIs(t, err, test.want, "%s, %s", name, verb)
			}
		}
	}
	for _, permits := range []int{0, -1} {
		err := semaphore.New(c, "/a", 1).Resize(t.Context(), permits)
		require.EqualError(t, err, fmt.Sprintf("semaphore: /a: a semaphore needs at least one permit, got %d", permits))
	}
	require.Equal(t, before, link.Packets())
}
