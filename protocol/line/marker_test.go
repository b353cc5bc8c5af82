package line_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// A queue is a line whose contenders are known to be asleep.
type queue struct {
	srv      *recipestest.Server
	path     string
	operator *protocol.Client
	conn     *zk.Conn // the operator's
	grant    *election.Term
	waiters  []*waiter
}

// A waiter is a contender that is known to be asleep.
type waiter struct {
	link   *recipestest.Link
	client *protocol.Client
	cancel context.CancelFunc
	grant  <-chan *election.Term
	node   string
}

// newQueue returns a line with a holder and n waiters behind it, each with a link of its own.
func newQueue(t *testing.T, srv *recipestest.Server, n int) *queue {
	t.Helper()
	root, operator := srv.Root(t), srv.Client(t)
	q := &queue{srv: srv, path: root + "/line", operator: operator}
	session := suite.Session(t, operator)
	q.conn = session.Conn()
	_, err := session.EnsurePath(t.Context(), root) // for which 3.4 ends the connection, once
	require.NoError(t, err)
	require.NoError(t, session.Sync(t.Context(), root))
	q.grant = hold(t, srv.Client(t), q.path)
	for range n {
		q.enter(t, srv.Link(t))
	}
	return q
}

// enter adds a waiter whose client is the only one on its link.
func (q *queue) enter(t *testing.T, link *recipestest.Link, opts ...protocol.ConnectOption) *waiter {
	t.Helper()
	return q.enterAs(t, link, link.Client(t, opts...))
}

// enterAs adds a waiter, and waits until it watches its predecessor.
func (q *queue) enterAs(t *testing.T, link *recipestest.Link, c *protocol.Client) *waiter {
	t.Helper()
	before := q.names(t)
	watched := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2) // its own node, and its predecessor
	expected := link.Answered(recipestest.OpExists, link.Count(recipestest.OpExists)+1)

	w := q.start(t, link, c)
	suite.Wait(t, watched)
	if last := before[len(before)-1]; len(before) > 1 && last.Owner != (protocol.Owner{}) {
		suite.Wait(t, expected)
	}

	after := q.names(t)
	require.Len(t, after, len(before)+1)
	w.node = after[len(before)].Node
	return w
}

// start adds a waiter, and does not wait until it is asleep.
func (q *queue) start(t *testing.T, link *recipestest.Link, c *protocol.Client) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &waiter{link: link, client: c, cancel: cancel}
	w.grant = campaign(ctx, c, q.path)
	q.waiters = append(q.waiters, w)
	return w
}

// names lists the line.
func (q *queue) names(t *testing.T) (names []line.Name) {
	t.Helper()
	contenders, err := lineAt(q.operator, q.path).Contenders(suite.Lasting(t))
	require.NoError(t, err)
	for _, c := range contenders {
		n, ok := line.ParseName(c.Node, "lock-", "__lock__")
		require.True(t, ok)
		names = append(names, n)
	}
	return names
}

// release ends the present grant, and waits until next is granted.
func (q *queue) release(t *testing.T, next *waiter) {
	t.Helper()
	resign(t, q.grant)
	q.granted(t, next)
}

// granted waits until w is granted, with a greater token than all before.
func (q *queue) granted(t *testing.T, w *waiter) {
	t.Helper()
	g := suite.Wait(t, w.grant)
	require.NotNil(t, g)
	require.NoError(t, g.Err())
	require.Greater(t, g.Token(), q.grant.Token())
	q.grant = g
}

// disband ends the waits and the grant. It requires that no waiter holds, and that no node is left.
func (q *queue) disband(t *testing.T) {
	t.Helper()
	for _, w := range q.waiters {
		w.cancel()
		select {
		case g := <-w.grant:
			require.True(t, g == nil || g.Err() != nil, "the holder is still its predecessor")
		case <-time.After(suite.Limit):
			require.Fail(t, "its wait has not ended")
		}
	}

	suite.Soon(t, func() bool { return len(q.names(t)) <= 1 }, "the waiters have left the line")
	require.NoError(t, q.grant.Err())
	resign(t, q.grant)
	require.Empty(t, q.names(t))
	children, _, err := q.conn.Children(q.path)
	if err != zk.ErrNoNode {
		require.NoError(t, err)
		require.Empty(t, children)
	}
}

// took notes that a waiter has left, or was granted.
func (q *queue) took(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
}

// quit makes a waiter give up, and waits until its node is gone.
func (q *queue) quit(t *testing.T, w *waiter) {
	t.Helper()
	left := gone(t, q.operator, q.path+"/"+w.node)
	w.cancel()
	require.Nil(t, suite.Wait(t, w.grant))
	suite.Wait(t, left)
	q.took(w)
}

