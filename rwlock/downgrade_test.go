package rwlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestDowngradeLetsReadersInAndKeepsWritersOut(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/down"
		m, watcher := rwlock.New(srv.Client(t), path, rwlock.WithData([]byte("mine"))), rwlock.New(srv.Client(t), path)
		writing := must(t, write, m)
		reader := enter(t, read, watcher, watcher, 2)
		writer := enter(t, write, rwlock.New(srv.Client(t), path), watcher, 3)
		behind := enter(t, read, watcher, watcher, 4)

		work, cancel := writing.Context(t.Context())
		defer cancel()
		reading, err := writing.Downgrade(t.Context())
		require.NoError(t, err)
		require.False(t, reading.Exclusive())
		require.True(t, writing.Exclusive())
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), protocol.ErrReleased)
		require.NoError(t, writing.Unlock(t.Context()), "does nothing")
		_, err = writing.Downgrade(t.Context())
		require.ErrorIs(t, err, protocol.ErrReleased)

		other := granted(t, reader)
		line := suite.Await(t, 4, watcher.Contenders)
		require.Equal(t, strings.ReplaceAll(writing.Node(), "write-", "read-"), reading.Node())
		require.Equal(t, reading.Node(), line[0].Node, "it has the writer's place")
		require.Equal(t, "mine", string(line[0].Data))
		require.False(t, line[0].Exclusive)
		same, err := reading.Downgrade(t.Context())
		require.NoError(t, err)
		require.Same(t, reading, same, "a read lease is returned as it is")
		suite.Unlock(t, other)
		require.Empty(t, writer)
		suite.Unlock(t, reading)
		_, err = reading.Downgrade(t.Context())
		require.ErrorIs(t, err, protocol.ErrReleased)
		next := granted(t, writer)
		require.Greater(t, next.Token(), reading.Token(), "it had waited before there was a reader's node")
		require.GreaterOrEqual(t, reading.Token(), writing.Token())
		require.Empty(t, behind)
		suite.Unlock(t, next)
		suite.Unlock(t, granted(t, behind))
	})
}

// A writer that waits hears of the downgrade, at whatever step of its own it comes: there is no gap
// for it.
func TestDowngradeLeavesNoGapForAWriter(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, holder, link := srv.Root(t)+"/gap", srv.Link(t), srv.Link(t)
			writing := must(t, write, rwlock.New(holder.Client(t), path))
			m := rwlock.New(link.Client(t), path)
			holder.Delay(20 * time.Millisecond) // leaves time for the writer between any two steps of the holder
			var reading *rwlock.Lease
			downgrade := func() {
				var err error
				reading, err = writing.Downgrade(t.Context())
				assert.NoError(t, err)
			}
			stop := link.At(step, downgrade)
			writer := suite.Later(func() *rwlock.Lease { l, _ := m.Lock(t.Context()); return l })
			time.Sleep(time.Second)
			if met = !stop(); !met {
				downgrade()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Empty(t, writer, "a reader is ahead")
			require.NoError(t, reading.Err())
			suite.Unlock(t, reading)
			suite.Unlock(t, granted(t, writer))
		})
		return met
	})
}

func TestDowngradeInDoLeavesTheReadLeaseToFn(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/do")
		var reading *rwlock.Lease
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, l *rwlock.Lease) (err error) {
			reading, err = l.Downgrade(ctx)
			if ctx.Err() == nil {
				return errors.New("the writer's ctx goes on")
			}
			return err
		}))
		require.NoError(t, reading.Err())
		suite.Unlock(t, reading)
		suite.Await(t, 0, m.Contenders)
	})
}

// The servers answer that they do not know whether they have carried out the transaction, and then
// refuse to say whether the reader's node is there.
func TestDowngradeOfUnknownOutcomeSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const connectionLoss, noAuth = -4, -102
		link := srv.Link(t)
		m := rwlock.New(link.Client(t), srv.Root(t)+"/down")
		writing := must(t, write, m)
		link.Fail(recipestest.OpMulti, "", connectionLoss, 1)
		link.Fail(recipestest.OpExists, "", noAuth, 1)
		_, err := writing.Downgrade(t.Context())
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		suite.Await(t, 0, m.Contenders)
	})
}
