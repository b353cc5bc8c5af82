package election_test

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

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestNextLeadsAfterOneNotificationAndNoListing(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/next"
		var wait suite.Group
		onlooker := srv.Client(t)
		term := campaign(t, onlooker, path, "0")
		var links []*recipestest.Link
		var candidates []<-chan *election.Term
		for i := 1; i < 7; i++ {
			link := srv.Link(t)
			links = append(links, link)
			candidates = append(candidates, stand(t, onlooker, link.Client(t), path, fmt.Sprint(i), i, &wait))
			<-link.Answered(recipestest.OpGetData, 2) // it waits
			if i > 1 {
				<-link.Answered(recipestest.OpExists, 1)
			}
		}

		for i, link := range links {
			hears := 2 // the marker, and the deletion of the predecessor
			if i == 0 {
				hears = 1
			}

			listings, reads := link.Count(recipestest.OpGetChildren), link.Count(recipestest.OpGetData)
			resign(t, term)
			term = next(t, candidates[i])
			<-link.Answered(recipestest.OpEvent, hears)
			events, listings, read := link.Events(), link.Count(recipestest.OpGetChildren)-listings, link.Count(recipestest.OpGetData)-reads
			if n := again(t, link); n == 0 {
				require.Equal(t, hears, events)
				require.Zero(t, listings)
				require.Zero(t, read)
			} else {
				require.LessOrEqual(t, events, hears+n)
				require.LessOrEqual(t, listings, 2*n)
			}

			for _, other := range links[i+1:] {
				require.Zero(t, other.Events(), "others were woken")
			}
		}

		resign(t, term)
		require.NoError(t, wait.Wait())
	})
}

func TestRunLeadsAgainAfterEachEndOfATerm(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/run"
		e := election.New(c, path)
		failure := errors.New("failure")
		var last int64
		n, working := 0, atomic.Bool{}
		err := e.Run(t.Context(), []byte("me"), func(ctx context.Context, term *election.Term) error {
			require.False(t, working.Swap(true), "the last call has not returned")
			defer working.Store(false)
			require.Greater(t, term.Token(), last)
			last = term.Token()
			line, err := e.Candidates(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"me"}, values(line), "the last term's node is gone")
			n++

			switch n {
			case 1: // steps down
				return nil
			case 2:
				require.NoError(t, term.Resign(ctx))
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), protocol.ErrReleased)
				return context.Cause(ctx)

			case 3:
				require.NoError(t, e.Break(t.Context(), term.Node())) // not ctx: the loss may be noticed before the reply
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), protocol.ErrLost)
				return ctx.Err()

			case 4:
				srv.ExpireSession(suite.Session(t, c).ID())
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), protocol.ErrLost)
				return fmt.Errorf("my work: %w", context.Cause(ctx))

			default:
				return failure
			}
		})

		require.Equal(t, 5, n)
		require.ErrorIs(t, err, failure)
		require.NotErrorIs(t, err, protocol.ErrLost)
		suite.Await(t, 0, e.Candidates)
	})
}

func TestPausesOfRunBeginAnewAfterALongTerm(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		made, terms, enough := 0, 0, errors.New("enough")
		e := election.New(srv.Client(t), srv.Root(t)+"/run", election.WithBackOff(func() backoff.BackOff {
			made++
			return &backoff.ZeroBackOff{}
		}))
		err := e.Run(t.Context(), nil, func(ctx context.Context, term *election.Term) error {
			switch terms++; terms {
			case 3:
				require.Equal(t, 1, made, "short terms have their pauses from one back-off")
				time.Sleep(2 * time.Second)
			case 5:
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, 2, made)
	})
}

