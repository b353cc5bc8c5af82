package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A client with watches in the line reconnects to a follower that has not heard of a waiter there
// yet. What it misses there must not reach other waiters.
func TestStaleReadAfterAReconnectGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/m"
		f := srv.Embedded().Follower()
		holder, ahead, behind := srv.Client(t), srv.Client(t), srv.Client(t)
		link := srv.Link(t)
		moved := link.Client(t)

		// The connection breaks while the client's first watch is on its way.
		other, err := lock.New(moved, path+"-other").Lock(t.Context())
		require.NoError(t, err)
		met := make(chan struct{})
		link.At(1, func() { link.Cut(); close(met) })
		<-met
		link.Heal()
		time.Sleep(time.Second)
		synctest.Wait()

		f.Lag(2 * time.Second)
		held, err := lock.New(holder, path).Lock(t.Context())
		require.NoError(t, err)
		enter := func(c *protocol.Client) (context.CancelFunc, chan *lock.Lease) {
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan *lock.Lease, 1)
			go func() { l, _ := lock.New(c, path).Lock(ctx); got <- l }()
			synctest.Wait()
			return cancel, got
		}

		quitAhead, gotAhead := enter(ahead)
		quitMoved, gotMoved := enter(moved)
		quitMoved()
		require.Nil(t, <-gotMoved)
		synctest.Wait()
		_, gotBehind := enter(behind)

		link.Move(f)
		link.Cut()
		link.Heal()
		time.Sleep(time.Second)
		f.Lag(0)
		time.Sleep(5 * time.Second)
		quitAhead()
		require.Nil(t, <-gotAhead)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, gotBehind, "the holder still holds")
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
		next := <-gotBehind
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, other.Unlock(t.Context()))
	})
}
