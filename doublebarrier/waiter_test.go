package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
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

// hostData are the data of the i-th member. They have bytes that no terminal should see.
func hostData(i int) []byte { return fmt.Appendf(nil, "host-%d\x00\n\x1b[2J\xff", i) }

func waiters(t testing.TB, b *doublebarrier.Barrier) []doublebarrier.Waiter {
	t.Helper()
	all, err := b.Waiting(patient(t))
	require.NoError(t, err)
	return all
}

func TestWaitingShowsWhoHasComeAndWhoIsInside(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 3
		path := srv.Root(t) + "/b"
		cs, watcher := clients(t, srv, n), srv.Client(t)
		operator := doublebarrier.New(srv.Client(t), path, 1) // which does not know n
		require.Empty(t, waiters(t, operator))

		for round := range int64(2) {
			var all []*entering
			for i, c := range cs {
				seen := waiters(t, operator)
				require.Len(t, seen, i)
				for j, w := range seen {
					require.Equal(t, session(t, cs[j]).ID(), w.Session)
					require.Equal(t, hostData(j), w.Data)
					require.False(t, w.Inside)
					require.Equal(t, round+1, w.Round)
					require.Equal(t, n, w.N)
					_, stat := suite.Get(t, watcher, path+"/process/"+w.Node)
					require.Equal(t, time.UnixMilli(stat.Ctime), w.Since)
				}

				all = append(all, enter(patient(t), doublebarrier.New(c, path, n,
					doublebarrier.WithData(hostData(i)), doublebarrier.WithKeptRounds())))
				if i < n-1 {
					joined(t, watcher, path, i+1)
				}
			}

			for _, e := range all {
				e.must(t)
			}
			seen := waiters(t, operator)
			require.Len(t, seen, n)
			for i, w := range seen {
				require.Equal(t, all[i].entry.Node(), w.Node)
				require.Equal(t, hostData(i), w.Data)
				require.True(t, w.Inside)
				require.Equal(t, round+1, w.Round)
			}

			left := make(chan error, 1)
			go func() { left <- all[1].entry.Leave(patient(t)) }()
			joined(t, watcher, path, n-1)
			seen = waiters(t, operator)
			require.Len(t, seen, n-1)
			require.Equal(t, []string{all[0].entry.Node(), all[2].entry.Node()}, []string{seen[0].Node, seen[1].Node})
			leave(t, all[0].entry, all[2].entry)
			require.NoError(t, <-left)
			require.Empty(t, waiters(t, operator))
		}
	})
}

// Between any two requests of Waiting, a second member comes, and both are let in. Waiting shows
// what was before or after that.
func TestWaitingIsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link := srv.Link(t)
			watcher, cs := link.Client(t), clients(t, srv, 2)
			defer suite.Close(t, append(cs, watcher)...)
			for _, c := range append(cs, watcher) {
				session(t, c)
			}

			first := enter(patient(t), doublebarrier.New(cs[0], path, 2))
			joined(t, cs[1], path, 1)
			synctest.Wait()
			second := &entering{}
			met := suite.At(link, step, func() {
				second = enter(patient(t), doublebarrier.New(cs[1], path, 2))
				second.wait()
				first.wait()
			})
			seen := waiters(t, doublebarrier.New(watcher, path, 2))
			was := met()

			require.NotEmpty(t, seen, "step %d", step)
			for _, w := range seen {
				require.Equal(t, len(seen) == 2, w.Inside, "step %d", step)
			}
			if !was {
				second = enter(patient(t), doublebarrier.New(cs[1], path, 2))
			}
			leave(t, first.must(t), second.must(t))
			return was
		})
	})
}