// marker returns the path of a node's release marker.
func (q *queue) marker(node string) string { return q.path + "/" + node + "-passed" }

// requests counts what a waiter has asked for. It leaves out what confirms its session: a Sync, and
// the deletion of a node that does not exist. It leaves out setWatches, too: zk.Conn sends that on
// its first connection if a watch was set very soon.
func (w *waiter) requests() (n int) {
	n = w.link.Count(recipestest.OpAny)
	for _, op := range []recipestest.Op{recipestest.OpSync, recipestest.OpDelete, recipestest.OpSetWatches} {
		n -= w.link.Count(op)
	}
	return n
}

// steady is [suite.Steady]: if not, the waiter has listed the line again.
func (w *waiter) steady(t *testing.T) bool {
	t.Helper()
	return suite.Steady(t, w.link)
}

// unwatches is closed once the server has removed n watches for release markers in all.
func (w *waiter) unwatches(n int) <-chan struct{} {
	return w.link.Answered(recipestest.OpRemoveWatches, n)
}

// hears is closed once a waiter has had n events in all.
func (w *waiter) hears(n int) <-chan struct{} { return w.link.Answered(recipestest.OpEvent, n) }

// requireUnwatched requires that w does not watch for the creation of a node. It creates the node,
// and syncs: the server sends an event before the answers to later requests.
func (q *queue) requireUnwatched(t *testing.T, w *waiter, path string) {
	t.Helper()
	before := w.link.Events()
	_, err := suite.Session(t, q.operator).EnsurePath(suite.Lasting(t), q.path)
	require.NoError(t, err)
	_, err = q.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	if err := q.conn.Delete(path, -1); err != zk.ErrNoNode { // its former contender may be faster
		require.NoError(t, err)
	}
	require.NoError(t, suite.Session(t, w.client).Sync(suite.Lasting(t), "/"))
	require.Equal(t, before, w.link.Events(), "still watched for")
}

func TestNextContenderNeedsNoRequest(t *testing.T) {
	suite.Steadily(t, suite.EmbeddedAndReal, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 5)
		for i, w := range q.waiters {
			before, lists := w.requests(), w.link.Count(recipestest.OpGetChildren)
			require.Zero(t, w.link.Events())
			q.release(t, w)
			if w.steady(t) {
				require.Equal(t, before, w.requests(), "of contender %d", i)
				require.Equal(t, 1, lists)
				events := 2 // of the marker and of the node
				if i == 0 {
					events = 1 // the holder was alone when it came, and leaves no marker
				}
				suite.Wait(t, w.hears(events))
				require.NoError(t, suite.Session(t, w.client).Sync(suite.Lasting(t), "/"))
				require.Equal(t, events, w.link.Events())
			}
			for j, other := range q.waiters[i+1:] {
				require.True(t, !other.steady(t) || other.link.Events() == 0, "contender %d, which is not next, was woken", i+1+j)
			}
		}
		last := q.grant

		q.waiters = nil
		q.disband(t)
		next := hold(t, q.operator, q.path)
		require.Greater(t, next.Token(), last.Token())
		resign(t, next)
	})
}

func TestNextContenderNeedsNoRequestThoughItsPredecessorHasChanged(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		predecessor, w := q.waiters[0], q.waiters[1]
		watched := w.link.Answered(recipestest.OpGetData, 3)
		own := predecessor.link.Answered(recipestest.OpGetData, 3)
		_, err := q.conn.Set(q.path+"/"+predecessor.node, []byte("foreign"), -1)
		require.NoError(t, err)
		suite.Wait(t, watched)
		suite.Wait(t, own)
		synctest.Wait()
		require.Equal(t, 7, w.requests(), "a node, two listings, three nodes read, one marker")
		before := w.requests()
		q.release(t, predecessor)
		q.release(t, w)
		require.Equal(t, before, w.requests())

		q.waiters = nil
		q.disband(t)
	})
}

// A marker takes a number of the line, so it is left for waiters only.
func TestHolderThatWasAloneLeavesNoMarker(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c, path := link.Client(t), srv.Root(t)+"/alone"
		var last line.Name
		for i := range 3 {
			g := hold(t, c, path)
			n, ok := line.ParseName(g.Node(), "lock-")
			require.True(t, ok)
			require.True(t, i == 0 || n.Sequence == last.Sequence+1)
			last = n
			multis := link.Count(recipestest.OpMulti)
			resign(t, g)
			require.Equal(t, multis, link.Count(recipestest.OpMulti))
		}
	})
}

