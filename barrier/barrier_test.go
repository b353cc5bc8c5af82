package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

type group = suite.Group

// requireSet demands that a short Wait times out.
func requireSet(t *testing.T, b *barrier.Barrier, why ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded, why...)
}

// requireOpen demands that a Wait ends, though no removal is under way.
func requireOpen(t *testing.T, b *barrier.Barrier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Limit)
	defer cancel()
	require.NoError(t, b.Wait(ctx))
}

// waitEnds calls happen until a Wait that had begun before ends. If the connection broke before the
// waiter had looked at an answer, it reads again, and then waits at the next barrier. So one call
// of happen may not be enough.
func waitEnds(t *testing.T, waited <-chan error, happen func()) {
	t.Helper()
	for range 10 {
		happen()
		select {
		case err := <-waited:
			require.NoError(t, err)
			return
		case <-time.After(time.Second):
		}
	}
	require.Fail(t, "still waiting")
}

// settle waits until c has a session, and returns that. The session has then processed all answers
// that were delivered before, as it does so in order.
func settle(t *testing.T, c *protocol.Client) (s *protocol.Session) {
	t.Helper()
	for {
		s = suite.Session(t, c)
		suite.Exists(t, c, "/")
		if suite.Session(t, c).ID() == s.ID() {
			return s
		}
	}
}

// kinds are the options of the barriers that can be set.
var kinds = map[string][]barrier.Option{
	"persistent": nil,
	"ephemeral":  {barrier.WithEphemeral()},
}

func eachKind(t *testing.T, test func(*testing.T, *recipestest.Server, []barrier.Option)) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for name, opts := range kinds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, srv, opts)
			})
		}
	})
}

func TestBarrierIsSetWaitedAtAndRemoved(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		root := srv.Root(t)
		path := root + "/deep/down"
		c := srv.Client(t)
		setter := barrier.New(c, path, append(opts, barrier.WithData([]byte("mine")))...)
		other := barrier.New(srv.Client(t), path)

		require.NoError(t, other.Wait(t.Context()), "not set")
		require.NoError(t, other.Remove(t.Context()), "not set")

		for range 3 {
			require.NoError(t, setter.Set(t.Context()))
			require.NoError(t, setter.Set(t.Context()), "set already")
			requireSet(t, other)
			data, _ := suite.Get(t, c, path)
			require.Equal(t, "mine", string(data))

			var wait group
			for range 3 {
				wait.Go(func() error { return other.Wait(t.Context()) })
			}
			require.NoError(t, other.Remove(t.Context()))
			require.NoError(t, other.Remove(t.Context()), "removed already")
			require.NoError(t, wait.Wait())
			requireOpen(t, setter)
		}
		require.Empty(t, suite.Children(t, c, root+"/deep"), "an empty container, which the server may have removed")
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()

	for name, b := range map[string]*barrier.Barrier{
		"nil client":    barrier.New(nil, "/a"),
		"empty path":    barrier.New(c, ""),
		"relative path": barrier.New(c, "a"),
		"root":          barrier.New(c, "/"),
		"bad option":    barrier.New(c.With(nil), "/a"),
	} {
		for verb, f := range map[string]func(context.Context) error{"Set": b.Set, "Remove": b.Remove, "Wait": b.Wait} {
			err := f(t.Context())
			require.Error(t, err, "%s %s", name, verb)
			require.ErrorContains(t, err, "barrier: ", "%s %s", name, verb)
		}
	}
	big := barrier.New(c, "/a", nil, barrier.WithData(make([]byte, protocol.MaxData)))
	require.ErrorIs(t, big.Set(t.Context()), protocol.ErrTooLarge)
	require.Equal(t, before, link.Packets())
}

func TestDoneContextFailsAndChangesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		b := barrier.New(srv.Client(t), srv.Root(t)+"/b", opts...)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Set(done), context.Canceled)
		requireOpen(t, b)
		require.ErrorIs(t, b.Wait(done), context.Canceled, "though it is open")
		require.NoError(t, b.Set(t.Context()))
		require.ErrorIs(t, b.Remove(done), context.Canceled)
		requireSet(t, b)
		require.NoError(t, b.Remove(t.Context()))
	})
}

