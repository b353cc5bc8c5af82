package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestListenerHearsOfTermsAndLeaders(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/listen"
		first := campaign(t, srv.Client(t), path, "first")
		e := election.New(srv.Client(t), path)
		l := listen(t, e, "me")
		require.Equal(t, election.State{Leader: leaderOf(first, "first")}, next(t, l.states))

		suite.Await(t, 2, e.Candidates)
		resign(t, first)
		s := l.until(t, leads)
		require.Equal(t, leaderOf(s.Term, "me"), s.Leader)
		held, ok := e.Leading()
		require.True(t, ok)
		require.Same(t, s.Term, held)

		require.NoError(t, s.Term.Proclaim(t.Context(), []byte("me, still")))
		now := next(t, l.states)
		require.Same(t, s.Term, now.Term)
		require.Equal(t, "me, still", string(now.Leader.Value))

		other := election.New(srv.Client(t), path)
		m := listen(t, other, "other")
		m.until(t, led("me, still"))
		suite.Await(t, 2, other.Candidates)
		l.stop()
		l.until(t, waits)
		require.NoError(t, suite.Wait(t, l.ended))
		require.Empty(t, l.states)
		m.until(t, leads)
		m.stop()
		require.NoError(t, suite.Wait(t, m.ended))
		suite.Await(t, 0, e.Candidates)
	})
}

// The listener does in its call what has to be done before another process may lead.
func TestListenerIsToldBeforeTheTermIsGivenBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/before"
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := election.New(srv.Client(t), path)
		began, ending, end := make(chan *election.Term), make(chan struct{}), make(chan struct{})
		var term *election.Term
		ended := suite.Later(func() error {
			return e.Listen(ctx, nil, func(s election.State) {
				switch {
				case s.Term != nil && term == nil:
					term = s.Term
					began <- term
				case s.Term == nil && term != nil:
					close(ending)
					<-end
				}
			})
		})
		mine := suite.Wait(t, began)

		other := election.New(srv.Client(t), path)
		l := listen(t, other, "other")
		suite.Await(t, 2, other.Candidates)
		cancel()
		suite.Wait(t, ending)
		require.NoError(t, mine.Err())
		require.Equal(t, mine.Node(), suite.Await(t, 2, other.Candidates)[0].Node)
		close(end)
		require.NoError(t, suite.Wait(t, ended))
		require.ErrorIs(t, mine.Err(), protocol.ErrReleased)
		l.until(t, leads)
		l.stop()
		require.NoError(t, suite.Wait(t, l.ended))
	})
}

func TestListenerThatBlocksGetsTheNewestLeader(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/blocks"
		e, onlooker := election.New(srv.Client(t), path), election.New(c, path)
		first := campaign(t, c, path, "first")
		busy, free := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		states := make(chan election.State, 100)
		block := sync.OnceFunc(func() {
			close(busy)
			<-free
		})
		ended := suite.Later(func() error {
			return e.Listen(ctx, []byte("me"), func(s election.State) {
				if s.Term != nil {
					t.Error("told of a term that is over")
				}
				states <- s
				block()
			})
		})
		suite.Wait(t, busy)

		// While the first call blocks, its candidate wins a term and loses it to the last one.
		suite.Await(t, 2, onlooker.Candidates)
		var wait suite.Group
		won := stand(t, c, c, path, "last", 2, &wait)
		resign(t, first)
		var term *election.Term
		suite.Soon(t, func() (leads bool) { term, leads = e.Leading(); return leads }, "it leads")
		require.NoError(t, onlooker.Break(t.Context(), term.Node()))
		suite.Wait(t, term.Done())
		last := next(t, won)
		close(free)

		require.Equal(t, "first", string(next(t, states).Leader.Value))
		for string(next(t, states).Leader.Value) != "last" {
		}
		cancel()
		if err := suite.Wait(t, ended); err != nil {
			require.ErrorIs(t, err, protocol.ErrLost) // it may not have campaigned again yet
		}
		resign(t, last)
		require.NoError(t, wait.Wait())
	})
}

// Time is virtual: what a listener has to be told at one moment it is told at that moment.
func TestListenersNeverLeadTwoAtATime(t *testing.T) {
	const timeout = 10 * time.Second
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				random := rand.New(rand.NewPCG(seed, 0))
				path := srv.Root(t) + "/two"
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var leading atomic.Int32 // how many listeners were told that they lead
				var terms atomic.Int32
				var links []*recipestest.Link
				var wait suite.Group
				for range 3 {
					link := srv.Link(t)
					links = append(links, link)
					e := election.New(link.Client(t, protocol.WithSessionTimeout(timeout)), path)
					wait.Go(func() error {
						led := false
						return e.Listen(ctx, nil, func(s election.State) {
							if leads := s.Term != nil; leads != led {
								led = leads
								if !leads {
									leading.Add(-1)
								} else if terms.Add(1); leading.Add(1) > 1 {
									t.Error("two lead")
								}
							}
						})
					})
				}

				for range 20 {
					link := links[random.IntN(len(links))]
					faults := []func(){link.Cut, link.Stall, link.StallRequests, link.StallReplies, link.Isolate}
					faults[random.IntN(len(faults))]()
					time.Sleep(time.Duration(random.Int64N(int64(2 * timeout))))
					link.Heal()
				}
				time.Sleep(3 * timeout)
				require.EqualValues(t, 1, leading.Load())
				require.Greater(t, terms.Load(), int32(3))
				cancel()
				if err := wait.Wait(); err != nil {
					require.ErrorIs(t, err, protocol.ErrLost)
				}
				require.Zero(t, leading.Load())
			})
		})
	}
}
