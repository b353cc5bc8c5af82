package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
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

// A recipe takes a lock in work that must be finished, and gives that less time. The wait ends with
// the shorter context, and the caller has not got its turn.
func TestWaitInTheLocalQueueUnderAShorterContextOfDetachedWork(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/lock"
		m := lock.New(c, path, lock.WithLocalQueue())
		holder, err := m.Lock(t.Context())
		require.NoError(t, err)

		_, err = protocol.Detach(t.Context(), suite.Session(t, c), func(ctx context.Context) (*lock.Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return m.Lock(ctx)
		}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		next := suite.Later(func() error { return m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }) })
		synctest.Wait()
		contenders, err := m.Contenders(t.Context())
		require.NoError(t, err)
		require.Len(t, contenders, 1, "the next one waits in the local queue")
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, suite.Wait(t, next))
	})
}