func TestRunEndsWithItsContextAfterLeadHasReturned(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/ends"
		e, other := election.New(srv.Client(t), path), election.New(srv.Client(t), path)
		for name, work := range map[string]func(context.Context) error{
			"nil":       func(context.Context) error { return nil },
			"its own":   func(ctx context.Context) error { return ctx.Err() },
			"cause":     context.Cause,
			"unrelated": func(context.Context) error { return errors.New("unrelated") },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			over := false
			err := e.Run(ctx, nil, func(ctx context.Context, term *election.Term) error {
				cancel(errors.New("enough"))
				<-ctx.Done()
				require.NoError(t, term.Err(), "lead has not returned")
				line, err := other.Candidates(t.Context())
				require.NoError(t, err)
				require.Len(t, line, 1, "the node is still there")
				over = true
				return work(ctx)
			})

			require.True(t, over)
			if name == "unrelated" {
				require.EqualError(t, err, "unrelated")
			} else {
				require.NoError(t, err, name)
			}

			suite.Await(t, 0, e.Candidates)
		}
	})
}

func TestRunEndsInOrderWhileItWaits(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/waits"
		leader, standby := election.New(srv.Client(t), path), election.New(srv.Client(t), path)
		term, err := leader.Campaign(t.Context(), nil)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		ended := suite.Later(func() error {
			return standby.Run(ctx, nil, func(context.Context, *election.Term) error { return errors.New("it leads") })
		})
		suite.Await(t, 2, leader.Candidates)
		cancel()
		require.NoError(t, suite.Wait(t, ended))
		suite.Await(t, 1, leader.Candidates)
		require.NoError(t, standby.Run(ctx, nil, func(context.Context, *election.Term) error { return errors.New("it leads") }))
		require.NoError(t, term.Resign(t.Context()))
	})
}

// A term that is lost while ctx ends was not given back.
func TestRunReportsALossAtItsEnd(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		e := election.New(srv.Client(t), srv.Root(t)+"/lost")
		ctx, cancel := context.WithCancel(t.Context())
		err := e.Run(ctx, nil, func(held context.Context, term *election.Term) error {
			require.NoError(t, e.Break(t.Context(), term.Node()))
			<-term.Done()
			cancel()
			return held.Err()
		})
		require.ErrorIs(t, err, protocol.ErrLost)
		require.NotErrorIs(t, err, context.Canceled)
	})
}

func TestRunJoinsTheErrorOfLeadWithTheLossOfTheTerm(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		e := election.New(srv.Client(t), srv.Root(t)+"/fails")
		failure := errors.New("failure")
		err := e.Run(t.Context(), nil, func(ctx context.Context, term *election.Term) error {
			require.NoError(t, e.Break(t.Context(), term.Node())) // not ctx: the loss may be noticed before the reply
			<-ctx.Done()
			return failure
		})
		require.ErrorIs(t, err, failure)
		require.ErrorIs(t, err, protocol.ErrLost)
		err = e.Run(t.Context(), nil, func(context.Context, *election.Term) error { return context.Canceled })
		require.ErrorIs(t, err, context.Canceled, "another context's, as the term goes on")
		err = e.Run(t.Context(), nil, func(_ context.Context, term *election.Term) error {
			require.NoError(t, term.Resign(t.Context()))
			return failure
		})
		require.ErrorIs(t, err, failure)
		require.NotErrorIs(t, err, protocol.ErrReleased, "which lead itself has done")
	})
}

func TestRunResignsWhenLeadPanics(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		e := election.New(srv.Client(t), srv.Root(t)+"/panic")
		require.PanicsWithValue(t, "oops", func() {
			e.Run(t.Context(), nil, func(context.Context, *election.Term) error { panic("oops") })
		})
		suite.Await(t, 0, e.Candidates)
	})
}