func TestChosenContenderNeedsNoRequest(t *testing.T) {
	for skipped := range 4 {
		t.Run(fmt.Sprint(skipped), func(t *testing.T) {
			suite.Steadily(t, suite.EmbeddedAndReal, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, skipped+1)
				chosen := q.waiters[skipped]
				before := chosen.requests()
				require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
				q.granted(t, chosen)
				if chosen.steady(t) {
					require.Equal(t, before, chosen.requests())
				}
				q.took(chosen)
				suite.Soon(t, func() bool { return len(q.names(t)) == skipped+1 }, "the others wait again")
				for range skipped {
					resign(t, q.grant)
					var next *waiter
					suite.Soon(t, func() bool {
						i := slices.IndexFunc(q.waiters, func(w *waiter) bool { return len(w.grant) > 0 })
						if i >= 0 {
							next = q.waiters[i]
						}
						return i >= 0
					}, "one of the contenders passed over is next")
					q.granted(t, next)
					q.took(next)
				}

				q.disband(t)
			})
		})
	}
}

// A contender that goes without a marker says nothing about its predecessors.
func TestContenderListsTheLineIfItsPredecessorGoesWithoutAMarker(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, q *queue, predecessor, w *waiter){
		"gives up": func(t *testing.T, q *queue, predecessor, _ *waiter) { q.quit(t, predecessor) },
		"is deleted": func(t *testing.T, q *queue, predecessor, _ *waiter) {
			require.NoError(t, lineAt(q.operator, q.path).Break(suite.Lasting(t), predecessor.node))
		},
		"expires": func(t *testing.T, q *queue, predecessor, _ *waiter) {
			q.srv.ExpireSession(suite.Session(t, predecessor.client).ID())
		},
		"is changed and then deleted": func(t *testing.T, q *queue, predecessor, w *waiter) {
			watched := w.link.Answered(recipestest.OpGetData, w.link.Count(recipestest.OpGetData)+1)
			_, err := q.conn.Set(q.path+"/"+predecessor.node, []byte("foreign"), -1)
			require.NoError(t, err)
			suite.Wait(t, watched)
			require.NoError(t, q.conn.Delete(q.path+"/"+predecessor.node, -1))
		},
		"is changed and deleted at once": func(t *testing.T, q *queue, predecessor, _ *waiter) {
			_, err := q.conn.Multi(
				&zk.SetDataRequest{Path: q.path + "/" + predecessor.node, Data: []byte("foreign"), Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + predecessor.node, Version: -1})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, 2)
				predecessor, w := q.waiters[0], q.waiters[1]

				end(t, q, predecessor, w)

				// The holder is its predecessor now, whose marker it need not watch for.
				suite.Wait(t, w.unwatches(1))
				suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 2))
				suite.Soon(t, func() bool { return len(q.names(t)) == 1+len(q.waiters) }, "the contender that was deleted has come again")
				require.Empty(t, w.grant, "the holder is still its predecessor")
				q.requireUnwatched(t, w, q.marker(predecessor.node))
				require.Zero(t, w.link.Count(recipestest.OpMulti), "a waiter writes its own node only")

				q.release(t, w)
				q.took(w)
				q.disband(t)
			})
		})
	}
}

func TestContenderListsTheLineBehindAForeignNode(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 0)
		other, err := q.conn.Create(q.path+"/_c_0-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		w := q.enter(t, srv.Link(t))
		listed := w.link.Answered(recipestest.OpGetChildren, 2)
		watched := w.link.Answered(recipestest.OpGetData, 3)
		require.NoError(t, q.conn.Delete(other, -1))
		suite.Wait(t, listed)
		suite.Wait(t, watched)
		require.Empty(t, w.grant, "the holder is still its predecessor")
		require.Zero(t, w.link.Count(recipestest.OpExists), "other libraries leave no marker")

		q.release(t, w)
		q.took(w)
		q.disband(t)
	})
}

// A node may go after its successor has listed it, and before that watches it.
func TestContenderListsTheLineIfItsPredecessorVanishesBeforeItIsWatched(t *testing.T) {
	t.Parallel()
	for vanished := 1; vanished <= 2; vanished++ {
		for step, met := 1, true; met; step++ {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				q := newQueue(t, srv, 2)
				link := srv.Link(t)
				c := link.Client(t)
				vanish := slices.Clone(q.waiters[2-vanished:])
				stop := link.At(step, func() {
					for _, w := range vanish {
						if err := q.conn.Delete(q.path+"/"+w.node, -1); err != nil {
							t.Error(err)
						}
					}
				})
				w := q.start(t, link, c)
				synctest.Wait()
				met = !stop()
				require.Empty(t, w.grant, "the holder is still its predecessor")
				suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "the contender that was deleted has come again")
				require.Empty(t, w.grant, "the holder is still its predecessor")
				for i := 0; met && i < len(vanish); i++ {
					v := vanish[i]
					q.requireUnwatched(t, w, q.marker(v.node)) // though its watch may have been set too late
				}

				q.disband(t)
			})
		}
	}
}

