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
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The answer to a create is lost, so the contender finds its node in the line. It must not mistake
// another contender of its session for itself.
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
		suite.Release(t, holder)
		first := suite.Wait(t, before)
		pending(t, waiter)
		suite.Release(t, first)
		g := suite.Wait(t, waiter)
		require.Greater(t, g.Token(), first.Token())
		_, stat := suite.Get(t, other, path+"/"+g.Node())
		require.Equal(t, stat.Czxid, g.Token())
		suite.Release(t, g)
	})
}

// Contenders of a session that join before the server lists the line share that listing (even if
// they belong to different Lines). A contender that joins later makes another listing.
func TestContendersOfASessionShareListings(t *testing.T) {
	// Not in parallel: no garbage is collected, which would end the listing that came first.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		holder := take(t, lineAt(srv.Client(t), path))
		gate := &suite.Gate{Op: 12} // getChildren2, which zk.Conn sends
		c := link.Client(t, gate.Option(link))
		suite.Session(t, c)
		gate.Shut()
		var waiting []<-chan *recipe.Grant
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

		suite.Release(t, holder)
		for _, g := range waiting {
			suite.Release(t, suite.Wait(t, g))
		}
	})
}

// If a contender's node is deleted together with the holder's node, the contender isn't the next
// holder. (The event for the holder's node can come first, and the event for its own node next.)
func TestContenderThatIsDeletedWithTheHolderIsNotGranted(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link, op := srv.Root(t)+"/x", srv.Link(t), srv.Client(t)
			l, s := lineAt(op, path), suite.Session(t, op)
			c := link.Client(t)
			suite.Session(t, c)
			held := take(t, l)

			struck := suite.At(link, step, func() {
				var ops []any
				for _, name := range suite.Children(t, op, path) {
					ops = append(ops, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
				}
				suite.Got(s.Multi(t.Context(), ops...))(t)
				held = suite.Got(l.Enter(t.Context(), line.Request{Kind: request.Kind}))(t)
			})
			next := suite.Later(func() *recipe.Grant {
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
			met = struck()
			suite.Release(t, held)
			suite.Release(t, suite.Wait(t, next))
		})
		return met
	})
}

// A grant is watched after 20 ms, or at once if its contender has waited.
func TestHolderThatHasWaitedLearnsAtOnceThatItIsDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, op := srv.Root(t)+"/x", srv.Client(t)
		l := lineAt(op, path)
		held := take(t, l)
		next := suite.Later(func() *recipe.Grant { return take(t, lineAt(srv.Client(t), path)) })
		time.Sleep(time.Second) // in virtual time: it watches its own node by then
		suite.Release(t, held)
		g, began := suite.Wait(t, next), time.Now()
		require.NoError(t, l.Break(t.Context(), g.Node()))
		synctest.Wait()
		require.ErrorIs(t, g.Err(), protocol.ErrNodeDeleted)
		require.Zero(t, time.Since(began))
	})
}

// A waiter costs its session's pings and nothing else. After a long wait its turn costs a request
// that confirms the session.
func TestWaiterSendsNothingUntilItsTurnComes(t *testing.T) {
	for n := 1; n <= 2; n++ {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link := srv.Root(t)+"/x", srv.Link(t)
			var held []*recipe.Grant
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
			suite.Release(t, held[0])
			g := suite.Wait(t, waiting)
			require.Equal(t, requests+n, link.Count(recipestest.OpAny))
			suite.Release(t, g)
			for _, g := range held[1:] {
				suite.Release(t, g)
			}
		})
	}
}

// If a server answers pings but doesn't confirm the session, a contender whose turn has come leaves
// that server. Its listing can be out of date once its session is confirmed.
func TestContenderLooksAgainOnceItsSessionIsConfirmed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, operator := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		holder := take(t, lineAt(operator, path))
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s := suite.Session(t, c)
		waiter := enter(t.Context(), lineAt(c, path), request)
		synctest.Wait()
		gate.Shut()
		time.Sleep(s.Timeout())
		require.NoError(t, s.Err(), "only its trust has run out")

		// An event says that the waiter has no predecessor any more.
		suite.Release(t, holder)
		synctest.Wait()
		require.True(t, gate.Holding())
		require.Empty(t, waiter, "its session has to be confirmed")
		connects := link.Count(recipestest.OpConnect)
		time.Sleep(s.Timeout() / 2)
		require.Greater(t, link.Count(recipestest.OpConnect), connects)

		// Its node is deleted, and another contender holds.
		contenders := suite.Got(lineAt(operator, path).Contenders(suite.Lasting(t)))(t)
		require.Len(t, contenders, 1)
		require.NoError(t, lineAt(operator, path).Break(suite.Lasting(t), contenders[0].Node))
		other := take(t, lineAt(operator, path))
		gate.Open()
		time.Sleep(s.Timeout())
		synctest.Wait()

		require.Empty(t, waiter)
		require.NoError(t, other.Err())
		suite.Release(t, other)
		suite.Release(t, suite.Wait(t, waiter))
		require.NoError(t, s.Err())
	})
}