func TestRunEndsWhenTheClientIsClosed(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/closed"
		err := election.New(c, path).Run(t.Context(), nil, func(ctx context.Context, _ *election.Term) error {
			suite.Close(t, c)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}

func TestLeadingIsTheTermThatThisElectionHolds(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/leading"
		c := link.Client(t)
		e, other := election.New(c, path), election.New(c, path)
		_, ok := e.Leading()
		require.False(t, ok)

		first, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		link.Stall() // so no request is answered
		held, ok := e.Leading()
		require.True(t, ok)
		require.Same(t, first, held)
		_, ok = other.Leading()
		require.False(t, ok, "the term was won through another value")
		link.Heal()

		require.NoError(t, first.Resign(t.Context()))
		_, ok = e.Leading()
		require.False(t, ok)

		second, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		held, ok = e.Leading()
		require.True(t, ok)
		require.Same(t, second, held)

		s, err := c.Session(t.Context())
		require.NoError(t, err)
		srv.ExpireSession(s.ID())
		<-second.Done()
		_, ok = e.Leading()
		require.False(t, ok)
	})
}

// A function that returns at once lets other candidates lead in between, and does not make Run
// spin.
func TestRunIsPacedAndLetsOthersLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/paced"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var terms [2]int
		var wait suite.Group
		for i := range terms {
			e := election.New(srv.Client(t), path)
			wait.Go(func() error {
				return e.Run(ctx, nil, func(context.Context, *election.Term) error {
					terms[i]++
					return nil
				})
			})
		}

		require.NoError(t, wait.Wait())
		for _, n := range terms {
			require.Greater(t, n, 30)
			require.Less(t, n, 150)
		}

		stop := func() backoff.BackOff { return &backoff.StopBackOff{} }
		err := election.New(srv.Client(t), path, election.WithBackOff(stop)).Run(t.Context(), nil,
			func(context.Context, *election.Term) error { return nil })
		require.ErrorContains(t, err, "given up")
	})
}

// A leader whose connection breaks leads on if it comes back in time. Otherwise it learns of its
// loss before the next one leads.
func TestSuspendedLeaderKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/suspended"
		link := srv.Link(t)
		leader := campaign(t, link.Client(t), path, "leader")
		var wait suite.Group
		won := stand(t, srv.Client(t), srv.Client(t), path, "next", 1, &wait)

		for _, fault := range []func(){link.Cut, link.Stall} {
			for range 3 {
				fault()
				time.Sleep(4 * time.Second) // of the ten seconds of the session timeout
				require.NoError(t, leader.Err())
				link.Heal()
				time.Sleep(4 * time.Second)
				require.NoError(t, leader.Err())
				require.Empty(t, won)
			}
		}

		link.Stall()
		cut := time.Now()
		<-leader.Done()
		lost := time.Now()
		require.ErrorIs(t, leader.Err(), protocol.ErrLost)
		term := next(t, won)
		require.Greater(t, time.Since(lost), time.Second, "the old leader knew before")
		require.Less(t, time.Since(cut), 11*time.Second, "a timeout, a tick and a little")
		resign(t, term)
		require.NoError(t, wait.Wait())
	})
}

func TestProclaimChangesTheValue(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/proclaim"
		link := srv.Link(t)
		c := link.Client(t)
		e := election.New(srv.Client(t), path)
		term := campaign(t, c, path, "one")

		for _, value := range []string{"two", "", "two", "two"} {
			require.NoError(t, term.Proclaim(t.Context(), []byte(value)))
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, value, string(l.Value))
			require.Equal(t, term.Token(), l.Token)
		}

		link.LoseReply(recipestest.OpSetData, 2)
		require.NoError(t, term.Proclaim(t.Context(), []byte("three")))
		l, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "three", string(l.Value))
		require.NoError(t, term.Err())

		require.ErrorIs(t, term.Proclaim(t.Context(), make([]byte, protocol.MaxData)), protocol.ErrTooLarge)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, term.Proclaim(dead, nil), context.Canceled)
		resign(t, term)
		require.ErrorIs(t, term.Proclaim(t.Context(), []byte("late")), protocol.ErrReleased)

		term = campaign(t, c, path, "four")
		require.NoError(t, e.Break(t.Context(), term.Node()))
		require.ErrorIs(t, term.Proclaim(t.Context(), []byte("late")), protocol.ErrLost)
		require.ErrorIs(t, term.Err(), protocol.ErrLost)
	})
}

