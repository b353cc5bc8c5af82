package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestAllEnterAndLeaveTogether(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, n := range []int{1, 2, 7} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				path := srv.Root(t) + "/deep/down"
				all := clients(t, srv, n)
				var barriers []*doublebarrier.Barrier
				for _, c := range all {
					barriers = append(barriers, doublebarrier.New(c, path, n))
				}
				for range 5 {
					round(t, barriers...)
				}
				empty(t, all[0], path)
			})
		}
	})
}

func TestNoMemberEntersOrLeavesBeforeTheLast(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		b := doublebarrier.New(c, path, 3)
		ctx := patient(t)

		first, second := enter(ctx, b), enter(ctx, b)
		joined(t, c, path, 2)
		select {
		case <-first.done:
			require.FailNow(t, "entered too early")
		case <-second.done:
			require.FailNow(t, "entered too early")
		case <-time.After(50 * time.Millisecond):
		}

		third := enter(ctx, b)
		entries := []*doublebarrier.Entry{first.must(t), second.must(t), third.must(t)}
		left := make(chan error, 2)
		for _, e := range entries[:2] {
			go func() { left <- e.Leave(ctx) }()
		}

		joined(t, c, path, 1)
		select {
		case err := <-left:
			require.FailNow(t, "left too early", "%v", err)
		case <-time.After(50 * time.Millisecond):
		}

		require.NoError(t, entries[2].Leave(ctx))
		require.NoError(t, errors.Join(<-left, <-left))
		empty(t, c, path)
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	for name, b := range map[string]*doublebarrier.Barrier{
		"nil client":    doublebarrier.New(nil, "/a", 2),
		"empty path":    doublebarrier.New(c, "", 2),
		"relative path": doublebarrier.New(c, "a", 2),
		"root":          doublebarrier.New(c, "/", 2),
		"no members":    doublebarrier.New(c, "/a", 0, nil),
		"fewer":         doublebarrier.New(c, "/a", -1),
		"too many":      doublebarrier.New(c, "/a", 1_000_000),
		"bad option":    doublebarrier.New(c.With(nil), "/a", 2),
	} {
		_, err := b.Enter(t.Context())
		require.ErrorContains(t, err, "doublebarrier: ", name)
		require.ErrorContains(t, b.Do(t.Context(), func(context.Context) error { return nil }), "doublebarrier: ", name)
	}

	_, err := doublebarrier.New(c, "/a", 1_000_000).Enter(t.Context())
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	require.Equal(t, before, link.Packets())
}

// The size of a gate for so many members has more bits than an int.
func TestHugeNumbersOfMembersAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := suite.NewStage(t, 1).Clients[0]
		for _, n := range []int{math.MaxInt/2 + 1, math.MaxInt - 1, math.MaxInt} {
			_, err := doublebarrier.New(c, "/a", n).Enter(patient(t))
			require.ErrorIs(t, err, protocol.ErrTooLarge, n)
		}
	})
}

func TestLatecomersAreRefusedOrWait(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		ctx := patient(t)
		c := srv.Client(t)
		b := doublebarrier.New(c, path, 2)

		first, second := enter(ctx, b), enter(ctx, b)
		first.must(t)
		second.must(t)

		_, err := b.Enter(ctx)
		require.ErrorIs(t, err, doublebarrier.ErrFull)
		joined(t, c, path, 2)

		waiting := doublebarrier.New(srv.Client(t), path, 2, doublebarrier.WithWaiting())
		third, fourth := enter(ctx, waiting), enter(ctx, waiting)
		var leaving group
		leaving.Go(func() error { return first.entry.Leave(ctx) })
		joined(t, c, path, 1)

		_, err = b.Enter(ctx)
		require.ErrorIs(t, err, doublebarrier.ErrFull, "one is still in")
		require.NoError(t, second.entry.Leave(ctx))
		require.NoError(t, leaving.Wait())

		require.Greater(t, third.must(t).Token(), first.entry.Token())
		leaving.Go(func() error { return third.entry.Leave(ctx) })
		require.NoError(t, fourth.must(t).Leave(ctx))
		require.NoError(t, leaving.Wait())
		empty(t, c, path)
	})
}

func TestOfMoreThanNExactlyNGetIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		const n, more = 3, 5
		all := clients(t, srv, more)
		for i := range 30 {
			path, ctx := pathOf(root, i), patient(t)
			var comers []*entering
			for _, c := range all {
				comers = append(comers, enter(ctx, doublebarrier.New(c, path, n)))
			}

			var in []*doublebarrier.Entry
			for _, e := range comers {
				entry, err := e.wait()
				if err != nil {
					require.ErrorIs(t, err, doublebarrier.ErrFull)
					continue
				}
				in = append(in, entry)
			}

			require.Len(t, in, n)
			var leaving group
			for _, e := range in {
				leaving.Go(func() error { return e.Leave(ctx) })
			}
			require.NoError(t, leaving.Wait())
			empty(t, all[0], path)
		}
	})
}

