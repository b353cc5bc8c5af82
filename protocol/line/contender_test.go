package line_test

import (
	"runtime/debug"
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

// A contender that waits for a moment only does not read its own node.
func TestContendedCycleTakesFiveRequests(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		c, first := link.Client(t), take(t, lineAt(srv.Client(t), path))
		second := enter(suite.Lasting(t), lineAt(srv.Client(t), path), request)
		suite.Session(t, c)
		synctest.Wait() // otherwise zk.Conn may set watches again on its first connection
		before := link.Count(recipestest.OpAny)
		last := enter(suite.Lasting(t), lineAt(c, path), request)
		synctest.Wait()
		release(t, first)
		release(t, suite.Wait(t, second))
		synctest.Wait()
		require.Len(t, last, 1)
		release(t, <-last)
		require.Equal(t, before+5, link.Count(recipestest.OpAny))
	})
}

// The answer to a create is lost. What the line shows then is read, and not taken for another
// contender of the session.
func TestTokenOfANodeThatWasFound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		c := link.Client(t)
		suite.Session(t, c)
		holder := take(t, lineAt(other, path))
		before := enter(suite.Lasting(t), lineAt(c, path), request)
		pending(t, before)
		link.LoseReply(recipestest.OpCreate, 1)
		waiter := enter(suite.Lasting(t), lineAt(c, path), request)
		time.Sleep(time.Second)
		release(t, holder)
		first := suite.Wait(t, before)
		pending(t, waiter)
		release(t, first)
		g := suite.Wait(t, waiter)
		require.Greater(t, g.Token(), first.Token())
		stat, err := suite.Session(t, other).Exists(suite.Lasting(t), path+"/"+g.Node())
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, g.Token())
		release(t, g)
	})
}

// All contenders of a session that join before the server lists the line share that listing, also
// those of lines that were made one by one. One that joins later has a listing of its own.
func TestContendersOfASessionShareListings(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would end the listing that came first
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		holder := take(t, lineAt(srv.Client(t), path))
		gate := &suite.Gate{Op: 12} // getChildren2, which zk.Conn sends
		c := link.Client(t, gate.Option(link))
		suite.Session(t, c)
		gate.Shut()
		var waiting []<-chan *protocol.Grant
		for range 50 {
			waiting = append(waiting, enter(suite.Lasting(t), lineAt(c, path), request))
			synctest.Wait()
		}
		gate.Open()
		synctest.Wait()
		require.Equal(t, 1, link.Count(recipestest.OpGetChildren))
		creates := link.Count(recipestest.OpCreate)
		waiting = append(waiting, enter(suite.Lasting(t), lineAt(c, path), request))
		synctest.Wait()
		require.Equal(t, 2, link.Count(recipestest.OpGetChildren))
		require.Equal(t, creates+1, link.Count(recipestest.OpCreate))

		release(t, holder)
		for _, g := range waiting {
			release(t, suite.Wait(t, g))
		}
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
			l, s := lineAt(op, path), suite.Session(t, op)
			c := link.Client(t)
			suite.Session(t, c)
			held := take(t, l)

			met := suite.At(link, step, func() {
				var ops []any
				for _, name := range suite.Children(t, op, path) {
					ops = append(ops, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
				}
				_, err := s.Multi(t.Context(), ops...)
				require.NoError(t, err)
				held, err = l.Enter(t.Context(), line.Request{Kind: request.Kind})
				require.NoError(t, err)
			})
			next := suite.Later(func() *protocol.Grant {
				for {
					g := take(t, lineAt(c, path))
					time.Sleep(time.Millisecond)
					if g.Err() == nil {
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
		held := take(t, l)
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

// A waiter costs its session's pings and nothing else. After a long wait, its session has to be
// confirmed besides what it needs after a short one.
func TestWaiterSendsNothingUntilItsTurnComes(t *testing.T) {
	for n := 1; n <= 2; n++ {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link := srv.Root(t)+"/x", srv.Link(t)
			var held []*protocol.Grant
			for range n {
				held = append(held, suite.Wait(t, enter(t.Context(), permitsAt(srv.Client(t), path), permits(n))))
			}
			c := link.Client(t)
			s := suite.Session(t, c)
			waiting := enter(t.Context(), permitsAt(c, path), permits(n))
			time.Sleep(time.Second) // it watches its own node by then
			synctest.Wait()

			requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
			time.Sleep(10 * time.Minute)
			require.Equal(t, requests, link.Count(recipestest.OpAny))
			require.Greater(t, link.Count(recipestest.OpPing), pings+int(10*time.Minute/s.Timeout()))
			require.NoError(t, s.Err())
			require.Empty(t, waiting)
			release(t, held[0])
			g := suite.Wait(t, waiting)
			require.Equal(t, requests+n, link.Count(recipestest.OpAny))
			release(t, g)
			for _, g := range held[1:] {
				release(t, g)
			}
		})
	}
}

// A contender whose turn has come leaves a server that answers pings, and does not confirm its
// session.
func TestServerThatDoesNotConfirmASessionIsLeft(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		holder := hold(t, srv.Client(t), path)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s := suite.Session(t, c)
		waiter := enter(t.Context(), lineAt(c, path), request)
		synctest.Wait()
		time.Sleep(10 * s.Timeout())

		connects := link.Count(recipestest.OpConnect)
		gate.Shut()
		resign(t, holder)
		synctest.Wait()
		require.True(t, gate.Holding())
		require.Empty(t, waiter, "its session has to be confirmed")
		require.Greater(t, time.Until(s.Deadline()), s.Timeout()/2, "nothing is held")
		time.Sleep(s.Timeout() / 2)
		require.Greater(t, link.Count(recipestest.OpConnect), connects)

		gate.Open()
		release(t, suite.Wait(t, waiter))
		require.NoError(t, s.Err())
	})
}

// What a contender has read may be out of date once its session had to be confirmed.
func TestContenderLooksAgainOnceItsSessionIsConfirmed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, operator := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		holder := hold(t, operator, path)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s := suite.Session(t, c)
		waiter := campaign(t.Context(), c, path)
		synctest.Wait()
		gate.Shut()
		time.Sleep(s.Timeout())
		require.NoError(t, s.Err(), "only its trust has run out")

		// The waiter is told that it has no predecessor any more.
		resign(t, holder)
		synctest.Wait()
		require.True(t, gate.Holding())
		require.Empty(t, waiter, "its session has to be confirmed")

		// Its node is deleted, and another contender holds.
		contenders, err := lineAt(operator, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, contenders, 1)
		require.NoError(t, lineAt(operator, path).Break(suite.Lasting(t), contenders[0].Node))
		other := hold(t, operator, path)
		gate.Open()
		time.Sleep(s.Timeout())
		synctest.Wait()

		require.Empty(t, waiter)
		require.NoError(t, other.Err())
		resign(t, other)
		resign(t, suite.Wait(t, waiter))
		require.NoError(t, s.Err())
	})
}

func TestContendersOfALongLine(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		const n = 50
		var nodes []string
		for range n {
			nodes = append(nodes, foreign(t, c, path, curatorMutex))
		}
		all, err := lineAt(c, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, all, n)
		for _, node := range nodes {
			remove(t, c, node)
		}
	})
}