// A Proclaim whose caller gave up is still on its way when the next one is made. It must not undo
// the next one.
func TestAbandonedProclaimDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/late"
		link := srv.Link(t)
		term := campaign(t, link.Client(t), path, "one")
		e := election.New(srv.Client(t), path)
		time.Sleep(time.Second)
		link.Delay(100 * time.Millisecond)

		for range 20 {
			short, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond) // the second request is on its way
			require.ErrorIs(t, term.Proclaim(short, []byte("given up")), context.DeadlineExceeded)
			cancel()
			require.NoError(t, term.Proclaim(t.Context(), []byte("wanted")))
			time.Sleep(time.Second)
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, "wanted", string(l.Value))
		}

		link.Delay(0)
		resign(t, term)
	})
}

// The reply to the first Proclaim is lost. Another one follows before the first has settled its
// outcome.
func TestProclaimTakesEffectOnce(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, lostSyncs := range []int{0, 1, 2} {
			path, link := fmt.Sprintf("%s/once-%d", srv.Root(t), lostSyncs), srv.Link(t)
			c := link.Client(t, protocol.WithBackOff(func() backoff.BackOff {
				return backoff.NewConstantBackOff(200 * time.Millisecond)
			}))

			term := campaign(t, c, path, "v0")
			connects := link.Count(recipestest.OpConnect)
			link.LoseReply(recipestest.OpSetData, 1)
			first := make(chan error, 1)
			go func() { first <- term.Proclaim(t.Context(), []byte("v1")) }()
			require.Eventually(t, func() bool { return link.Count(recipestest.OpConnect) > connects },
				suite.Limit, time.Millisecond)
			link.LoseReply(recipestest.OpSync, lostSyncs)

			second := suite.Must(t, func(ctx context.Context) (error, error) {
				return nil, term.Proclaim(ctx, []byte("v2"))
			})

			require.NoError(t, second)
			require.NoError(t, <-first)
			data, stat := suite.Get(t, c, path+"/"+term.Node())
			require.Equal(t, "v2", string(data))
			require.EqualValues(t, 2, stat.Version, "each was written once")
			resign(t, term)
		}
	})
}

// The value is written exactly once, whether the server received the first request or not.
func TestProclaimWithTheConnectionCutAtAnyPacket(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/any", srv.Link(t)
		c := link.Client(t)
		term := campaign(t, c, path, "v0")

		for step := 1; step <= 6; step++ {
			stop := link.At(step, func() { link.Cut(); link.Heal() })
			value := fmt.Sprintf("v%d", step)

			require.NoError(t, term.Proclaim(t.Context(), []byte(value)))

			stop()
			data, stat := suite.Get(t, c, path+"/"+term.Node())
			require.Equal(t, value, string(data))
			require.EqualValues(t, step, stat.Version)
		}

		resign(t, term)
	})
}

func TestResignToAChosenCandidate(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/chosen"
		onlooker := srv.Client(t)
		e := election.New(onlooker, path)
		links := make([]*recipestest.Link, 5)
		won := make([]<-chan *election.Term, 5)
		var wait suite.Group
		for i := range links {
			links[i] = srv.Link(t)
			won[i] = stand(t, onlooker, links[i].Client(t), path, fmt.Sprint(i), i, &wait)
		}

		leader := next(t, won[0])
		line := suite.Await(t, 5, e.Candidates)
		<-links[3].Answered(recipestest.OpGetData, 2) // it waits
		<-links[3].Answered(recipestest.OpExists, 1)
		listings := links[3].Count(recipestest.OpGetChildren)
		require.NoError(t, leader.ResignTo(t.Context(), line[3].Node))
		require.ErrorIs(t, leader.Err(), protocol.ErrReleased)
		term := next(t, won[3])
		require.Greater(t, term.Token(), leader.Token())
		<-links[3].Answered(recipestest.OpEvent, 2) // the marker and the predecessor's deletion, or after a reconnect
		events, listings := links[3].Events(), links[3].Count(recipestest.OpGetChildren)-listings
		if n := again(t, links[3]); n == 0 {
			require.Equal(t, 2, events, "one notification")
			require.Zero(t, listings, "the notification suffices")
		} else {
			require.LessOrEqual(t, events, 2+n)
			require.LessOrEqual(t, listings, 1+2*n)
		}

		require.Zero(t, links[4].Events(), "candidates behind the chosen one are not woken")

		require.Eventually(t, func() bool {
			line, err := e.Candidates(t.Context())
			return err == nil && len(line) == 4
		}, suite.Limit, time.Millisecond, "the candidates passed over are back")

		line = suite.Await(t, 4, e.Candidates)
		require.Equal(t, []string{"3", "4"}, values(line[:2]))
		require.ElementsMatch(t, []string{"1", "2"}, values(line[2:]))

		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "the next one")
		last := term.Token()

		for _, c := range line[1:] {
			var i int
			fmt.Sscan(string(c.Value), &i)
			term := next(t, won[i])
			require.Greater(t, term.Token(), last)
			last = term.Token()
			resign(t, term)
		}

		require.NoError(t, wait.Wait())
	})
}

func TestResignToAnUnfitCandidateChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/refused"
		c := srv.Client(t)
		e := election.New(c, path)
		term := campaign(t, c, path, "leader")
		var wait suite.Group
		conn := suite.Session(t, srv.Client(t)).Conn()
		strange, err := conn.Create(path+"/_c_0123456789abcdef-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		won := stand(t, c, srv.Client(t), path, "b", 2, &wait)
		line := suite.Await(t, 3, e.Candidates)

		for _, node := range []string{"", "unknown", term.Node()} {
			require.ErrorIs(t, term.ResignTo(t.Context(), node), election.ErrNotInLine)
		}

		err = term.ResignTo(t.Context(), line[2].Node)
		require.ErrorIs(t, err, election.ErrForeignContender)
		require.ErrorContains(t, err, "election: "+path)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, term.ResignTo(dead, line[2].Node), context.Canceled)
		require.NoError(t, term.Err())
		require.Equal(t, line, suite.Await(t, 3, e.Candidates))

		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "a foreign contender may lead")
		require.ErrorIs(t, term.ResignTo(t.Context(), line[2].Node), protocol.ErrReleased)
		require.Empty(t, won)
		require.NoError(t, conn.Delete(strange, -1))
		b := next(t, won)
		require.NoError(t, e.Break(t.Context(), b.Node()))
		require.ErrorIs(t, b.ResignTo(t.Context(), line[1].Node), protocol.ErrLost)
		require.NoError(t, wait.Wait())
	})
}

// The answer to the transaction is lost, and the next server does not know yet that the leader's
// node is gone.
func TestResignToOverAServerThatLags(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/e", srv.Link(t), srv.Embedded().Follower()
		onlooker := srv.Client(t)
		leader := campaign(t, link.Client(t), path, "leader")
		var wait suite.Group
		won := stand(t, onlooker, srv.Client(t), path, "next", 1, &wait)
		line := suite.Await(t, 2, election.New(onlooker, path).Candidates)
		suite.CatchUp(t, link.Client(t))

		follower.Lag(time.Second)
		link.Move(follower)
		link.LoseReply(recipestest.OpMulti, 1)
		require.NoError(t, leader.ResignTo(t.Context(), line[1].Node))
		resign(t, next(t, won))
		require.NoError(t, wait.Wait())
	})
}

