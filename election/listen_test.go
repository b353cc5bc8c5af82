package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A listening is a use of Listen in a goroutine.
type listening struct {
	states <-chan election.State
	stop   func()
	ended  <-chan error
}

// listen listens until the test ends at the latest. It checks what holds for each call.
func listen(t *testing.T, e *election.Election, value string) listening {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	states := make(chan election.State, 1000)
	var calling atomic.Bool
	var last election.State
	told := false

	ended := suite.Later(func() error {
		return e.Listen(ctx, []byte(value), func(s election.State) {
			switch again := told && last.Term == s.Term && last.Leader.Token == s.Leader.Token; {
			case calling.Swap(true):
				t.Error("two calls at a time")
			case last.Term != nil && s.Term != nil && last.Term != s.Term:
				t.Error("no call between two terms")
			case s.Term != nil && s.Leader.Token != s.Term.Token():
				t.Error("leads beside another leader")
			case again && string(last.Leader.Value) == string(s.Leader.Value):
				t.Error("nothing has changed")
			}
			last, told = s, true
			states <- s
			calling.Store(false)
		})
	})
	t.Cleanup(stop)
	return listening{states, stop, ended}
}

// until returns the first state from now on that is as wanted.
func (l listening) until(t *testing.T, wanted func(election.State) bool) election.State {
	t.Helper()
	for {
		if s := next(t, l.states); wanted(s) {
			return s
		}
	}
}

func leads(s election.State) bool { return s.Term != nil }
func waits(s election.State) bool { return s.Term == nil }

// led reports whether another candidate leads, with this value.
func led(value string) func(election.State) bool {
	return func(s election.State) bool { return s.Term == nil && string(s.Leader.Value) == value }
}

func TestListenerHearsOfTermsAndLeaders(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/listen"
		first := campaign(t, srv.Client(t), path, "first")
		e := election.New(srv.Client(t), path)
		l := listen(t, e, "me")
		require.Equal(t, election.State{Leader: election.Leader{Value: []byte("first"), Token: first.Token()}}, next(t, l.states))

		suite.Await(t, 2, e.Candidates)
		resign(t, first)
		s := l.until(t, leads)
		require.Equal(t, election.Leader{Value: []byte("me"), Token: s.Term.Token()}, s.Leader)
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

func TestListenerCampaignsAgainAfterEachEndOfATerm(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/again"
		e := election.New(c, path)
		l := listen(t, e, "me")
		var last int64
		for _, end := range []func(*election.Term){
			func(term *election.Term) { require.NoError(t, term.Resign(t.Context())) },
			func(term *election.Term) { require.NoError(t, e.Break(t.Context(), term.Node())) },
			func(*election.Term) { srv.ExpireSession(suite.Session(t, c).ID()) },
		} {
			term := l.until(t, leads).Term
			require.Greater(t, term.Token(), last)
			last = term.Token()
			end(term)
			l.until(t, waits)
			require.Error(t, term.Err())
		}

		l.until(t, leads)
		l.stop()
		require.NoError(t, suite.Wait(t, l.ended))
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

func TestListenResignsWhenTheListenerPanics(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		e := election.New(srv.Client(t), srv.Root(t)+"/panic")
		require.PanicsWithValue(t, "oops", func() {
			e.Listen(t.Context(), nil, func(s election.State) {
				if s.Term != nil {
					panic("oops")
				}
			})
		})
		line, err := e.Candidates(t.Context())
		require.NoError(t, err)
		require.Empty(t, line)
	})
}

func TestListenEndsWhenTheClientIsClosed(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/closed"
		var last election.State
		err := election.New(c, path).Listen(t.Context(), nil, func(s election.State) {
			if last = s; s.Term != nil {
				require.NoError(t, c.Close())
			}
		})
		require.ErrorIs(t, err, protocol.ErrClosed)
		require.Nil(t, last.Term)
	})
}

func TestListenReportsThatTheLeaderCannotBeSeen(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/refused"
	term := campaign(t, srv.Client(t), path, "leader")
	c := link.Client(t)
	link.Fail(recipestest.OpSync, path, -102, 1)
	err := election.New(c, path).Listen(t.Context(), nil, func(election.State) {})
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorContains(t, err, "election: "+path+": ")
	suite.Await(t, 1, election.New(srv.Client(t), path).Candidates)
	resign(t, term)
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

func TestNilListenerIsRefused(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	require.ErrorContains(t, election.New(c, "/a").Listen(t.Context(), nil, nil), "election: /a: nil function")
	err := election.New(c, "/a").Listen(t.Context(), make([]byte, protocol.MaxData), func(election.State) {})
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	require.Equal(t, before, link.Packets())
}
