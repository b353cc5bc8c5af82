package lock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A call may be made under the context of a lease of the same session, and that may end while the
// server does not answer.
func TestCallUnderTheContextOfALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root, link := srv.Root(t), srv.Link(t)
		client := link.Client(t)
		outer, err := lock.New(client, root+"/outer").Lock(t.Context())
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		held, stop := outer.Context(ctx)
		defer stop()
		link.Stall()
		ended := make(chan error, 1)
		go func() {
			_, err := lock.New(client, root+"/inner").Contenders(held)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, outer.Err())
		link.Heal()
		require.NoError(t, outer.Unlock(t.Context()))
	})
}