func TestContenderListsTheLineIfTheHolderHasChanged(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		w := q.waiters[0]
		watched := w.link.Answered(recipestest.OpGetData, 3)
		require.NoError(t, q.grant.Proclaim(suite.Lasting(t), []byte("new")))
		suite.Wait(t, watched)
		require.Empty(t, w.grant)

		q.release(t, w)
		q.waiters = nil
		q.disband(t)
	})
}

// What happens to a foreign node that has a marker's name says nothing.
func TestForeignNodeWithAMarkersNameIsNoMarker(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		node := q.marker(q.waiters[0].node)
		_, err := q.conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		w := q.enter(t, srv.Link(t))
		for _, happens := range []func() error{
			func() error { _, err := q.conn.Set(node, nil, -1); return err },
			func() error { return q.conn.Delete(node, -1) },
		} {
			require.NoError(t, happens())
			require.Empty(t, w.grant, "the holder is still its predecessor")
		}
		listed := w.link.Answered(recipestest.OpGetChildren, 2)
		require.NoError(t, q.conn.Delete(q.path+"/"+q.waiters[0].node, -1))
		suite.Wait(t, listed)
		require.Empty(t, w.grant, "the holder is still its predecessor")
		suite.Soon(t, func() bool { return len(q.names(t)) == 3 }, "the contender that was deleted has come again")

		q.disband(t)
	})
}

// A foreign client that makes the marker of a node which has not been released convinces no waiter.
func TestMarkerWithoutItsReleaseIsNotBelieved(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		predecessor, w := q.waiters[0], q.waiters[1]
		_, err := q.conn.Multi(
			&zk.CreateRequest{Path: q.marker(predecessor.node), Acl: zk.WorldACL(zk.PermAll)},
			&zk.DeleteRequest{Path: q.marker(predecessor.node), Version: -1},
			&zk.SetDataRequest{Path: q.path + "/" + q.grant.Node(), Version: -1})
		require.NoError(t, err)
		suite.Wait(t, w.hears(1))
		own := w.hears(2)
		_, err = q.conn.Set(q.path+"/"+w.node, nil, -1) // an event in between
		require.NoError(t, err)
		suite.Wait(t, own)
		suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 3)) // its own node had changed since the second
		suite.Wait(t, w.link.Answered(recipestest.OpExists, 2))

		q.quit(t, predecessor)
		suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 4))
		require.Empty(t, w.grant, "the holder is still its predecessor")

		q.release(t, w)
		q.took(w)
		q.disband(t)
	})
}

// Waiters of one session share the watches on their predecessor. A wait that is given up costs one
// request when that node goes without its marker, and none when it is released.
func TestAbandonedWaitCostsOneRequestAtMost(t *testing.T) {
	suite.Steadily(t, suite.EmbeddedAndReal, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		predecessor, link := q.waiters[0], srv.Link(t)
		quitter := q.enter(t, link)
		deletes := link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)
		q.quit(t, quitter)
		suite.Wait(t, deletes)
		if quitter.steady(t) {
			require.Equal(t, 5, quitter.requests(), "a node, a listing, two nodes read, one marker; and a node deleted")
		}
		again := q.start(t, link, quitter.client)
		suite.Wait(t, link.Answered(recipestest.OpGetData, 3))
		suite.Wait(t, link.Answered(recipestest.OpGetChildren, 2))
		suite.Soon(t, func() bool { return len(q.names(t)) == 3 }, "in line")
		again.node = q.names(t)[2].Node
		q.quit(t, again)
		if quitter.steady(t) {
			require.Equal(t, 8, quitter.requests(), "a node, a listing, its own node read")
		}
		removed := link.Answered(recipestest.OpRemoveWatches, 1)
		require.NoError(t, lineAt(q.operator, q.path).Break(suite.Lasting(t), predecessor.node))
		suite.Wait(t, removed)
		q.requireUnwatched(t, quitter, q.marker(predecessor.node))
		q.requireUnwatched(t, quitter, q.path+"/"+predecessor.node)
		if quitter.steady(t) {
			require.Equal(t, 9, quitter.requests(), "a watch removed")
		}
		require.Zero(t, link.Count(recipestest.OpMulti))

		q.disband(t)
	})
}

