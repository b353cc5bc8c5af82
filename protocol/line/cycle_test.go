package line_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A contender that waits for a moment only does not read its own node.
func TestContendedCycleTakesFiveRequests(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for name, ahead := range map[string]int{"behind the holder": 1, "behind a waiter": 2} {
			path, link := srv.Root(t)+"/"+name, srv.Link(t)
			c := link.Client(t)
			var line []<-chan *protocol.Grant
			for range ahead {
				line = append(line, enter(suite.Lasting(t), lineAt(srv.Client(t), path), request))
				synctest.Wait()
			}
			suite.Session(t, c)
			synctest.Wait() // otherwise zk.Conn may set watches again on its first connection
			before := link.Count(recipestest.OpAny)
			last := enter(suite.Lasting(t), lineAt(c, path), request)
			synctest.Wait()
			for _, g := range line {
				release(t, <-g)
				synctest.Wait()
			}
			require.Len(t, last, 1)
			release(t, <-last)
			require.Equal(t, before+5, link.Count(recipestest.OpAny), name)
		}
	})
}

// A contender whose wait lasts watches its own node. It comes again if that is deleted.
func TestWaiterHearsOfTheEndOfItsNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		l := lineAt(srv.Client(t), path)
		first, err := l.Enter(suite.Lasting(t), request)
		require.NoError(t, err)
		second := enter(suite.Lasting(t), l, request)
		pending(t, second)
		third := enter(suite.Lasting(t), lineAt(link.Client(t), path), request)
		pending(t, third)
		reads := link.Count(recipestest.OpGetData)
		time.Sleep(time.Second)
		require.Equal(t, reads+1, link.Count(recipestest.OpGetData), "its own node")

		all, err := l.Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.NoError(t, l.Break(suite.Lasting(t), all[2].Node))
		release(t, first)
		release(t, suite.Wait(t, second))
		g := suite.Wait(t, third)
		require.NotEqual(t, all[2].Node, g.Node())
		release(t, g)
	})
}

// Whether the create's answer has told it or a read, the token is the czxid of the holder's node.
func TestTokenIsTheCzxidOfTheNode(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		var wait suite.Group
		for i := range 6 {
			link := srv.Link(t)
			l, s := lineAt(link.Client(t), path), suite.Session(t, link.Client(t))
			if i == 0 {
				link.LoseReply(recipestest.OpCreate, 1)
			}
			wait.Go(func() error {
				for range 20 {
					g, err := l.Enter(context.Background(), request)
					if err != nil {
						return err
					}
					stat, err := s.Exists(t.Context(), path+"/"+g.Node())
					if err != nil {
						return err
					}
					if stat != nil && stat.Czxid != g.Token() { // another server may lag behind
						t.Errorf("czxid %#x, token %#x", stat.Czxid, g.Token())
					}
					if err := g.Release(t.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, wait.Wait())
	})
}

// The answer to a create is lost. What the line shows then is read, and not taken for another
// contender of the session.
func TestTokenOfANodeThatWasFound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		c := link.Client(t)
		suite.Session(t, c)
		holder, err := lineAt(other, path).Enter(suite.Lasting(t), request)
		require.NoError(t, err)
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

// A candidate that has just come, and does not watch its own node yet, is passed over.
func TestYoungCandidateThatIsPassedOverDoesNotLead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		leader := hold(t, srv.Client(t), path)
		var line []<-chan *election.Term
		for range 4 {
			line = append(line, campaign(t.Context(), srv.Client(t), path))
			synctest.Wait()
		}
		all, err := lineAt(srv.Client(t), path).Contenders(suite.Lasting(t))
		require.NoError(t, err)

		require.NoError(t, leader.ResignTo(suite.Lasting(t), all[4].Node))
		synctest.Wait()
		for _, over := range line[:3] {
			require.Empty(t, over)
		}
		resign(t, suite.Wait(t, line[3]))
		var wait suite.Group
		for _, over := range line[:3] { // which have come again in any order
			wait.Go(func() error { return (<-over).Resign(suite.Lasting(t)) })
		}
		require.NoError(t, wait.Wait())
	})
}

// All contenders of a session that join before the server lists the line share that listing, also
// those of lines that were made one by one. One that joins later has a listing of its own.
func TestContendersOfASessionShareListings(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would end the listing that came first
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		holder, err := lineAt(srv.Client(t), path).Enter(suite.Lasting(t), request)
		require.NoError(t, err)
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

// A waiter keeps its blockers, and nothing else of the listing. No other test runs meanwhile, as
// the heap is that of the process.
func TestWaiterKeepsNothingOfTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		const foreign, waiters, most = 3000, 50, 30 << 10 // bytes each, with what the server keeps
		path, operator := srv.Root(t)+"/line", suite.Session(t, srv.Client(t))
		c, held := srv.Client(t), hold(t, srv.Client(t), path)
		for range foreign / 100 {
			var ops []any
			for range 100 {
				ops = append(ops, &zk.CreateRequest{Path: path + "/lock-", Flags: zk.FlagEphemeralSequential})
			}
			_, err := operator.Multi(suite.Lasting(t), ops...)
			require.NoError(t, err)
		}
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := lineAt(c, path)
		var all []<-chan *protocol.Grant
		before := heap()
		for range waiters { // each with a listing of its own
			all = append(all, enter(ctx, l, request))
			time.Sleep(time.Second)
		}
		require.Less(t, heap(), before+waiters*most)

		cancel()
		for _, g := range all {
			require.Nil(t, <-g)
		}
		srv.ExpireSession(operator.ID())
		resign(t, held)
	})
}
