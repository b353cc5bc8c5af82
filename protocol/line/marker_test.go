package line_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// A queue is a line with a holder, and waiters that watch their predecessors and their own nodes.
type queue struct {
	path     string
	client   *protocol.Client // of the operator
	operator *recipe.Session
	holder   *recipe.Grant
	waiters  []*waiter
}

type waiter struct {
	link   *recipestest.Link
	client *protocol.Client
	cancel context.CancelFunc
	grant  <-chan *recipe.Grant
	node   string
}

func newQueue(t *testing.T, srv *recipestest.Server, n int) *queue {
	t.Helper()
	c, path := srv.Client(t), srv.Root(t)+"/line"
	q := &queue{path: path, client: c, operator: suite.Session(t, c), holder: take(t, lineAt(srv.Client(t), path))}

	for range n {
		link := srv.Link(t)
		q.enter(t, link, link.Client(t))
	}

	return q
}

// enter adds a waiter behind the others.
func (q *queue) enter(t *testing.T, link *recipestest.Link, c *protocol.Client) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &waiter{link: link, client: c, cancel: cancel, grant: enter(ctx, lineAt(c, q.path), request)}
	time.Sleep(time.Second)
	all := suite.Got(lineAt(c, q.path).Contenders(suite.Lasting(t)))(t)
	w.node = all[len(all)-1].Node
	q.waiters = append(q.waiters, w)
	return w
}

// takes waits until w is granted, and makes it the holder.
func (q *queue) takes(t *testing.T, w *waiter) {
	t.Helper()
	next := suite.Wait(t, w.grant)
	require.NotNil(t, next)
	require.Greater(t, next.Token(), q.holder.Token())
	q.holder = next
}

// disband ends all waits and the holder's term, and requires that no node is left.
func (q *queue) disband(t *testing.T) {
	t.Helper()
	for _, w := range q.waiters {
		w.cancel()
		select {
		case g := <-w.grant:
			require.Nil(t, g, "the holder is still its predecessor")
		default:
		}
	}
	time.Sleep(time.Second)
	require.NoError(t, q.holder.Err())
	suite.Release(t, q.holder)
	require.Empty(t, suite.Children(t, q.client, q.path))
}

func (q *queue) remove(t *testing.T, node string) {
	t.Helper()
	require.NoError(t, q.operator.Delete(t.Context(), q.path+"/"+node, -1))
	time.Sleep(time.Second)
}

// requireUnwatched requires that w doesn't watch for the creation of a node.
func (q *queue) requireUnwatched(t *testing.T, w *waiter, node string) {
	t.Helper()
	before := w.link.Events()
	require.NoError(t, q.operator.Create(t.Context(), q.path+"/"+node, nil, 0))
	q.remove(t, node)
	require.Equal(t, before, w.link.Events(), "still watched for")
}

func TestNextContenderNeedsNoRequest(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 5)
		suite.Got(q.operator.Set(t.Context(), q.path+"/"+q.waiters[1].node, []byte("changed"), -1))(t)
		time.Sleep(time.Second)
		var before []int
		for _, w := range q.waiters {
			before = append(before, w.link.Count(recipestest.OpAny))
		}
		suite.Release(t, q.holder)
		q.takes(t, q.waiters[0])
		for i, w := range q.waiters[1:] {
			events := w.link.Events()
			suite.Release(t, q.holder)
			q.takes(t, w)
			synctest.Wait()
			require.Equal(t, before[i+1], w.link.Count(recipestest.OpAny), "of contender %d", i+1)
			require.Equal(t, events+2, w.link.Events(), "the marker and the node")
			for _, other := range q.waiters[i+2:] {
				require.LessOrEqual(t, other.link.Events(), 1, "which is not next, was woken")
			}
		}

		// Nor does a contender that came a moment ago.
		link := srv.Link(t)
		second := enter(t.Context(), lineAt(srv.Client(t), q.path), request)
		pending(t, second)
		third := enter(t.Context(), lineAt(link.Client(t), q.path), request)
		pending(t, third)
		count := link.Count(recipestest.OpAny)
		suite.Release(t, q.holder)
		suite.Release(t, suite.Wait(t, second))
		q.holder = suite.Wait(t, third)
		require.Equal(t, count, link.Count(recipestest.OpAny))
		q.waiters = nil
		q.disband(t)
	})
}

