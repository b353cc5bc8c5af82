package barrier_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

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

// The barrier is set again, which moves no waiter. Then its node is deleted and created in one
// transaction (while the waiter is away, too): at no moment could the waiter see that there is no
// node, and no event reports the deletion.
func TestWaiterWakesForAnotherBarrierOnly(t *testing.T) {
	for _, away := range []bool{false, true} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link, c := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
			setter, b := barrier.New(c, path), barrier.New(link.Client(t), path)
			require.NoError(t, setter.Set(t.Context()))
			waited := suite.Later(func() error { return b.Wait(t.Context()) })
			time.Sleep(time.Second)
			require.NoError(t, setter.Set(t.Context()))
			time.Sleep(time.Second)
			require.Empty(t, waited)

			if away {
				link.Cut()
			}
			_, err := suite.Session(t, c).Conn().Multi(
				&zk.DeleteRequest{Path: path, Version: -1},
				&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
			require.NoError(t, err)
			link.Heal()
			require.NoError(t, suite.Wait(t, waited))
			requireSet(t, b, "a new Wait blocks")
		})
	}
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
	ctx := suite.Within(t, slow/4)

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

func TestRemovalWhoseMarkerIsDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, operator := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		gate := &suite.Gate{Op: recipestest.OpMulti}
		b := barrier.New(link.Client(t, gate.Option(link)), path)
		require.NoError(t, b.Set(t.Context()))
		gate.Shut()
		removed := suite.Later(func() error { return b.Remove(t.Context()) })
		synctest.Wait()
		marker := path + "/" + suite.Children(t, operator, path)[0]
		require.NoError(t, suite.Session(t, operator).Delete(t.Context(), marker, -1))
		gate.Open()
		require.NoError(t, suite.Wait(t, removed))
		require.False(t, suite.Exists(t, operator, path))
	})
}

// A removal that was given up has left its marker, which goes with the barrier. A child of another
// kind keeps the barrier.
func TestRemovalTakesOtherMarkersAlong(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, ctx := srv.Root(t), srv.Link(t), suite.Within(t, 10*time.Second)
		c, path := link.Client(t, protocol.WithRequestLimit(1024)), root+"/b"
		link.Delay(10 * time.Millisecond)
		b, operator := barrier.New(c, path), suite.Session(t, srv.Client(t))
		require.NoError(t, b.Set(ctx))
		require.NoError(t, operator.Create(ctx, path+"/child", nil, zk.FlagPersistent))
		require.ErrorIs(t, b.Remove(ctx), zk.ErrNotEmpty)
		require.NoError(t, operator.Delete(ctx, path+"/child", -1))

		for _, their := range []string{"their", strings.Repeat("long", 100), strings.Repeat("longer", 80)} { // not in one request
			require.NoError(t, operator.Create(ctx, path+"/"+their+"-remove", nil, zk.FlagPersistent))
		}
		link.Fail(recipestest.OpGetChildren, path, int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, b.Remove(ctx), zk.ErrNoAuth)
		link.Fail(recipestest.OpMulti, "", int32(zkwire.CodeNotEmpty), 2) // as if others came meanwhile
		require.NoError(t, b.Remove(ctx))
		require.False(t, suite.Exists(t, c, path))

		// The node beside an ephemeral barrier is looked for.
		b = barrier.New(c, path, barrier.WithEphemeral())
		require.NoError(t, b.Set(ctx))
		link.Fail(recipestest.OpGetChildren, root, int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, b.Remove(ctx), zk.ErrNoAuth)
		require.NoError(t, b.Remove(ctx))
	})
}

// A setter's machine is cut off, and its process is started again: with another client, or with the
// same one in its next session.
func TestBarrierThatIsSetAgainAfterARestartDoesNotFall(t *testing.T) {
	for _, same := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path := srv.Root(t) + "/b"
			link := srv.Link(t)
			c := link.Client(t)
			require.NoError(t, barrier.New(c, path, barrier.WithEphemeral()).Set(t.Context()))

			waited := make(chan error, 1)
			other := barrier.New(srv.Client(t), path)
			go func() { waited <- other.Wait(t.Context()) }()

			link.Stall()
			if same {
				s := suite.Session(t, c)
				time.Sleep(2 * s.Timeout()) // the servers end it, and it hears of that
				link.Heal()
				suite.Wait(t, s.Done())
			} else {
				c = srv.Client(t)
			}

			require.NoError(t, barrier.New(c, path, barrier.WithEphemeral()).Set(t.Context()))
			require.NoError(t, suite.Wait(t, waited), "the old one has fallen")

			ctx := suite.Within(t, time.Hour)
			require.ErrorIs(t, other.Wait(ctx), context.DeadlineExceeded)
			link.Heal()
			require.NoError(t, other.Remove(t.Context()))
		})
	}
}