// The server loses its leader before it passes the transaction on, and goes on answering pings. It
// is left soon enough to resign over another one with the same session.
func TestResignToLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/e", srv.Link(t), srv.Embedded().Follower()
		gate := &suite.Gate{Op: recipestest.OpMulti}
		link.Move(follower)
		onlooker, c := srv.Client(t), link.Client(t, gate.Option(link))
		link.Move(nil)
		session, leader := suite.Session(t, c), campaign(t, c, path, "leader")
		var wait suite.Group
		won := stand(t, onlooker, srv.Client(t), path, "next", 1, &wait)
		line := suite.Await(t, 2, election.New(onlooker, path).Candidates)

		gate.Shut()
		ctx := suite.Within(t, session.Timeout()/2)
		resigned := suite.Later(func() error { return leader.ResignTo(ctx, line[1].Node) })
		synctest.Wait()
		require.True(t, gate.Holding())
		follower.Isolate()
		gate.Open()
		require.NoError(t, suite.Wait(t, resigned))
		require.NoError(t, session.Err())
		resign(t, next(t, won))
		require.NoError(t, wait.Wait())
	})
}

func TestResignBeatsResignTo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/both"
		link := srv.Link(t)
		leader := campaign(t, link.Client(t), path, "0")
		var wait suite.Group
		onlooker := srv.Client(t)
		one := stand(t, onlooker, srv.Client(t), path, "1", 1, &wait)
		two := stand(t, onlooker, srv.Client(t), path, "2", 2, &wait)
		line := suite.Await(t, 3, election.New(onlooker, path).Candidates)
		<-link.Answered(recipestest.OpGetData, 1) // the leader watches its node
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		stop := link.At(3, func() { leader.Resign(dead) }) // while ResignTo lists the line
		require.ErrorIs(t, leader.ResignTo(t.Context(), line[2].Node), protocol.ErrReleased)
		require.False(t, stop())
		resign(t, next(t, one))
		resign(t, next(t, two))
		require.NoError(t, wait.Wait())
	})
}

// The chosen candidate, or one that is to be passed over, may leave before the transaction is sent.
func TestResignToWhileTheLineChanges(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for leaver := 1; leaver <= 3; leaver++ {
			attempts := 1
			for !leavesInTime(t, srv, leaver) {
				t.Logf("%d left before the line was listed: trying again", leaver)
				attempts++
				require.LessOrEqual(t, attempts, 20, "it always left too early")
			}
		}
	})
}

// leavesInTime makes a candidate leave while the leader resigns in favour of the last, between the
// listing and the transaction. It returns false if the candidate left too early. That happens
// because the packets that keep the session and watch the term share the network: any of them may
// trigger the departure.
func leavesInTime(t *testing.T, srv *recipestest.Server, leaver int) bool {
	t.Helper()
	path := fmt.Sprintf("%s/leaves-%d", srv.Root(t), leaver)
	onlooker := srv.Client(t)
	e := election.New(onlooker, path)
	link := srv.Link(t)
	var wait suite.Group
	leader := campaign(t, link.Client(t), path, "0")
	var won []<-chan *election.Term
	for i := 1; i <= 3; i++ {
		candidate := srv.Link(t)
		won = append(won, stand(t, onlooker, candidate.Client(t), path, fmt.Sprint(i), i, &wait))
		suite.Wait(t, candidate.Answered(recipestest.OpGetData, 2)) // it watches its predecessor and its own node
	}

	line := suite.Await(t, 4, e.Candidates)
	listings := link.Count(recipestest.OpGetChildren)
	<-link.Answered(recipestest.OpGetData, 1) // the leader watches its node
	var listed atomic.Bool

	// The request to list the line passes. Its reply is held up until the leaver has gone.
	stop := link.At(4, func() {
		listed.Store(link.Count(recipestest.OpGetChildren) > listings)
		e.Break(t.Context(), line[leaver].Node)
	})

	err := leader.ResignTo(t.Context(), line[3].Node)
	require.False(t, stop())
	first, nothing := won[2], false
	if leaver == 3 {
		require.ErrorIs(t, err, election.ErrNotInLine)
		first = won[0]
		if nothing = leader.Err() == nil; nothing {
			resign(t, leader)
		}
	} else {
		require.NoError(t, err)
	}

	require.Error(t, leader.Err())
	term := next(t, first)
	require.Greater(t, term.Token(), leader.Token())
	resign(t, term)

	for _, w := range won {
		if w != first {
			wait.Go(func() error { return next(t, w).Resign(t.Context()) })
		}
	}

	require.NoError(t, wait.Wait())
	return listed.Load() && !nothing
}