// The end of a contender without a marker says nothing about its predecessors. The watch for its
// marker is removed, whether the waiter still waits or has given up.
func TestContenderListsTheLineIfItsPredecessorGoesWithoutAMarker(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, srv *recipestest.Server, q *queue, node string){
		"gives up": func(_ *testing.T, _ *recipestest.Server, q *queue, _ string) { q.waiters[0].cancel() },
		"deleted":  func(t *testing.T, _ *recipestest.Server, q *queue, node string) { q.remove(t, node) },
		"expires": func(t *testing.T, srv *recipestest.Server, q *queue, _ string) {
			srv.ExpireSession(suite.Session(t, q.waiters[0].client).ID())
		},
		"changed and deleted": func(t *testing.T, _ *recipestest.Server, q *queue, node string) {
			suite.Got(q.operator.Set(t.Context(), q.path+"/"+node, []byte("foreign"), -1))(t)
			time.Sleep(time.Second)
			q.remove(t, node)
		},
		"changed and deleted at once": func(t *testing.T, _ *recipestest.Server, q *queue, node string) {
			_, err := q.operator.Multi(t.Context(), &zk.SetDataRequest{Path: q.path + "/" + node, Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + node, Version: -1})
			require.NoError(t, err)
		},
		"deleted, some time after a foreign marker": func(t *testing.T, _ *recipestest.Server, q *queue, node string) {
			marker := q.path + "/" + node + "-passed"
			suite.Got(q.operator.Multi(t.Context(), &zk.CreateRequest{Path: marker}, &zk.DeleteRequest{Path: marker, Version: -1}))(t)
			q.operator.Set(t.Context(), q.path+"/"+q.waiters[1].node, nil, -1) // an event in between
			time.Sleep(time.Second)
			q.remove(t, node)
		},
	} {
		for _, quits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					q := newQueue(t, srv, 2)
					node, w := q.waiters[0].node, q.waiters[1]
					if quits {
						w.cancel()
						require.Nil(t, suite.Wait(t, w.grant))
						time.Sleep(time.Second)
					}
					before := w.link.Count(recipestest.OpAny)
					end(t, srv, q, node)
					time.Sleep(time.Second)
					if quits && name == "deleted" {
						require.Equal(t, before+1, w.link.Count(recipestest.OpAny), "a watch removed")
					}
					require.Empty(t, w.grant, "the holder is still its predecessor")
					q.requireUnwatched(t, w, node+"-passed")
					q.requireUnwatched(t, w, node)
					require.Zero(t, w.link.Count(recipestest.OpMulti), "a waiter writes its own node only")
					q.disband(t)
				})
			})
		}
	}
}

// A node can be deleted after its successor has listed it, and before the successor watches it.
func TestContenderListsTheLineIfItsPredecessorVanishesBeforeItIsWatched(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			q, link := newQueue(t, srv, 2), srv.Link(t)
			c, vanishing := link.Client(t), q.waiters[1].node
			stop := link.At(step, func() {
				if err := q.operator.Delete(t.Context(), q.path+"/"+vanishing, -1); err != nil {
					t.Error(err)
				}
			})
			w := q.enter(t, link, c)
			met = !stop()
			time.Sleep(time.Second)
			require.Empty(t, w.grant, "the holder is still its predecessor")
			if met {
				q.requireUnwatched(t, w, vanishing+"-passed") // though its watch may have been set too late
			}
			q.disband(t)
		})
		return met
	})
}

// A client finds out once that its servers can't remove watches. From then on it watches for no
// markers, and lists the line instead.
func TestServerThatCannotRemoveWatches(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t, suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
			if suite.OpOf(p) == recipestest.OpRemoveWatches {
				p = bytes.Clone(p)
				binary.BigEndian.PutUint32(p[8:], 99) // no request of older servers
			}
			return conn.Write(p)
		}))
		suite.Session(t, c)
		connects, markers := link.Count(recipestest.OpConnect), 0
		for i := range 3 {
			q := newQueue(t, srv, 1)
			w := q.enter(t, link, c)
			q.waiters[0].cancel()
			time.Sleep(time.Minute)
			require.Empty(t, w.grant, "the holder is still its predecessor")
			q.disband(t)
			if i == 0 {
				markers = link.Count(recipestest.OpExists)
				require.NotZero(t, markers)
			}
			require.Equal(t, markers, link.Count(recipestest.OpExists))
		}
		require.Equal(t, connects+1, link.Count(recipestest.OpConnect))
	})
}

// If a node wasn't watched for a while, its deletion says little: it may have been converted
// before.
func TestDeletionIsNotBelievedWhereAConversionMayHaveBeenMissed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, gate := srv.Root(t)+"/converted", srv.Link(t), &suite.Gate{Op: recipestest.OpSetWatches}
		writing := suite.Must(t, rwlock.New(srv.Client(t), path).Lock)
		gate.Shut()
		c := link.Client(t, gate.Option(link))
		enter := func() (context.CancelFunc, <-chan *rwlock.Lease) {
			ctx, cancel := context.WithCancel(t.Context())
			grant := suite.Later(func() *rwlock.Lease { l, _ := rwlock.New(c, path).Lock(ctx); return l })
			time.Sleep(time.Second)
			return cancel, grant
		}
		giveUp, quitter := enter() // whose watch stays
		giveUp()
		require.Nil(t, suite.Wait(t, quitter))
		time.Sleep(time.Second)
		suite.Reconnect(t, link, c)
		cancel, waiter := enter()
		defer cancel()
		reading := suite.Got(writing.Downgrade(suite.Lasting(t)))(t)
		synctest.Wait()
		require.True(t, gate.Holding(), "watches are about to be set again")
		gate.Open()
		time.Sleep(time.Second)
		require.Empty(t, waiter, "a reader is ahead")
		suite.Unlock(t, reading)
		suite.Unlock(t, suite.Wait(t, waiter))
	})
}