// A watch that no waiter needs any more goes when the node does, however that ends.
func TestWatchForAMarkerEndsWithItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		events int // of the end, of the marker, and what there is before
		end    func(t *testing.T, q *queue, predecessor, quitter *waiter)
	}{
		"released": {2, func(t *testing.T, q *queue, predecessor, _ *waiter) {
			q.release(t, predecessor)
			q.took(predecessor)
			resign(t, q.grant)
			q.grant = hold(t, q.operator, q.path)
		}},
		"expired": {1, func(t *testing.T, q *queue, predecessor, _ *waiter) {
			q.srv.ExpireSession(suite.Session(t, predecessor.client).ID())
		}},
		"changed and then deleted": {2, func(t *testing.T, q *queue, predecessor, quitter *waiter) {
			watched := quitter.link.Answered(recipestest.OpGetData, quitter.link.Count(recipestest.OpGetData)+1)
			_, err := q.conn.Set(q.path+"/"+predecessor.node, []byte("foreign"), -1)
			require.NoError(t, err)
			suite.Wait(t, watched)
			require.NoError(t, q.conn.Delete(q.path+"/"+predecessor.node, -1))
		}},
		"changed and deleted at once": {1, func(t *testing.T, q *queue, predecessor, _ *waiter) {
			_, err := q.conn.Multi(
				&zk.SetDataRequest{Path: q.path + "/" + predecessor.node, Data: []byte("foreign"), Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + predecessor.node, Version: -1})
			require.NoError(t, err)
		}},
		"deleted with its line": {1, func(t *testing.T, q *queue, predecessor, quitter *waiter) {
			predecessor.link.Cut() // or it would make the line again
			_, err := q.conn.Multi(
				&zk.DeleteRequest{Path: q.path + "/" + predecessor.node, Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + q.grant.Node(), Version: -1},
				&zk.DeleteRequest{Path: q.path, Version: -1})
			require.NoError(t, err)
			suite.Wait(t, q.grant.Done())
			suite.Wait(t, quitter.hears(2))
			predecessor.link.Heal()
			q.granted(t, predecessor)
			q.took(predecessor)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, 2)
				predecessor, quitter := q.waiters[0], q.waiters[1]

				q.quit(t, quitter)
				suite.Wait(t, quitter.hears(1)) // of its own end
				c.end(t, q, predecessor, quitter)
				suite.Wait(t, quitter.hears(1+c.events))
				if name != "released" {
					suite.Wait(t, quitter.unwatches(1))
				}
				q.requireUnwatched(t, quitter, q.marker(predecessor.node))
				q.requireUnwatched(t, quitter, q.path+"/"+predecessor.node)

				q.disband(t)
			})
		})
	}
}

// After a reconnect requests may be sent before the watches are set again, and so may the one that
// removes a watch.
func TestWatchForAMarkerIsRemovedWhereverTheConnectionBreaks(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for step := 1; step < 10; step++ {
			q := newQueue(t, srv, 1)
			predecessor, link := q.waiters[0], srv.Link(t)
			gate := &suite.Gate{Op: recipestest.OpSetWatches}
			gate.Shut()
			quitter := q.enter(t, link, gate.Option(link))
			q.quit(t, quitter)
			suite.Wait(t, quitter.hears(1)) // of its own end
			link.At(step, func() { link.Cut(); link.Heal() })
			require.NoError(t, q.conn.Delete(q.path+"/"+predecessor.node, -1))
			time.Sleep(time.Second)
			gate.Open()
			time.Sleep(time.Minute)
			q.requireUnwatched(t, quitter, q.marker(predecessor.node))

			q.disband(t)
		}
	})
}

// The watch for a marker may be set when the session has heard already that the node is gone.
func TestWatchForAMarkerThatIsSetTooLateIsRemoved(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		predecessor, link := q.waiters[0], srv.Link(t)
		gate := &suite.Gate{Op: recipestest.OpExists}
		gate.Shut()
		c := link.Client(t, gate.Option(link))
		watched := link.Answered(recipestest.OpGetData, 2)
		w := q.start(t, link, c)
		suite.Wait(t, watched)
		listed := link.Answered(recipestest.OpGetChildren, 2)
		q.quit(t, predecessor)
		suite.Wait(t, listed)
		require.Zero(t, link.Count(recipestest.OpRemoveWatches), "there is none yet")

		suite.Soon(t, gate.Holding, "the watch is about to be set")
		gate.Open()
		suite.Wait(t, w.unwatches(1))
		require.Empty(t, w.grant, "the holder is still its predecessor")
		q.requireUnwatched(t, w, q.marker(predecessor.node))

		q.disband(t)
	})
}