// A member leaves the line, after which the server lists the others in another order.
func TestMembersAreInOrderOfArrival(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/b", srv.Client(t)
		b := doublebarrier.New(c, path, 4)
		ctx, cancel := context.WithCancel(t.Context())
		gone := enter(ctx, b)
		joined(t, c, path, 1)
		var all []*entering
		for range 2 {
			all = append(all, enter(t.Context(), b))
			synctest.Wait()
		}
		cancel()
		gone.wait()
		all = append(all, enter(t.Context(), b))
		synctest.Wait()
		waiting, err := b.Waiting(t.Context())
		require.NoError(t, err)
		all = append(all, enter(t.Context(), b))

		var names []string
		var entries []*doublebarrier.Entry
		for _, e := range all {
			names, entries = append(names, e.must(t).Node()), append(entries, e.entry)
		}
		require.Equal(t, names, entries[0].Members())
		for i, w := range waiting {
			require.Equal(t, names[i], w.Node)
		}
		leave(t, entries...)
	})
}

func TestDoneContextFailsAndChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		done, cancel := context.WithCancel(t.Context())
		cancel()

		_, err := doublebarrier.New(c, path, 1).Enter(done)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		require.False(t, suite.Exists(t, c, path))
	})
}

func TestEnterThatTimesOutWithdraws(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		b := doublebarrier.New(c, path, 2)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			e := enter(ctx, b)
			joined(t, c, path, 1)
			cancel()
			_, err := e.wait()
			require.ErrorIs(t, err, context.Canceled)
			if !errors.Is(err, protocol.ErrUncertain) {
				empty(t, c, path)
			}
			joined(t, c, path, 0)
		}
		round(t, b, b)
	})
}

func TestDo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		b := doublebarrier.New(c, path, 2)
		ctx := patient(t)
		failed := errors.New("failed")
		inside := make(chan struct{}, 2)
		var all group
		for range 2 {
			all.Go(func() error {
				return b.Do(ctx, func(ctx context.Context) error {
					inside <- struct{}{}
					if len(inside) == 2 {
						return failed
					}
					return ctx.Err()
				})
			})
		}

		require.ErrorIs(t, all.Wait(), failed)
		empty(t, c, path)

		var other group
		other.Go(func() error { return b.Do(ctx, func(context.Context) error { return nil }) })
		require.PanicsWithValue(t, "oops", func() { b.Do(ctx, func(context.Context) error { panic("oops") }) })
		require.NoError(t, other.Wait())
		empty(t, c, path)
	})
}

func TestDoCancelsItsContextOnALoss(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		ctx := patient(t)
		err := doublebarrier.New(c, path, 1).Do(ctx, func(ctx context.Context) error {
			srv.ExpireSession(session(t, c).ID())
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, protocol.ErrLost)
		round(t, doublebarrier.New(c, path, 1))
		empty(t, c, path)
	})
}

func TestCloseEndsEnterAndLeave(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		ctx := patient(t)
		watcher, closing := srv.Client(t), srv.Client(t)
		e := enter(ctx, doublebarrier.New(closing, path, 2))
		joined(t, watcher, path, 1)
		suite.Close(t, closing)
		_, err := e.wait()
		require.ErrorIs(t, err, protocol.ErrClosed)
		joined(t, watcher, path, 0)

		closing = srv.Client(t)
		e = enter(ctx, doublebarrier.New(closing, path, 2))
		other := enter(ctx, doublebarrier.New(watcher, path, 2))

		e.must(t)
		left := make(chan error, 1)
		go func() { left <- e.entry.Leave(ctx) }()
		joined(t, watcher, path, 1)
		suite.Close(t, closing)
		if err := <-left; !errors.Is(err, protocol.ErrClosed) {
			require.ErrorIs(t, err, protocol.ErrLost) // it had not learnt yet that its node was deleted
		}

		require.NoError(t, other.must(t).Leave(ctx))
		empty(t, watcher, path)

		_, err = doublebarrier.New(closing, path, 2).Enter(ctx)
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}

func TestLeaveWithADoneContextLeavesAllTheSame(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		ctx := patient(t)
		b := doublebarrier.New(c, path, 2)
		first, second := enter(ctx, b), enter(ctx, b)
		done, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, first.must(t).Leave(done), context.Canceled)
		require.NoError(t, second.must(t).Leave(ctx))
		require.NoError(t, first.entry.Leave(ctx), "what it had begun is done")
		empty(t, c, path)

		first, second = enter(ctx, b), enter(ctx, b)
		first.must(t)
		second.must(t)
		require.ErrorIs(t, first.entry.Leave(done), context.Canceled)
		require.ErrorIs(t, second.entry.Leave(done), context.Canceled)
		joined(t, c, path, 0)
		round(t, b, b)
	})
}

func TestCheckFailsOnceTheEntryIsGivenBack(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		conn := suite.Session(t, c).Conn()
		entry, err := doublebarrier.New(c, srv.Root(t)+"/d", 1).Enter(patient(t))
		require.NoError(t, err)
		_, err = conn.Multi(entry.Check())
		require.NoError(t, err)
		require.NoError(t, entry.Leave(patient(t)))
		_, err = conn.Multi(entry.Check())
		require.ErrorIs(t, err, zk.ErrNoNode)
	})
}