func TestCloseEndsWait(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		link := srv.Link(t)
		c := link.Client(t)
		b := barrier.New(c, path)
		require.NoError(t, b.Set(t.Context()))
		asleep := link.Answered(recipestest.OpGetData, 1)
		errs := make(chan error, 1)
		go func() { errs <- b.Wait(context.Background()) }()
		<-asleep

		suite.Close(t, c)
		require.ErrorIs(t, <-errs, protocol.ErrClosed)
		require.ErrorIs(t, b.Wait(t.Context()), protocol.ErrClosed)
		require.ErrorIs(t, b.Set(t.Context()), protocol.ErrClosed)
		require.ErrorIs(t, b.Remove(t.Context()), protocol.ErrClosed)
	})
}

func TestEphemeralBarrierFallsWithItsSetter(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		b, other := barrier.New(c, path, barrier.WithEphemeral()), barrier.New(srv.Client(t), path)
		require.NoError(t, b.Set(t.Context()))
		requireSet(t, other)

		var wait group
		wait.Go(func() error { return other.Wait(t.Context()) })
		srv.ExpireSession(suite.Session(t, c).ID())
		require.NoError(t, wait.Wait())
	})
}

// The node is deleted and created in one transaction, while the waiter is away. At no moment could
// it see that there is no node, and no event reports the deletion.
func TestWaiterNoticesThatTheBarrierIsAnotherOne(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, away := range []bool{false, true} {
			path := srv.Root(t) + "/b"
			require.NoError(t, barrier.New(srv.Client(t), path).Set(t.Context()))

			link := srv.Link(t)
			c := link.Client(t)
			b := barrier.New(c, path)
			asleep := link.Answered(recipestest.OpGetData, 1)
			waited := make(chan error, 1)
			go func() { waited <- b.Wait(t.Context()) }()
			<-asleep

			waitEnds(t, waited, func() {
				if away {
					settle(t, c)
					link.Cut()
				}
				_, err := suite.Session(t, srv.Client(t)).Conn().Multi(
					&zk.DeleteRequest{Path: path, Version: -1},
					&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
				require.NoError(t, err)
				link.Heal()
			})
			requireSet(t, b, "a new Wait blocks")
		}
	})
}

func TestWaiterSleepsThroughChangesOfData(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		setter := barrier.New(srv.Client(t), path)
		require.NoError(t, setter.Set(t.Context()))

		link := srv.Link(t)
		b := barrier.New(link.Client(t), path)
		ctx, cancel := context.WithCancel(t.Context())
		asleep := link.Answered(recipestest.OpGetData, 1)
		errs := make(chan error, 1)
		go func() { errs <- b.Wait(ctx) }()
		<-asleep

		again := link.Answered(recipestest.OpGetData, 2)
		require.NoError(t, setter.Set(t.Context()))
		<-again
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
		require.NoError(t, setter.Remove(t.Context()))
	})
}

func TestWaiterWaitsOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		setter := barrier.New(srv.Client(t), path)
		require.NoError(t, setter.Set(t.Context()))

		for _, again := range []bool{false, true} {
			link := srv.Link(t)
			c := link.Client(t)
			asleep := link.Answered(recipestest.OpGetData, 1)
			errs := make(chan error, 1)
			go func() { errs <- barrier.New(c, path).Wait(t.Context()) }()
			<-asleep
			next := link.Answered(recipestest.OpGetData, 2)

			if again { // removed and set while it has no session
				waitEnds(t, errs, func() {
					session := settle(t, c)
					link.Cut()
					srv.ExpireSession(session.ID())
					require.NoError(t, setter.Remove(t.Context()))
					require.NoError(t, setter.Set(t.Context()))
					link.Heal()
				})
			} else {
				srv.ExpireSession(settle(t, c).ID())
				<-next
				require.Empty(t, errs)
				require.NoError(t, setter.Remove(t.Context()))
				require.NoError(t, <-errs)
			}

			require.NoError(t, setter.Set(t.Context()))
		}
		require.NoError(t, setter.Remove(t.Context()))
	})
}

