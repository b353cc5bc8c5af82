package protocol_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
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