func TestSetReportsThatTheBarrierFallsWithALivingSession(t *testing.T) {
	for _, opts := range kinds {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path := srv.Root(t) + "/b"
			first, c := srv.Client(t), srv.Client(t)
			require.NoError(t, barrier.New(first, path, barrier.WithEphemeral()).Set(t.Context()))
			b := barrier.New(c, path, append(opts, barrier.WithData([]byte("new")))...)

			began := time.Now()
			err := b.Set(t.Context())
			require.ErrorIs(t, err, barrier.ErrEphemeral)
			require.ErrorContains(t, err, fmt.Sprintf("%#x", suite.Session(t, first).ID()))
			require.Equal(t, 2*suite.Session(t, c).Timeout(), time.Since(began))
			requireSet(t, b)
			data, _ := suite.Get(t, c, path)
			require.Equal(t, "new", string(data))

			// The barrier of its own session is what Set wants, or never will be. Neither is a
			// reason to wait.
			began = time.Now()
			require.NoError(t, barrier.New(first, path, barrier.WithEphemeral()).Set(t.Context()))
			require.ErrorIs(t, barrier.New(first, path).Set(t.Context()), barrier.ErrEphemeral)
			require.Zero(t, time.Since(began))
			require.NoError(t, b.Remove(t.Context()))
		})
	}
}

// The answer to Set is lost, and the barrier is removed before Set asks again. What it then sets is
// another barrier. So a request of the removal that comes late does not hit that.
func TestLateRemovalDoesNotHitTheBarrierThatARepeatedSetHasSet(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		link, other := srv.Link(t), srv.Client(t)
		suite.Ensure(t, suite.Session(t, other), root)
		b := barrier.New(link.Client(t), root+"/b", barrier.WithEphemeral())
		link.StallReplies()
		set := suite.Later(func() error { return b.Set(t.Context()) })
		time.Sleep(time.Second)

		late := []any{&zk.DeleteRequest{Path: root + "/b", Version: 0}}
		for _, node := range suite.Children(t, other, root) {
			if node != "b" {
				late = append(late, &zk.DeleteRequest{Path: root + "/" + node, Version: -1})
			}
		}
		require.Len(t, late, 2)
		require.NoError(t, barrier.New(other, root+"/b").Remove(t.Context()))
		suite.Blip(link)
		require.NoError(t, suite.Wait(t, set))

		require.ErrorIs(t, suite.Err(suite.Session(t, other).Conn().Multi(late...)), zk.ErrNoNode)
		requireSet(t, b)
		require.NoError(t, b.Remove(t.Context()))
	})
}

// Another library has set the barrier, and sets it again while the answer to the deletion is lost.
func TestRepeatedRemovalDoesNotHitALaterBarrierOfAnotherLibrary(t *testing.T) {
	for flags, deletion := range map[int32]recipestest.Op{zk.FlagEphemeral: recipestest.OpDelete, 0: recipestest.OpMulti} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			root, link, c := srv.Root(t), srv.Link(t), srv.Client(t)
			path, conn := root+"/b", suite.Session(t, c).Conn()
			create := func() {
				suite.Got(conn.Create(path, nil, flags, zk.WorldACL(zk.PermAll)))(t)
			}
			suite.Keep(t, c, root)
			create()
			gone := suite.WatchAt(t, conn.ExistsW, path)

			b := barrier.New(link.Client(t), path)
			link.Delay(100 * time.Millisecond) // so it is set again before the removal is back
			link.LoseReply(deletion, 1)
			removed := suite.Later(func() error { return b.Remove(t.Context()) })
			suite.Wait(t, gone)
			create()
			require.NoError(t, suite.Wait(t, removed))
			require.Equal(t, 2, link.Count(recipestest.OpConnect), "the answer was lost")
			require.NoError(t, conn.Delete(path, -1), "it is still there")
		})
	}
}