// A session learns once that its server cannot remove watches. From then on it watches for no
// markers, and lists the line instead.
func TestServerThatCannotRemoveWatches(t *testing.T) {
	for name, through := range map[string]func(link *recipestest.Link) (option protocol.ConnectOption, attempts int){
		"refuses": func(link *recipestest.Link) (protocol.ConnectOption, int) {
			return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := link.Dial(network, address, timeout)
				return oldServer{conn}, err
			}), 1
		},
		"hangs up": func(link *recipestest.Link) (protocol.ConnectOption, int) {
			option, left := suite.Breaking(link, recipestest.OpRemoveWatches)
			left.Store(1 << 20)
			return option, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				link := srv.Link(t)
				option, attempts := through(link)
				c := link.Client(t, option)
				suite.Session(t, c)
				connects := link.Count(recipestest.OpConnect)
				for i := range 4 {
					q := newQueue(t, srv, 1)
					markers := link.Count(recipestest.OpExists)
					watched := link.Sent(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2)
					expected := link.Answered(recipestest.OpExists, markers+1)
					w := q.start(t, link, c)
					suite.Wait(t, watched)
					if i < attempts {
						suite.Wait(t, expected)
					}
					back := link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1)
					listed := link.Sent(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
					q.quit(t, q.waiters[0])
					if i < attempts {
						suite.Wait(t, back)
					}
					suite.Wait(t, listed)
					require.Empty(t, w.grant, "the holder is still its predecessor")

					q.disband(t)
					if i >= attempts {
						require.Equal(t, markers, link.Count(recipestest.OpExists))
					}
				}
				require.Equal(t, connects+attempts, link.Count(recipestest.OpConnect))
			})
		})
	}
}

// An oldServer is a connection to a server that does not know the request to remove watches.
type oldServer struct{ net.Conn }

func (c oldServer) Write(p []byte) (int, error) {
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == uint32(recipestest.OpRemoveWatches) {
		p = bytes.Clone(p)
		binary.BigEndian.PutUint32(p[8:], 99)
	}
	return c.Conn.Write(p)
}

// A candidate that is passed over hears first that its own node is gone, and then of the end of its
// predecessor. So it is not next, even if it hears no more for a while.
func TestCandidateThatIsPassedOverIsNotNext(t *testing.T) {
	t.Parallel()
	for _, which := range []int{0, 2} { // behind the leader, who leaves no marker, or behind another
		for step := 1; step <= 3; step++ {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, recipestest.Start(t, recipestest.WithInMemory()), 4)
				over, chosen := q.waiters[which], q.waiters[3]
				held := make(chan struct{})
				stop := over.link.At(step, func() { <-held })
				require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
				q.granted(t, chosen)
				q.took(chosen)
				synctest.Wait()
				require.False(t, stop(), "its own end, the end of its predecessor, and a listing")
				require.Empty(t, over.grant, "it was passed over")
				close(held)
				suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "all wait again")

				q.disband(t)
			})
		}
	}
}

// A candidate that gives up at the moment when it would be passed over is left out, and no other.
func TestCandidateMayLeaveWhileItIsPassedOver(t *testing.T) {
	t.Parallel()
	for leaves := range 3 {
		for step, met := 1, true; met; step++ {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				q := &queue{srv: srv, path: srv.Root(t) + "/line", operator: srv.Client(t)}
				q.conn = suite.Session(t, q.operator).Conn()
				link := srv.Link(t)
				c := link.Client(t)
				q.grant = hold(t, c, q.path)
				for range 4 {
					q.enter(t, srv.Link(t))
				}
				synctest.Wait()
				chosen, leaver := q.waiters[3], q.waiters[leaves]
				stop := link.At(step, func() {
					if err := q.conn.Delete(q.path+"/"+leaver.node, -1); err != zk.ErrNoNode && err != nil {
						t.Error(err)
					}
				})
				err := q.grant.ResignTo(suite.Lasting(t), chosen.node)
				met = !stop()
				require.NoError(t, err)
				q.granted(t, chosen)
				q.took(chosen)
				synctest.Wait()
				suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "the contender that was deleted has come again")

				q.disband(t)
			})
		}
	}
}

// Without a connection events may have been missed, and those that are made up come in any order.
func TestContenderListsTheLineAfterAReconnect(t *testing.T) {
	for name, waiters := range map[string]int{"behind the holder": 1, "behind a waiter": 2} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, waiters)
				w := q.waiters[waiters-1]
				nodes := q.names(t)
				w.link.Cut()
				for _, n := range slices.Backward(nodes) {
					require.NoError(t, lineAt(q.operator, q.path).Break(suite.Lasting(t), n.Node))
				}
				for _, other := range q.waiters[:waiters-1] {
					suite.Soon(t, func() bool { return len(other.grant) == 1 }, "it has come again first")
					q.granted(t, other)
					resign(t, q.grant)
				}
				q.waiters = []*waiter{w}
				q.grant = hold(t, q.operator, q.path)
				w.link.Heal()
				suite.Soon(t, func() bool { return strings.Contains(w.link.Trace(), "getData "+q.path+"/"+q.grant.Node()) },
					"it has come again, and waits for the new holder")
				require.Empty(t, w.grant, "its place was gone")

				q.release(t, w)
				q.took(w)
				q.disband(t)
			})
		})
	}
}