// A fault at any step of a hand-over leaves one leader, and every candidate in line.
func TestFaultAtEachStepOfAHandOver(t *testing.T) {
	for _, f := range append(suite.QuickFaults, suite.SlowFaults(10*time.Second)...) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				for _, victim := range []int{0, 1, 2} {
					suite.Sweep(t, func(step int) bool {
						return handOverThrough(t, srv, fmt.Sprintf("%s/%d-%d", root, victim, step), f, victim, step)
					})
				}
			})
		})
	}
}

// handOverThrough makes the first of three candidates resign in favour of the last, and the others
// lead in turn. One of them meets the fault.
func handOverThrough(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, victim, step int) (met bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	link := srv.Link(t)
	clients := []*protocol.Client{srv.Client(t), srv.Client(t), srv.Client(t)}
	clients[victim] = link.Client(t)
	session := suite.Session(t, clients[victim]).ID()
	e := election.New(clients[0], path)
	book := &ledger{}
	betrayed := func(i int) bool { return f.Name == "expiry" && i == victim }
	leader := campaign(t, clients[0], path, "0")
	require.NoError(t, book.won(leader, betrayed(0)))
	var wait suite.Group
	for i := 1; i <= 2; i++ {
		e := election.New(clients[i], path)
		wait.Go(func() error {
			term, err := e.Campaign(ctx, fmt.Append(nil, i))
			if err != nil {
				return err
			}

			if err := book.won(term, betrayed(i)); err != nil {
				return err
			}

			if err := term.Proclaim(ctx, fmt.Append(nil, "leader ", i)); err != nil && !errors.Is(err, protocol.ErrLost) {
				return err
			}

			if err := term.Resign(ctx); err != nil && !errors.Is(err, protocol.ErrLost) {
				return err
			}

			return nil
		})

		suite.Await(t, i+1, e.Candidates)
	}

	line, err := e.Candidates(ctx)
	require.NoError(t, err)
	stop := link.At(step, func() { f.Do(srv, link, session) })
	err = leader.ResignTo(ctx, line[2].Node)

	switch {
	case errors.Is(err, election.ErrNotInLine): // the chosen one met its fault
		require.NotZero(t, victim)
		if leader.Err() == nil {
			resign(t, leader)
		}
	case errors.Is(err, protocol.ErrLost):
		require.Zero(t, victim)
		require.NotContains(t, []string{"cut", "lost reply", "two lost replies"}, f.Name, "the session goes on")
	default:
		require.NoError(t, err)
	}

	require.NoError(t, wait.Wait(), "victim %d, step %d", victim, step)
	met = !stop()
	link.Heal()
	last := clients[(victim+1)%3]
	term := campaign(t, last, path, "last")
	require.NoError(t, book.won(term, false))
	require.NoError(t, term.Resign(ctx))
	suite.Close(t, clients[victim])
	suite.Await(t, 0, election.New(last, path).Candidates)
	suite.Close(t, last, clients[(victim+2)%3])
	return met
}

func BenchmarkHandOver(b *testing.B) {
	srv := recipestest.Start(b)
	path := srv.Root(b) + "/hand-over"
	terms := make(chan *election.Term)
	stop := make(chan struct{})
	var wait suite.Group
	for range 2 {
		e := election.New(srv.Client(b), path)
		wait.Go(func() error {
			for {
				term, err := e.Campaign(b.Context(), nil)
				if err != nil {
					return err
				}
				select {
				case terms <- term:
				case <-stop:
					return term.Resign(b.Context())
				}
			}
		})
	}

	for b.Loop() { // from a resignation until the next leader knows
		if err := (<-terms).Resign(b.Context()); err != nil {
			b.Fatal(err)
		}
	}

	close(stop)
	if err := wait.Wait(); err != nil {
		b.Fatal(err)
	}
}
