package doublebarrier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const noAuth = -102

// A request that the server refuses ends Enter with that error, and no node is left.
func TestRefusedRequestEndsEnter(t *testing.T) {
	for name, test := range map[string]struct {
		op   recipestest.Op
		node string
		left bool // a gate, of a round that is over
		long bool // the request is made when the wait has become long
	}{
		"the record":       {recipestest.OpGetData, "/b/process", false, false},
		"ready":            {recipestest.OpExists, "/b/ready", false, false},
		"the line":         {recipestest.OpGetChildren, "/b/process", false, false},
		"members inside":   {recipestest.OpGetChildren, "/b/process", true, false},
		"the gate is over": {recipestest.OpMulti, "", true, false},
		"its own node":     {recipestest.OpGetData, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root, link := srv.Root(t), srv.Link(t)
				onlooker := srv.Client(t)
				persistent(t, onlooker, root+"/b")
				c := link.Client(t)
				session(t, c)
				if test.left {
					gone := srv.Client(t)
					_, err := doublebarrier.New(gone, root+"/b", 1).Enter(t.Context())
					require.NoError(t, err)
					srv.ExpireSession(session(t, gone).ID())
					synctest.Wait()
				}

				node := test.node
				if node != "" {
					node = root + node
				}
				if !test.long {
					link.Fail(test.op, node, noAuth, 1)
				}
				e := enter(t.Context(), doublebarrier.New(c, root+"/b", 2))
				if test.long {
					synctest.Wait()
					link.Fail(test.op, node, noAuth, 1)
					time.Sleep(session(t, c).Timeout())
				}
				_, err := e.wait()
				require.ErrorIs(t, err, zk.ErrNoAuth)
				joined(t, onlooker, root+"/b", 0)
			})
		})
	}
}

// A member that was lost with its session may have been counted. What cannot be found out ends
// Enter.
func TestRefusedRequestAfterALostSessionEndsEnter(t *testing.T) {
	for name, test := range map[string]struct {
		op   recipestest.Op
		node string
	}{
		"sync":       {recipestest.OpSync, ""},
		"the line":   {recipestest.OpGetChildren, "/process"},
		"the record": {recipestest.OpGetData, "/process"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/b", srv.Link(t)
				onlooker, c := srv.Client(t), link.Client(t)
				persistent(t, onlooker, path)
				e := enter(suite.Lasting(t), doublebarrier.New(c, path, 2))
				joined(t, onlooker, path, 1)
				synctest.Wait()

				link.Fail(test.op, path+test.node, noAuth, 1)
				srv.ExpireSession(session(t, c).ID())
				_, err := e.wait()
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorIs(t, err, protocol.ErrUncertain)
				joined(t, onlooker, path, 0)
			})
		})
	}
}

// The server loses its leader while a member waits, and goes on answering pings. It is left soon
// enough to withdraw over another one with the same session.
func TestWithdrawalLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/b", srv.Link(t), srv.Embedded().Follower()
		onlooker := srv.Client(t)
		link.Move(follower)
		c := link.Client(t)
		s := session(t, c)
		link.Move(nil)
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, onlooker, path, 1)
		synctest.Wait()

		follower.Isolate()
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(s.Timeout() / 2)
		require.Empty(t, suite.Children(t, onlooker, path+"/process"))
		require.NoError(t, s.Err())
	})
}