// A contender that had no connection when its predecessor released lists the line once it has one.
func TestContenderListsTheLineIfItsPredecessorReleasedDuringItsDisconnection(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		predecessor, w := q.waiters[0], q.waiters[1]
		lists := w.link.Count(recipestest.OpGetChildren)
		w.link.Cut()
		q.release(t, predecessor)
		resign(t, q.grant)
		w.link.Heal()
		q.granted(t, w)
		require.Greater(t, w.link.Count(recipestest.OpGetChildren), lists)
		suite.Wait(t, w.hears(1)) // of an end
		q.requireUnwatched(t, w, q.marker(predecessor.node))

		q.waiters = nil
		q.disband(t)
	})
}

// A foreign node that has a marker's name is not ours to delete. The release then goes without its
// marker, and the next contender lists the line.
func TestReleaseWhereNoMarkerCanBeLeft(t *testing.T) {
	foreign := func(t *testing.T, q *queue, node string) {
		_, err := q.conn.Create(q.marker(node), []byte("foreign"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	forbid := func(t *testing.T, q *queue, _ string) {
		_, err := q.conn.SetACL(q.path, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(t, err)
	}
	tidy := func(t *testing.T, q *queue, node string, created bool) {
		if created {
			data, _, err := q.conn.Get(q.marker(node))
			require.NoError(t, err, "it was not ours to delete")
			require.Equal(t, "foreign", string(data))
			require.NoError(t, q.conn.Delete(q.marker(node), -1))
		}
		_, err := q.conn.SetACL(q.path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
	for name, prevent := range map[string]func(t *testing.T, q *queue, node string){"foreign node": foreign, "ACL": forbid} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				t.Run("Release", func(t *testing.T) {
					q := newQueue(t, srv, 1)
					predecessor := q.waiters[0]

					if name == "foreign node" {
						prevent(t, q, predecessor.node)
					}
					w := q.enter(t, srv.Link(t))
					if name == "ACL" {
						prevent(t, q, predecessor.node)
					}
					q.release(t, predecessor)
					lists := w.link.Count(recipestest.OpGetChildren)
					q.release(t, w)
					require.Greater(t, w.link.Count(recipestest.OpGetChildren), lists)
					tidy(t, q, predecessor.node, name == "foreign node")

					q.waiters = nil
					q.disband(t)
				})
				for which := range 2 {
					t.Run("ReleaseTo", func(t *testing.T) {
						q := newQueue(t, srv, 1)
						over := q.waiters[0]
						node := []string{q.grant.Node(), over.node}[which]
						if name == "foreign node" {
							prevent(t, q, node)
						}
						chosen := q.enter(t, srv.Link(t))
						if name == "ACL" {
							prevent(t, q, node)
						}
						require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
						q.granted(t, chosen)
						q.took(chosen)
						tidy(t, q, node, name == "foreign node")
						if name != "ACL" { // which keeps over from coming again
							suite.Soon(t, func() bool { return len(q.names(t)) == 2 }, "the contender passed over has come again")
						}

						q.disband(t)
					})
				}
			})
		})
	}
}

// A release is repeated if its answer is lost, and takes effect once.
func TestReleaseSucceedsThoughItsAnswerIsLost(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 3)
		first, second, third := q.waiters[0], q.waiters[1], q.waiters[2]

		q.release(t, first)
		first.link.LoseReply(recipestest.OpMulti, 1)
		q.release(t, second) // without an error
		require.Equal(t, 2, first.link.Count(recipestest.OpConnect))
		second.link.LoseReply(recipestest.OpMulti, 2)

		q.release(t, third)
		q.waiters = nil
		q.disband(t)
	})
}

// Release gives up if the client's back-off says so. A node that may have been deleted by the
// release itself is no loss.
func TestReleaseThatIsGivenUpIsNoLoss(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 0)
		link := srv.Link(t)
		q.enter(t, link, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		q.release(t, q.waiters[0])
		next := q.enter(t, srv.Link(t))
		link.LoseReply(recipestest.OpMulti, 1)
		require.NotErrorIs(t, q.grant.Resign(suite.Lasting(t)), protocol.ErrLost)

		q.granted(t, next)
		q.waiters = nil
		q.disband(t)
	})
}

// The same holds for a release to a chosen contender.
func TestReleaseToAChosenContenderThatIsGivenUpIsNoLoss(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 0)
		link := srv.Link(t)
		q.enter(t, link, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		holder := q.waiters[0]

		q.release(t, holder)
		next := q.enter(t, srv.Link(t))
		link.LoseReply(recipestest.OpMulti, 1)
		err := q.grant.ResignTo(suite.Lasting(t), next.node)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.NotErrorIs(t, err, election.ErrNotInLine)

		q.granted(t, next)
		q.waiters = nil
		q.disband(t)
	})
}

