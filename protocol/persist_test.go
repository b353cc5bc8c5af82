package protocol_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A back-off paces what is repeated. How long a contender has waited in line, it does not count.
func TestBackOffBeginsWithTheFailureNotWithTheWait(t *testing.T) {
	for name, newBackOff := range map[string]func() backoff.BackOff{
		"with a longest time": func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(time.Minute))
		},
		"with a number of times": func() backoff.BackOff {
			return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Second), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path := srv.Root(t) + "/line"
				g := hold(t, srv.Client(t), path)
				c := srv.Client(t, protocol.WithBackOff(newBackOff))
				ctx := within(t, 24*time.Hour)
				waiter := later(func() error {
					g, err := lineAt(c, path).Enter(ctx, request)
					if err == nil {
						err = g.Release(ctx)
					}
					return err
				})

				for range 3 {
					time.Sleep(time.Hour)
					srv.ExpireSession(session(t, c).ID())
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				release(t, g)

				require.NoError(t, wait(t, waiter))
			})
		})
	}
}

// A context that work has made from its own may end while the caller waits on. So may the session.
func TestAbandonedAlsoTellsOfTheEndOfTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t))
		_, err := recipe.Detach(t.Context(), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
			assert.NoError(t, s.Abandoned(), "the caller waits on")

			srv.ExpireSession(s.ID())
			<-s.Done()
			assert.ErrorIs(t, s.Abandoned(), protocol.ErrLost)
			return struct{}{}, nil
		}, nil)
		require.NoError(t, err)
	})
}

// Work of a session has no caller that could give up, whatever contexts it makes from its own.
func TestWorkOfASessionOutlivesTheBackOff(t *testing.T) {
	for name, derive := range map[string]func(context.Context) context.Context{
		"under its context":    func(life context.Context) context.Context { return life },
		"under one made of it": func(life context.Context) context.Context { return context.WithValue(life, t, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link := srv.Link(t)
				dialer, deletes := breaking(link, recipestest.OpDelete)
				s := session(t, link.Client(t, dialer, impatient(2)))
				node := srv.Root(t) + "/node"
				_, err := s.EnsurePath(lasting(t), node)
				require.NoError(t, err)
				deletes.Store(5)

				done := make(chan error, 1)
				s.Go(func(life context.Context, s *recipe.Session) { done <- s.Delete(derive(life), node, -1) })

				require.NoError(t, <-done)
				require.Zero(t, deletes.Load())
			})
		})
	}
}