// The test counts packets, and the watches that are left at the server.
func TestWaitIsCheap(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		setter := barrier.New(srv.Client(t), path)
		link := srv.Link(t)
		b := barrier.New(link.Client(t), path)
		suite.Measure(t, func() error {
			before := link.Count(recipestest.OpAny)
			require.NoError(t, b.Wait(t.Context()))
			if n := link.Count(recipestest.OpAny) - before; n != 2 {
				return fmt.Errorf("open, and it took %d requests instead of a sync and a read", n)
			}
			return nil
		})
		require.NoError(t, setter.Set(t.Context()))
		require.NoError(t, setter.Remove(t.Context()))
		require.NoError(t, b.Wait(t.Context()))
		require.Zero(t, link.Events(), "a watch was left")

		suite.Measure(t, func() error {
			require.NoError(t, setter.Set(t.Context()))
			before, events := link.Count(recipestest.OpAny), link.Events()
			watched := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+1)
			var wait group
			wait.Go(func() error { return b.Wait(t.Context()) })
			<-watched
			require.NoError(t, setter.Remove(t.Context()))
			require.NoError(t, wait.Wait())

			requests, events := link.Count(recipestest.OpAny)-before, link.Events()-events
			if requests != 2 || events != 1 {
				return fmt.Errorf("a wait and a removal took %d requests and %d events instead of 2 and 1", requests, events)
			}
			return nil
		})

		const waiters = 50
		suite.Measure(t, func() error {
			require.NoError(t, setter.Set(t.Context()))
			before, events := link.Count(recipestest.OpGetData), link.Events()

			for range waiters { // they give up, one after the other
				require.True(t, func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
					defer cancel()
					return b.Wait(ctx) != nil
				}())
			}

			early := link.Count(recipestest.OpGetData) - before
			synced := link.Answered(recipestest.OpSync, link.Count(recipestest.OpSync)+waiters)
			var wait group
			for range waiters {
				wait.Go(func() error { return b.Wait(t.Context()) })
			}
			<-synced
			require.NoError(t, setter.Remove(t.Context()))
			require.NoError(t, wait.Wait())

			reads, events := link.Count(recipestest.OpGetData)-before, link.Events()-events
			// Waiters that have the answer to their sync, but did not watch yet when the barrier
			// was removed, read it, too.
			if early > 1 || reads > 10 || events > 2 {
				return fmt.Errorf("they do not share what they read: %d reads by waits that were given up, %d by all, %d events",
					early, reads, events)
			}
			return nil
		})
	})
}

// A removal arrives at the server after its caller has given up, and after the barrier was removed
// and set again.
func TestLateRemovalDoesNotHitALaterBarrier(t *testing.T) {
	for kind, opts := range kinds {
		for _, how := range []string{"removed and set again", "set again"} {
			t.Run(kind+" "+how, func(t *testing.T) {
				t.Parallel()
				const slow = time.Second
				for after := range 8 { // requests that come through in time
					synctest.Test(t, func(t *testing.T) { lateRemoval(t, opts, how == "set again", after, slow) })
				}
			})
		}
	}
}

func lateRemoval(t *testing.T, opts []barrier.Option, only bool, after int, slow time.Duration) {
	srv := recipestest.Start(t, recipestest.WithInMemory())
	path := srv.Root(t) + "/b"
	link := srv.Link(t)
	late := barrier.New(link.Client(t), path)
	b := barrier.New(srv.Client(t), path, opts...)
	require.NoError(t, b.Set(t.Context()))

	if link.Packets() > 0 {
		after += link.Packets()
	}
	stop := link.At(after+1, func() { link.Delay(slow) })
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), slow/4)
	defer cancel()

	if late.Remove(ctx) == nil {
		return
	}
	if !only {
		require.NoError(t, b.Remove(t.Context()))
	}

	require.NoError(t, b.Set(t.Context()))
	time.Sleep(10 * slow)
	requireSet(t, b)
	require.NoError(t, b.Remove(t.Context()))
}

// One client waits, another sets and removes, and one of the two meets a fault.
func TestFaultAtEachStep(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				sweep(t, srv, root+"/"+f.Name, opts, f)
			})
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for kind, opts := range kinds {
		for _, f := range suite.SlowFaults(10 * time.Second) {
			t.Run(kind+" "+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					sweep(t, srv, srv.Root(t), opts, f)
				})
			})
		}
	}
}

func sweep(t *testing.T, srv *recipestest.Server, root string, opts []barrier.Option, f suite.Fault) {
	suite.Sweep(t, func(step int) bool {
		met := false
		for _, waits := range []bool{true, false} {
			met = meetFault(t, srv, fmt.Sprintf("%s/%d-%v", root, step, waits), opts, f, step, waits) || met
		}
		return met
	})
}