// Whatever happens at any step of a release, exactly one contender is granted next.
func TestFaultAtEachStepOfARelease(t *testing.T) {
	for name, fault := range map[string]func(*recipestest.Server, *recipestest.Link, int64){
		"cut": func(_ *recipestest.Server, link *recipestest.Link, _ int64) {
			link.Cut()
			link.Heal()
		},
		"expiry": func(srv *recipestest.Server, _ *recipestest.Link, id int64) { srv.ExpireSession(id) },
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				for victim := range 2 { // the holder that releases, or the next contender
					for step, met := 1, true; met; step++ {
						q := newQueue(t, srv, 3)
						first, second, third := q.waiters[0], q.waiters[1], q.waiters[2]

						q.release(t, first)
						suite.Wait(t, second.link.Answered(recipestest.OpExists, 1))
						link := q.waiters[victim].link
						id := suite.Session(t, q.waiters[victim].client).ID()
						stop := link.At(step, func() { fault(srv, link, id) })
						released := q.grant
						if err := released.Resign(suite.Lasting(t)); victim != 0 || name != "expiry" {
							require.NoError(t, err)
						}
						suite.Soon(t, func() bool { return len(second.grant)+len(third.grant) > 0 }, "a contender is next")
						met = !stop()
						q.took(first)
						if met && name == "expiry" && victim == 1 {
							// It had lost its place, or it has got it and loses it.
							q.granted(t, third)
							q.took(third)
							if len(second.grant) > 0 {
								suite.Wait(t, suite.Wait(t, second.grant).Done())
								q.took(second)
							}
						} else {
							q.granted(t, second)
							q.took(second)
							require.Empty(t, third.grant)
						}
						require.Greater(t, q.grant.Token(), released.Token())

						q.disband(t)
					}
				}
			})
		})
	}
}

// The blockers are asked for again when the only one has gone.
func TestBlockersAreAskedForAgain(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		behindFirst := line.Request{Kind: "lock-", Blockers: func(names []line.Name, self int) []line.Name {
			return names[:min(self, 1)]
		}}
		enter := func(link *recipestest.Link) <-chan *protocol.Grant {
			asleep := link.Answered(recipestest.OpGetData, 2)
			c := link.Client(t)
			l := line.New(protocol.NewRecipe(c, "test", path), line.Kind{Name: "lock-"})
			g := suite.Later(func() *protocol.Grant {
				g, _ := l.Enter(t.Context(), behindFirst)
				return g
			})
			suite.Wait(t, asleep)
			return g
		}
		holder := hold(t, srv.Client(t), path)
		first, second := srv.Link(t), srv.Link(t)
		next, last := enter(first), enter(second)
		watched := second.Answered(recipestest.OpGetData, 3)
		resign(t, holder)
		g := suite.Wait(t, next)
		suite.Wait(t, watched)
		require.Empty(t, last)
		release(t, g)
		release(t, suite.Wait(t, last))
	})
}

// The deletion of a node says little if the node was not watched for a while: it may have been
// converted before.
func TestDeletionIsNotBelievedWhereAConversionMayHaveBeenMissed(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/converted", srv.Link(t)
		g, err := rwlock.New(srv.Client(t), path).Lock(suite.Lasting(t))
		require.NoError(t, err)
		gate := &suite.Gate{Op: recipestest.OpSetWatches}
		gate.Shut()
		c := link.Client(t, gate.Option(link))
		m := rwlock.New(c, path)
		enter := func() (context.CancelFunc, <-chan *rwlock.Lease) {
			listed := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
			own := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+1)
			ctx, cancel := context.WithCancel(t.Context())
			grant := suite.Later(func() *rwlock.Lease {
				l, _ := m.Lock(ctx)
				return l
			})
			suite.Wait(t, listed)
			suite.Wait(t, own)
			return cancel, grant
		}
		watched := link.Answered(recipestest.OpGetData, 2)
		giveUp, quitter := enter()
		suite.Wait(t, watched)
		giveUp()
		require.Nil(t, suite.Wait(t, quitter))
		suite.Wait(t, link.Answered(recipestest.OpEvent, 1)) // of its own end
		suite.Reconnect(t, link, c)
		cancel, waiter := enter()
		defer cancel()
		reading, err := g.Downgrade(suite.Lasting(t))
		require.NoError(t, err)
		again := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
		suite.Soon(t, gate.Holding, "watches are about to be set again")
		gate.Open()
		select {
		case <-again:
		case g := <-waiter:
			require.Nil(t, g, "a reader is ahead")
		}
		require.NoError(t, reading.Err())
		require.Empty(t, waiter)
		require.NoError(t, reading.Unlock(suite.Lasting(t)))
		require.NoError(t, suite.Wait(t, waiter).Unlock(suite.Lasting(t)))
	})
}