// Nodes of others are not members, and a member that goes while it is read is left out.
func TestWaitingLeavesOutWhatIsNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		path, link := stage.Root(t)+"/b", stage.Links[0]
		persistent(t, stage.Clients[1], path)
		conn := session(t, stage.Clients[1]).Conn()
		_, err := conn.Create(path+"/process/foreign", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		operator := doublebarrier.New(stage.Clients[0], path, 1)
		require.Empty(t, waiters(t, operator))

		stays := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 3))
		joined(t, stage.Clients[1], path, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		goes := enter(ctx, doublebarrier.New(stage.Clients[1], path, 3))
		joined(t, stage.Clients[1], path, 3)
		const listed = 6 // packets of the Sync, of a read and of the listing
		stop := link.At(listed, func() {
			link.Delay(time.Second)
			cancel()
		})
		require.Len(t, waiters(t, operator), 1)
		require.False(t, stop())
		link.Delay(0)
		_, err = goes.wait()
		require.ErrorIs(t, err, context.Canceled)

		var others []*entering
		for _, c := range stage.Clients {
			others = append(others, enter(t.Context(), doublebarrier.New(c, path, 3)))
		}
		leave(t, stays.must(t), others[0].must(t), others[1].must(t))
	})
}

// Four requests and one for each member, and none of the members.
func TestWaitingCostsTheMembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		stage := suite.NewStage(t, n)
		path := stage.Root(t) + "/b"
		for _, c := range stage.Clients[1:] {
			ctx, cancel := context.WithCancel(t.Context())
			defer func() {
				cancel()
				synctest.Wait()
			}()
			enter(ctx, doublebarrier.New(c, path, n, doublebarrier.WithData(hostData(0))))
		}
		joined(t, stage.Clients[0], path, n-1)
		time.Sleep(time.Minute)

		requests := &meter{links: stage.Links}
		requests.next()
		require.Len(t, waiters(t, doublebarrier.New(stage.Clients[0], path, n)), n-1)
		sum, _ := requests.next()
		require.Equal(t, 4+n-1, sum[recipestest.OpAny])
	})
}

// At each packet of Waiting its client meets a fault. It returns the members, or why it could not.
func TestWaitingReturnsWhateverHappens(t *testing.T) {
	for _, f := range append(suite.SlowFaults(10*time.Second), suite.QuickFaults...) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path, other := srv.Root(t)+"/b", srv.Client(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := enter(ctx, doublebarrier.New(other, path, 2, doublebarrier.WithData(hostData(1))))
				joined(t, other, path, 1)

				suite.Sweep(t, func(step int) bool {
					link := srv.Link(t)
					c := link.Client(t)
					id := session(t, c).ID()
					met := suite.At(link, step, func() { f.Do(srv, link, id) })
					seen, err := doublebarrier.New(c, path, 2).Waiting(patient(t))
					if err != nil {
						require.ErrorIs(t, err, protocol.ErrLost, "step %d", step)
						require.ErrorContains(t, err, "doublebarrier: "+path)
					} else {
						require.Len(t, seen, 1, "step %d", step)
						require.Equal(t, hostData(1), seen[0].Data)
					}
					was := met()
					link.Heal()
					suite.TryClose(c)
					return was
				})
				cancel()
				waiting.wait()
			})
		})
	}
}

func TestWaitingRefusesBadInputBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	for name, b := range map[string]*doublebarrier.Barrier{
		"nil client": doublebarrier.New(nil, "/a", 2),
		"bad path":   doublebarrier.New(c, "a", 2),
		"no members": doublebarrier.New(c, "/a", 0),
	} {
		_, err := b.Waiting(t.Context())
		require.ErrorContains(t, err, "doublebarrier: ", name)
	}

	done, cancel := context.WithCancel(t.Context())
	cancel()
	tooMuch := doublebarrier.New(c, "/a", 2, doublebarrier.WithData(make([]byte, protocol.MaxData)))
	_, err := tooMuch.Enter(done)
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	require.Equal(t, before, link.Packets())
	_, err = doublebarrier.New(c, "/a", 2).Waiting(done)
	require.ErrorIs(t, err, context.Canceled)
	suite.Close(t, c)
	_, err = doublebarrier.New(c, "/a", 2).Waiting(t.Context())
	require.True(t, errors.Is(err, protocol.ErrClosed), err)
}