func meetFault(t *testing.T, srv *recipestest.Server, path string, opts []barrier.Option, f suite.Fault, step int, waits bool) (met bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	link := srv.Link(t)
	victim, sound := link.Client(t), srv.Client(t)
	defer suite.Close(t, sound, victim)
	waiter, setter := sound, victim
	if waits {
		waiter, setter = victim, sound
	}

	session := suite.Session(t, victim).ID()
	s, w := barrier.New(setter, path, opts...), barrier.New(waiter, path)
	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	require.NoError(t, s.Set(ctx))

	var wait group
	wait.Go(func() error { return w.Wait(ctx) })
	wait.Go(func() error { return w.Wait(ctx) })
	require.NoError(t, s.Remove(ctx))
	require.NoError(t, wait.Wait(), "step %d", step)

	met = over()
	link.Heal()
	for _, b := range []*barrier.Barrier{s, w} {
		require.NoError(t, b.Wait(ctx), "step %d: it is removed", step)
	}
	require.False(t, suite.Exists(t, sound, path))
	return met
}

func TestParentsMayVanish(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		root := srv.Root(t)
		c := srv.Client(t)
		b := barrier.New(c, root+"/parent/b", opts...)

		for range 3 {
			require.NoError(t, b.Set(t.Context()))
			require.NoError(t, b.Remove(t.Context()))
			// The server may have been faster: an empty container.
			if err := suite.Session(t, c).Conn().Delete(root+"/parent", -1); !errors.Is(err, zk.ErrNoNode) {
				require.NoError(t, err)
			}
			require.NoError(t, b.Wait(t.Context()))
			require.NoError(t, b.Remove(t.Context()))
		}
	})
}

func TestSeveralRemovalsAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		path := srv.Root(t) + "/b"
		var clients []*protocol.Client
		for range 4 {
			clients = append(clients, srv.Client(t))
		}

		for range 20 {
			require.NoError(t, barrier.New(clients[0], path, opts...).Set(t.Context()))
			var all group
			for _, c := range clients {
				all.Go(func() error { return barrier.New(c, path).Remove(t.Context()) })
				all.Go(func() error { return barrier.New(c, path).Wait(t.Context()) })
			}
			require.NoError(t, all.Wait())
		}
	})
}

func TestForeignChildKeepsTheBarrier(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		b := barrier.New(c, path)
		require.NoError(t, b.Set(t.Context()))

		conn := suite.Session(t, c).Conn()
		_, err := conn.Create(path+"/foreign", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		require.ErrorIs(t, b.Remove(t.Context()), zk.ErrNotEmpty)
		children := suite.Children(t, c, path)
		require.Equal(t, []string{"foreign"}, children)
		requireSet(t, b)
	})
}

// Remove removes a barrier that its server has not heard of yet.
func TestRemoveOnAServerThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory(), recipestest.Lagging(time.Second))
		path := srv.Root(t) + "/barrier"
		setter, remover := srv.Client(t), srv.Client(t)
		suite.Session(t, remover)

		for range 4 { // whichever server each of them is connected to
			require.NoError(t, barrier.New(setter, path).Set(t.Context()))
			require.NoError(t, barrier.New(remover, path).Remove(t.Context()))
			requireOpen(t, barrier.New(setter, path))
			setter, remover = remover, setter
			time.Sleep(5 * time.Second)
		}
	})
}

// Another removal is under way, and is given up at any step. Remove must not take that for the end
// of the barrier.
func TestRemovalThatAnotherOneGaveUp(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	operator := srv.Client(t)
	conn := suite.Session(t, operator).Conn()
	path := srv.Root(t) + "/barrier"
	suite.Sweep(t, func(step int) bool {
		require.NoError(t, barrier.New(operator, path).Set(t.Context()))
		marker := path + "/another-remove"
		_, err := conn.Create(marker, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		link := srv.Link(t)
		b := barrier.New(link.Client(t), path)
		stop := link.At(step, func() { conn.Delete(marker, -1) })

		require.NoError(t, b.Remove(t.Context()))
		met := !stop()
		require.False(t, suite.Exists(t, operator, path), "step %d", step)
		return met
	})
}

// An operator deletes the marker of a removal, and leaves the barrier.
func TestRemovalWhoseMarkerIsDeleted(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	operator := srv.Client(t)
	conn := suite.Session(t, operator).Conn()
	path := srv.Root(t) + "/barrier"
	deleted := false
	suite.Sweep(t, func(step int) bool {
		require.NoError(t, barrier.New(operator, path).Set(t.Context()))
		link := srv.Link(t)
		b := barrier.New(link.Client(t), path)
		met := suite.At(link, step, func() {
			for _, marker := range suite.Children(t, operator, path) {
				deleted = conn.Delete(path+"/"+marker, -1) == nil
			}
		})

		require.NoError(t, b.Remove(t.Context()))
		was := met()
		require.False(t, suite.Exists(t, operator, path), "step %d", step)
		return was
	})
	require.True(t, deleted)
}
