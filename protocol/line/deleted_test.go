package line_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A waiter that is not the next one begins to watch its own node after a moment, and finds that it
// is gone.
func TestWaiterWhoseNodeIsDeletedAtOnceGoesToTheEnd(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, op := srv.Root(t)+"/x", srv.Client(t)
		ctx, l := suite.Lasting(t), lineAt(op, path)
		held, err := l.Enter(ctx, request)
		require.NoError(t, err)
		next := enter(ctx, lineAt(srv.Client(t), path), request)
		synctest.Wait()
		last := enter(ctx, lineAt(srv.Client(t), path), request)
		synctest.Wait()
		before, err := l.Contenders(ctx)
		require.NoError(t, err)
		require.Len(t, before, 3)
		require.NoError(t, l.Break(ctx, before[2].Node))

		require.NoError(t, suite.Session(t, op).WaitChildren(ctx, path, func(names []string) bool { return len(names) == 3 }))
		after, err := l.Contenders(ctx)
		require.NoError(t, err)
		require.Len(t, after, 3)
		require.NotEqual(t, before[2].Node, after[2].Node)
		release(t, held)
		release(t, suite.Wait(t, next))
		release(t, suite.Wait(t, last))
	})
}

// A contender whose node was deleted together with the holder's is not the next holder. If it hears
// of the holder's end a moment before it hears of its own, it learns of that with the next event.
func TestContenderThatIsDeletedWithTheHolderIsNotGranted(t *testing.T) {
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link, op := srv.Root(t)+"/x", srv.Link(t), srv.Client(t)
			ctx, l, s := suite.Lasting(t), lineAt(op, path), suite.Session(t, op)
			c := link.Client(t)
			suite.Session(t, c)
			held, err := l.Enter(ctx, request)
			require.NoError(t, err)

			met := suite.At(link, step, func() {
				names, err := l.Names(ctx, s)
				require.NoError(t, err)
				var ops []any
				for _, n := range names {
					ops = append(ops, &zk.DeleteRequest{Path: path + "/" + n.Node, Version: -1})
				}
				_, err = s.Multi(ctx, ops...)
				require.NoError(t, err)
				held, err = lineAt(op, path).Enter(ctx, line.Request{Kind: request.Kind})
				require.NoError(t, err)
			})
			next := suite.Later(func() *protocol.Grant {
				for {
					g, err := lineAt(c, path).Enter(ctx, request)
					if err != nil {
						return nil
					}
					select {
					case <-g.Done():
					case <-time.After(time.Millisecond):
						return g
					}
				}
			})
			time.Sleep(time.Second) // in virtual time: it watches its own node by then
			pending(t, next)
			over = !met()
			release(t, held)
			release(t, suite.Wait(t, next))
		})
	}
}

// The session has watched the node of a waiter, so its grant does not begin to watch later.
func TestDeletedHolderThatHasWaitedLearnsOfItAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, op := srv.Root(t)+"/x", srv.Client(t)
		ctx, l := suite.Lasting(t), lineAt(op, path)
		held, err := l.Enter(ctx, request)
		require.NoError(t, err)
		next := enter(ctx, lineAt(srv.Client(t), path), request)
		time.Sleep(time.Second) // in virtual time: it watches its own node by then

		began := time.Now()
		release(t, held)
		g := suite.Wait(t, next)
		require.NoError(t, g.Err())
		require.NoError(t, l.Break(ctx, g.Node()))
		synctest.Wait()
		require.ErrorIs(t, g.Err(), protocol.ErrNodeDeleted)
		require.Zero(t, time.Since(began))
	})
}
