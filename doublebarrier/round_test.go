package doublebarrier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// requireRound takes two new members, with n of two, through a round of this number.
func requireRound(t *testing.T, srv *recipestest.Server, path string, number int64, opts ...doublebarrier.Option) {
	t.Helper()
	var all []*entering
	cs := clients(t, srv, 2)
	for _, c := range cs {
		all = append(all, enter(patient(t), doublebarrier.New(c, path, 2, opts...)))
	}
	for _, e := range all {
		require.Equal(t, number, e.must(t).Round())
	}
	leave(t, all[0].entry, all[1].entry)
	suite.Close(t, cs...)
}

func TestNewcomerLearnsTheRound(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		watcher := srv.Client(t)
		for number := range int64(3) {
			requireRound(t, srv, path, number+1, doublebarrier.WithKeptRounds())
		}

		// One dies in line and is replaced.
		dead := srv.Client(t)
		enter(patient(t), doublebarrier.New(dead, path, 2))
		joined(t, watcher, path, 1)
		suite.Close(t, dead)
		joined(t, watcher, path, 0)
		requireRound(t, srv, path, 4)

		// All die inside, the opener last.
		cs := clients(t, srv, 2)
		for _, e := range inside(t, path, cs...) {
			require.EqualValues(t, 5, e.Round())
		}
		for _, c := range cs {
			srv.ExpireSession(session(t, c).ID())
		}
		joined(t, watcher, path, 0)
		requireRound(t, srv, path, 6)

		// Others agree on another number of members.
		alone := enter(patient(t), doublebarrier.New(watcher, path, 1)).must(t)
		require.EqualValues(t, 7, alone.Round())
		leave(t, alone)
		requireRound(t, srv, path, 8)
	})
}

// The record is overwritten during a round, of which the other member has not heard. It learns of
// its round from ready.
func TestRoundIsReadFromReadyWhenTheRecordIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 3)
		path := stage.Root(t) + "/b"
		requireRound(t, stage.Server, path, 1)

		first := enter(t.Context(), doublebarrier.New(stage.Clients[0], path, 2))
		joined(t, stage.Clients[2], path, 1)
		synctest.Wait()
		stage.Links[0].Cut()
		second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		_, err := session(t, stage.Clients[2]).Conn().Set(path+"/process", []byte("foreign"), -1)
		require.NoError(t, err)
		stage.Links[0].Heal()
		require.EqualValues(t, 2, first.must(t).Round())
		leave(t, first.entry, second)
	})
}

// The server removes the nodes of members that have all left, or died, unless the rounds are kept.
func TestRoundsBeginAgainUnlessTheyAreKept(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			root, watcher := srv.Root(t), srv.Client(t)
			forgets, keeps := root+"/forgets", root+"/keeps"
			requireRound(t, srv, forgets, 1)
			requireRound(t, srv, keeps, 1, doublebarrier.WithKeptRounds())

			numbers := []int64{2, 2}
			if dies {
				numbers = []int64{3, 3}
				for i, path := range []string{forgets, keeps} {
					cs := clients(t, srv, 2)
					require.EqualValues(t, numbers[i]-1, inside(t, path, cs...)[0].Round())
					for _, c := range cs {
						srv.ExpireSession(session(t, c).ID())
					}
					joined(t, watcher, path, 0)
				}
			}
			time.Sleep(time.Hour)
			for range 3 {
				srv.Embedded().ReapContainers()
			}

			require.False(t, suite.Exists(t, watcher, forgets))
			requireRound(t, srv, forgets, 1)
			requireRound(t, srv, keeps, numbers[1], doublebarrier.WithKeptRounds())
		})
	}
}

// All that is below the path vanishes at each packet of a member that keeps the rounds.
func TestKeptRoundsMayVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link, other := srv.Link(t), srv.Client(t)
			c := link.Client(t)
			defer suite.Close(t, c, other)
			session(t, c)
			conn := session(t, other).Conn()
			met := suite.At(link, step, func() { wipe(t, conn, path) })
			b := doublebarrier.New(c, path, 1, doublebarrier.WithKeptRounds())
			e := enter(patient(t), b).must(t)
			require.EqualValues(t, 1, e.Round())
			e.Leave(patient(t))
			return met()
		})
	})
}
