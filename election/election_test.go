package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
		n := 0
		err := e.Run(t.Context(), []byte("me"), func(ctx context.Context, term *election.Term) error {
			require.Greater(t, term.Token(), last)
			last = term.Token()
			line := suite.Got(e.Candidates(ctx))(t)
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

// A function that returns at once does not make Run spin. The pauses begin anew after a long term.
func TestRunPausesAfterShortTerms(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		e := election.New(srv.Client(t), srv.Root(t)+"/run", election.WithBackOff(func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Hour), backoff.WithRandomizationFactor(0),
				backoff.WithMultiplier(2), backoff.WithMaxInterval(10*time.Hour), backoff.WithMaxElapsedTime(0))
		}))
		var hours []int
		ended, enough := time.Now(), errors.New("enough")
		err := e.Run(t.Context(), nil, func(ctx context.Context, term *election.Term) error {
			hours = append(hours, int(time.Since(ended).Hours()))
			switch len(hours) {
			case 3:
				time.Sleep(time.Second)
			case 5:
				return enough
			}
			ended = time.Now()
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, []int{0, 1, 2, 0, 1}, hours)

		e = election.New(srv.Client(t), srv.Root(t), election.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		err = e.Run(t.Context(), nil, func(context.Context, *election.Term) error { return nil })
		require.ErrorContains(t, err, "terms are too short")
	})
}

func TestRunReturnsTheErrorOfLead(t *testing.T) {
	failure := errors.New("failure")
	resigned := func(ctx context.Context, term *election.Term) error { return errors.Join(failure, term.Resign(ctx)) }
	for name, test := range map[string]struct {
		cancels, breaks bool // the caller or an operator, before lead
		lead            func(context.Context, *election.Term) error
		want            error
	}{
		"nil":             {cancels: true, lead: func(context.Context, *election.Term) error { return nil }},
		"ctx's":           {cancels: true, lead: func(ctx context.Context, _ *election.Term) error { return ctx.Err() }},
		"cause":           {cancels: true, lead: func(ctx context.Context, _ *election.Term) error { return context.Cause(ctx) }},
		"its own":         {cancels: true, lead: func(context.Context, *election.Term) error { return failure }, want: failure},
		"nil, and lost":   {cancels: true, breaks: true, lead: func(context.Context, *election.Term) error { return nil }, want: protocol.ErrLost},
		"and the loss":    {breaks: true, lead: func(context.Context, *election.Term) error { return failure }, want: failure},
		"another ctx's":   {lead: func(context.Context, *election.Term) error { return context.Canceled }, want: context.Canceled},
		"and it resigned": {lead: resigned, want: failure},
	} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			e := election.New(srv.Client(t), srv.Root(t)+"/ends")
			ctx, cancel := context.WithCancelCause(t.Context())
			err := e.Run(ctx, nil, func(ctx context.Context, term *election.Term) error {
				if test.cancels {
					cancel(errors.New("enough"))
					<-ctx.Done()
					require.NoError(t, term.Err(), "lead has not returned")
				}
				if test.breaks {
					require.NoError(t, e.Break(t.Context(), term.Node()))
					<-term.Done()
				}
				return test.lead(ctx, term)
			})
			require.ErrorIs(t, err, test.want, name)
			require.Equal(t, test.breaks, errors.Is(err, protocol.ErrLost), name)
			require.NotErrorIs(t, err, protocol.ErrReleased, name)
			suite.Await(t, 0, e.Candidates)
		})
	}
}
