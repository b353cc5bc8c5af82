package barrier_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

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
				<-s.Done()
				link.Heal()
			} else {
				c = srv.Client(t)
			}

			require.NoError(t, barrier.New(c, path, barrier.WithEphemeral()).Set(t.Context()))
			require.NoError(t, <-waited, "the old one has fallen")

			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
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

func TestSetThatWaitsEndsWithItsContext(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		path := srv.Root(t) + "/b"
		require.NoError(t, barrier.New(srv.Client(t), path, barrier.WithEphemeral()).Set(t.Context()))
		b := barrier.New(srv.Client(t), path, opts...)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Set(ctx), context.DeadlineExceeded)
		requireSet(t, b)
		require.NoError(t, b.Remove(t.Context()))
	})
}

// The first setter dies while the second one waits. At one of its packets the second one meets a
// fault.
func TestFaultAtEachStepOfASetThatWaits(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, opts []barrier.Option) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					path := fmt.Sprintf("%s/%s/%d", root, f.Name, step)
					link := srv.Link(t)
					first, victim, other := srv.Client(t), link.Client(t), srv.Client(t)
					defer suite.Close(t, first, victim, other)
					require.NoError(t, barrier.New(first, path, barrier.WithEphemeral()).Set(t.Context()))
					id := suite.Session(t, victim).ID()

					waits := link.Answered(recipestest.OpGetData, 1)
					met := suite.At(link, step, func() { f.Do(srv, link, id) })
					b := barrier.New(victim, path, opts...)
					set := make(chan error, 1)
					go func() { set <- b.Set(t.Context()) }()
					<-waits

					srv.ExpireSession(suite.Session(t, first).ID())
					require.NoError(t, <-set, "step %d", step)
					was := met()

					if f.Name != "expiry" { // which may have come after Set
						suite.CatchUp(t, other)
						_, stat := suite.Get(t, other, path)
						if stat.EphemeralOwner != 0 {
							require.Equal(t, id, stat.EphemeralOwner, "step %d", step)
						}
					}

					require.NoError(t, barrier.New(other, path).Remove(t.Context()))
					return was
				})
			})
		}
	})
}

// The answer to Set is lost, and the barrier is removed before Set asks again. What it then sets is
// another barrier. So a request of the removal that comes late does not hit that.
func TestLateRemovalDoesNotHitTheBarrierThatARepeatedSetHasSet(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		link, other := srv.Link(t), srv.Client(t)
		_, err := suite.Session(t, other).EnsurePath(t.Context(), root)
		require.NoError(t, err)
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
		link.Cut()
		link.Heal()
		require.NoError(t, suite.Wait(t, set))

		_, err = suite.Session(t, other).Conn().Multi(late...)
		require.ErrorIs(t, err, zk.ErrNoNode)
		requireSet(t, b)
		require.NoError(t, b.Remove(t.Context()))
	})
}

// Another library has set the barrier. It sets it again while the answer to the deletion is on its
// way.
func TestRepeatedRemovalDoesNotHitALaterBarrierOfAnotherLibrary(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		hit := false
		suite.Sweep(t, func(step int) bool {
			path := fmt.Sprintf("%s-%d", root+"/b", step)
			link := srv.Link(t)
			c, other := link.Client(t), srv.Client(t)
			defer suite.Close(t, c, other)
			suite.Session(t, c)
			_, err := suite.Session(t, other).EnsurePath(t.Context(), root)
			require.NoError(t, err)
			conn := suite.Session(t, other).Conn()

			create := func() {
				_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}

			create()
			_, _, gone, err := conn.ExistsW(path)
			require.NoError(t, err)

			stalled := make(chan struct{})
			met := suite.At(link, step, func() { link.StallReplies(); close(stalled) })
			removed := make(chan error, 1)
			go func() { removed <- barrier.New(c, path).Remove(t.Context()) }()

			select {
			case <-stalled:
			case err := <-removed:
				require.NoError(t, err)
				removed <- nil
			}

			again := false
			select {
			case <-gone:
				create()
				again = true
			case <-time.After(100 * time.Millisecond): // this was not the deletion
			}

			link.Cut()
			link.Heal()
			require.NoError(t, <-removed)

			was := met()
			if again {
				require.True(t, suite.Exists(t, other, path), "step %d", step)
				hit = hit || was
			}
			return was
		})
		require.True(t, hit, "no answer to a deletion was lost")
	})
}
