package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// A reader reconnects to a follower that has not heard yet of the writer that it waits for. What it
// misses there must not reach other readers.
func TestStaleReadAfterAReconnectLetsNoReaderIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/rw"
		f := srv.Embedded().Follower()
		holder, writer, reader := srv.Client(t), srv.Client(t), srv.Client(t)
		link := srv.Link(t)
		moved := link.Client(t)

		// The connection breaks while the client's first watch is on its way.
		other, err := rwlock.New(moved, path+"-other").Lock(t.Context())
		require.NoError(t, err)
		met := make(chan struct{})
		link.At(1, func() { link.Cut(); close(met) })
		<-met
		link.Heal()
		time.Sleep(time.Second)
		synctest.Wait()

		f.Lag(2 * time.Second)
		held, err := rwlock.New(holder, path).Lock(t.Context())
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { _, err := rwlock.New(writer, path).Lock(ctx); given <- err }()
		synctest.Wait()
		first, second := make(chan *rwlock.Lease, 1), make(chan *rwlock.Lease, 1)
		go func() { l, _ := rwlock.New(moved, path).RLock(t.Context()); first <- l }()
		synctest.Wait()
		go func() { l, _ := rwlock.New(reader, path).RLock(t.Context()); second <- l }()
		synctest.Wait()

		link.Move(f)
		link.Cut()
		link.Heal()
		time.Sleep(time.Second)
		f.Lag(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		giveUp()
		require.ErrorIs(t, <-given, context.Canceled)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, first, "the writer holds")
		require.Empty(t, second, "the writer holds")
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, (<-first).Unlock(t.Context()))
		require.NoError(t, (<-second).Unlock(t.Context()))
		require.NoError(t, other.Unlock(t.Context()))
	})
}
