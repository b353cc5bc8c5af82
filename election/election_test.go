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
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

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

		require.ErrorIs(t, wait.Wait(), context.DeadlineExceeded)
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

// The tokens begin anew, so the first term is not the latest one for ever.
func TestLeadingAfterALossOfTheData(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, _, lose := loseData(t, srv)
		e := election.New(c, "/e")
		first, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		lose()
		<-first.Done()
		second, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		require.Less(t, second.Token(), first.Token())
		held, ok := e.Leading()
		require.True(t, ok)
		require.Same(t, second, held)
		resign(t, second)
	})
}

func TestBackOffThatFailsEndsRun(t *testing.T) {
	for name, newBackOff := range map[string]func() backoff.BackOff{
		"nil":    func() backoff.BackOff { return nil },
		"panics": func() backoff.BackOff { panic("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				e := election.New(srv.Client(t), srv.Root(t), election.WithBackOff(newBackOff))
				err := e.Run(t.Context(), nil, func(context.Context, *election.Term) error { return nil })
				require.ErrorContains(t, err, "back-off")
			})
		})
	}
}
