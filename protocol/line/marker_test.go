package line_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
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

// A queue is a line in which contenders wait that are known to be asleep.
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

// newQueue returns a line with a holder, who has come first, and behind it n waiters, each with a
// link of its own.
func newQueue(t *testing.T, srv *recipestest.Server, n int) *queue {
	t.Helper()
	q := &queue{srv: srv, path: srv.Root(t) + "/line", operator: srv.Client(t)}
	q.conn = suite.Session(t, q.operator).Conn()
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

func (q *queue) enterAs(t *testing.T, link *recipestest.Link, c *protocol.Client) *waiter {
	t.Helper()
	ahead := q.names(t)
	watches := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2) // its own node, and the last ahead
	marks := link.Answered(recipestest.OpExists, link.Count(recipestest.OpExists)+1)
	w := q.start(t, link, c)
	suite.Wait(t, watches)
	if last := ahead[len(ahead)-1]; len(ahead) > 1 && last.Owner != (protocol.Owner{}) {
		suite.Wait(t, marks)
	}
	line := q.names(t)
	require.Len(t, line, len(ahead)+1)
	w.node = line[len(ahead)].Node
	return w
}

// start adds a waiter that may be awake.
func (q *queue) start(t *testing.T, link *recipestest.Link, c *protocol.Client) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &waiter{link: link, client: c, cancel: cancel}
	w.grant = campaign(ctx, c, q.path)
	q.waiters = append(q.waiters, w)
	return w
}

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

// release gives back what is held, and has the next one hold it.
func (q *queue) release(t *testing.T, next *waiter) {
	t.Helper()
	resign(t, q.grant)
	q.granted(t, next)
}

// granted waits until w has got it, after everybody else.
func (q *queue) granted(t *testing.T, w *waiter) {
	t.Helper()
	g := suite.Wait(t, w.grant)
	require.NotNil(t, g)
	require.NoError(t, g.Err())
	require.Greater(t, g.Token(), q.grant.Token())
	q.grant = g
}

// disband takes everybody out of line, and requires that nothing has come of their waits, and that
// no node stays.
func (q *queue) disband(t *testing.T) {
	t.Helper()
	for _, w := range q.waiters {
		w.cancel()
		select {
		case g := <-w.grant:
			require.Nil(t, g, "still ahead was the holder")
		case <-time.After(suite.Limit):
			require.Fail(t, "asleep")
		}
	}
	suite.Soon(t, func() bool { return len(q.names(t)) <= 1 }, "who has given up is out of line")
	require.NoError(t, q.grant.Err())
	resign(t, q.grant)
	require.Empty(t, q.names(t))
	children, _, err := q.conn.Children(q.path)
	if err != zk.ErrNoNode {
		require.NoError(t, err)
		require.Empty(t, children)
	}
}

// took takes a waiter for one that has left or has been granted.
func (q *queue) took(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
}

// quit has a waiter give up.
func (q *queue) quit(t *testing.T, w *waiter) {
	t.Helper()
	left := gone(t, q.operator, q.path+"/"+w.node)
	w.cancel()
	require.Nil(t, suite.Wait(t, w.grant))
	suite.Wait(t, left)
	q.took(w)
}

func (q *queue) mark(node string) string { return q.path + "/" + node + "-passed" }

// requests counts what a waiter has asked for, without what keeps its session: a Sync, and the
// deletion of nothing.
func (w *waiter) requests() int {
	return w.link.Count(recipestest.OpAny) - w.link.Count(recipestest.OpSync) - w.link.Count(recipestest.OpDelete)
}

// steady tells whether a waiter has had one connection only. Another one, on a machine that is too
// busy to keep the first, leaves doubt, for which it looks.
func (w *waiter) steady() bool { return w.link.Count(recipestest.OpConnect) == 1 }

// unwatches is closed once the server has removed n watches for release markers in all.
func (w *waiter) unwatches(n int) <-chan struct{} {
	return w.link.Answered(recipestest.OpRemoveWatches, n)
}

// hears is closed once a waiter has had n events in all.
func (w *waiter) hears(n int) <-chan struct{} { return w.link.Answered(recipestest.OpEvent, n) }

// requireUnwatched requires that w does not watch for the creation of a node. A server tells of
// that before it answers what is asked later.
func (q *queue) requireUnwatched(t *testing.T, w *waiter, path string) {
	t.Helper()
	before := w.link.Events()
	_, err := suite.Session(t, q.operator).EnsurePath(suite.Lasting(t), q.path)
	require.NoError(t, err)
	_, err = q.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, q.conn.Delete(path, -1))
	require.NoError(t, suite.Session(t, w.client).Sync(suite.Lasting(t), "/"))
	require.Equal(t, before, w.link.Events(), "the mark is watched for still")
}

func TestWhoIsNextNeedsNoRequest(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 5)
		for i, w := range q.waiters {
			before, lists := w.requests(), w.link.Count(recipestest.OpGetChildren)
			require.Zero(t, w.link.Events())
			q.release(t, w)
			if w.steady() {
				require.Equal(t, before, w.requests(), "of contender %d", i)
				require.Equal(t, 1, lists)
				events := 2 // of the mark and of the node
				if i == 0 {
					events = 1 // it had one ahead only, who had been alone
				}
				suite.Wait(t, w.hears(events))
				require.NoError(t, suite.Session(t, w.client).Sync(suite.Lasting(t), "/"))
				require.Equal(t, events, w.link.Events())
			}
			for j, other := range q.waiters[i+1:] {
				require.True(t, !other.steady() || other.link.Events() == 0, "%d, behind the one that is next, was woken", i+1+j)
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

func TestWhoIsNextNeedsNoRequestThoughTheOneAheadHasChanged(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		ahead, w := q.waiters[0], q.waiters[1]
		watched := w.link.Answered(recipestest.OpGetData, 3)
		own := ahead.link.Answered(recipestest.OpGetData, 3)
		_, err := q.conn.Set(q.path+"/"+ahead.node, []byte("somebody's"), -1)
		require.NoError(t, err)
		suite.Wait(t, watched)
		suite.Wait(t, own)
		require.NoError(t, suite.Session(t, w.client).Sync(suite.Lasting(t), "/"))
		if w.steady() {
			require.Equal(t, 7, w.requests(), "a node, two listings, three nodes read, one mark")
		}
		before := w.requests()
		q.release(t, ahead)
		q.release(t, w)
		if w.steady() {
			require.Equal(t, before, w.requests())
		}
		q.waiters = nil
		q.disband(t)
	})
}

// A mark, which takes a number of the line, is for those who wait.
func TestWhoIsAloneLeavesNoMark(t *testing.T) {
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

func TestWhoIsChosenNeedsNoRequest(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		for passed := range 4 {
			t.Run("", func(t *testing.T) {
				q := newQueue(t, srv, passed+1)
				chosen := q.waiters[passed]
				before := chosen.requests()
				require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
				q.granted(t, chosen)
				if chosen.steady() {
					require.Equal(t, before, chosen.requests())
				}
				q.took(chosen)
				suite.Soon(t, func() bool { return len(q.names(t)) == passed+1 }, "the others wait again")
				for range passed {
					resign(t, q.grant)
					var next *waiter
					suite.Soon(t, func() bool {
						i := slices.IndexFunc(q.waiters, func(w *waiter) bool { return len(w.grant) > 0 })
						if i >= 0 {
							next = q.waiters[i]
						}
						return i >= 0
					}, "one of those who were passed over is next")
					q.granted(t, next)
					q.took(next)
				}
				q.disband(t)
			})
		}
	})
}

// Whoever goes without a mark says nothing about those ahead of it.
func TestWhoIsNextLooksWhereNoMarkTellsThatAllAreGone(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, q *queue, ahead, w *waiter){
		"gives up": func(t *testing.T, q *queue, ahead, _ *waiter) { q.quit(t, ahead) },
		"is deleted": func(t *testing.T, q *queue, ahead, _ *waiter) {
			require.NoError(t, lineAt(q.operator, q.path).Break(suite.Lasting(t), ahead.node))
		},
		"expires": func(t *testing.T, q *queue, ahead, _ *waiter) {
			q.srv.ExpireSession(suite.Session(t, ahead.client).ID())
		},
		"is changed and then deleted": func(t *testing.T, q *queue, ahead, w *waiter) {
			looked := w.link.Answered(recipestest.OpGetData, w.link.Count(recipestest.OpGetData)+1)
			_, err := q.conn.Set(q.path+"/"+ahead.node, []byte("somebody's"), -1)
			require.NoError(t, err)
			suite.Wait(t, looked)
			require.NoError(t, q.conn.Delete(q.path+"/"+ahead.node, -1))
		},
		"is changed and deleted at once": func(t *testing.T, q *queue, ahead, _ *waiter) {
			_, err := q.conn.Multi(
				&zk.SetDataRequest{Path: q.path + "/" + ahead.node, Data: []byte("somebody's"), Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + ahead.node, Version: -1})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, 2)
				ahead, w := q.waiters[0], q.waiters[1]
				end(t, q, ahead, w)
				// It stands behind the holder now, whose node it watches without a marker.
				suite.Wait(t, w.unwatches(1))
				suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 2))
				suite.Soon(t, func() bool { return len(q.names(t)) == 1+len(q.waiters) }, "who was deleted has come again")
				require.Empty(t, w.grant, "the holder was ahead still")
				q.requireUnwatched(t, w, q.mark(ahead.node))
				require.Zero(t, w.link.Count(recipestest.OpMulti), "a waiter writes its own node only")
				q.release(t, w)
				q.took(w)
				q.disband(t)
			})
		})
	}
}

func TestWhoIsNextLooksBehindAnotherLibrary(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 0)
		other, err := q.conn.Create(q.path+"/_c_0-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		w := q.enter(t, srv.Link(t))
		looked := w.link.Answered(recipestest.OpGetChildren, 2)
		watched := w.link.Answered(recipestest.OpGetData, 3)
		require.NoError(t, q.conn.Delete(other, -1))
		suite.Wait(t, looked)
		suite.Wait(t, watched)
		require.Empty(t, w.grant, "the holder was ahead still")
		require.Zero(t, w.link.Count(recipestest.OpExists), "other libraries leave no mark")
		q.release(t, w)
		q.took(w)
		q.disband(t)
	})
}

// The node may go while who waits behind it has listed it, and has yet to watch it.
func TestWhoIsNextLooksWhereTheOneAheadHasVanished(t *testing.T) {
	t.Parallel()
	for ahead := 1; ahead <= 2; ahead++ {
		for step, met := 1, true; met; step++ {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				q := newQueue(t, srv, 2)
				link := srv.Link(t)
				c := link.Client(t)
				vanish := slices.Clone(q.waiters[2-ahead:])
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
				require.Empty(t, w.grant, "the holder was ahead still")
				suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "who was deleted has come again")
				require.Empty(t, w.grant, "the holder was ahead still")
				for i := 0; met && i < len(vanish); i++ {
					v := vanish[i]
					q.requireUnwatched(t, w, q.mark(v.node)) // though its watch may have been set too late
				}
				q.disband(t)
			})
		}
	}
}

func TestWhoIsNextLooksWhenTheHolderHasChanged(t *testing.T) {
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

// What becomes of a stranger's node that has the name of a mark says nothing.
func TestWhoIsNextLooksWhenAStrangersNodeIsNoMark(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		mark := q.mark(q.waiters[0].node)
		_, err := q.conn.Create(mark, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		w := q.enter(t, srv.Link(t))
		for _, happens := range []func() error{
			func() error { _, err := q.conn.Set(mark, nil, -1); return err },
			func() error { return q.conn.Delete(mark, -1) },
		} {
			require.NoError(t, happens())
			require.Empty(t, w.grant, "the holder was ahead still")
		}
		looked := w.link.Answered(recipestest.OpGetChildren, 2)
		require.NoError(t, q.conn.Delete(q.path+"/"+q.waiters[0].node, -1))
		suite.Wait(t, looked)
		require.Empty(t, w.grant, "the holder was ahead still")
		suite.Soon(t, func() bool { return len(q.names(t)) == 3 }, "who was deleted has come again")
		q.disband(t)
	})
}

// A foreign client that makes the marker of a node which has not been released convinces no waiter.
func TestMarkerWithoutItsReleaseIsNotBelieved(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		ahead, w := q.waiters[0], q.waiters[1]
		_, err := q.conn.Multi(
			&zk.CreateRequest{Path: q.mark(ahead.node), Acl: zk.WorldACL(zk.PermAll)},
			&zk.DeleteRequest{Path: q.mark(ahead.node), Version: -1},
			&zk.SetDataRequest{Path: q.path + "/" + q.grant.Node(), Version: -1})
		require.NoError(t, err)
		suite.Wait(t, w.hears(1))
		own := w.hears(2)
		_, err = q.conn.Set(q.path+"/"+w.node, nil, -1) // an event in between
		require.NoError(t, err)
		suite.Wait(t, own)
		suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 2))
		q.quit(t, ahead)
		suite.Wait(t, w.link.Answered(recipestest.OpGetChildren, 3))
		require.Empty(t, w.grant, "the holder was ahead still")
		q.release(t, w)
		q.took(w)
		q.disband(t)
	})
}

// Waiters of one session share the watches on the node that is ahead of them. What they leave
// behind costs one request when that node has gone without its marker, and none when it was
// released.
func TestAbandonedWaitCosts(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		ahead, link := q.waiters[0], srv.Link(t)
		quitter := q.enter(t, link)
		deletes := link.Answered(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)
		q.quit(t, quitter)
		suite.Wait(t, deletes)
		if quitter.steady() {
			require.Equal(t, 5, quitter.requests(), "a node, a listing, two nodes read, one marker; and a node deleted")
		}
		again := q.start(t, link, quitter.client)
		suite.Wait(t, link.Answered(recipestest.OpGetData, 3))
		suite.Wait(t, link.Answered(recipestest.OpGetChildren, 2))
		suite.Soon(t, func() bool { return len(q.names(t)) == 3 }, "in line")
		again.node = q.names(t)[2].Node
		q.quit(t, again)
		if quitter.steady() {
			require.Equal(t, 8, quitter.requests(), "a node, a listing, its own node read")
		}
		removed := link.Answered(recipestest.OpRemoveWatches, 1)
		require.NoError(t, lineAt(q.operator, q.path).Break(suite.Lasting(t), ahead.node))
		suite.Wait(t, removed)
		q.requireUnwatched(t, quitter, q.mark(ahead.node))
		q.requireUnwatched(t, quitter, q.path+"/"+ahead.node)
		if quitter.steady() {
			require.Equal(t, 9, quitter.requests(), "a watch removed")
		}
		require.Zero(t, link.Count(recipestest.OpMulti))
		q.disband(t)
	})
}

// A watch that nobody waits for any more goes when the node does, however that ends.
func TestWatchForAMarkEndsWithItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		events int // of the end, of the marker, and what there is before
		end    func(t *testing.T, q *queue, ahead, quitter *waiter)
	}{
		"released": {2, func(t *testing.T, q *queue, ahead, _ *waiter) {
			q.release(t, ahead)
			q.took(ahead)
			resign(t, q.grant)
			q.grant = hold(t, q.operator, q.path)
		}},
		"expired": {1, func(t *testing.T, q *queue, ahead, _ *waiter) {
			q.srv.ExpireSession(suite.Session(t, ahead.client).ID())
		}},
		"changed and then deleted": {2, func(t *testing.T, q *queue, ahead, quitter *waiter) {
			watched := quitter.link.Answered(recipestest.OpGetData, quitter.link.Count(recipestest.OpGetData)+1)
			_, err := q.conn.Set(q.path+"/"+ahead.node, []byte("somebody's"), -1)
			require.NoError(t, err)
			suite.Wait(t, watched)
			require.NoError(t, q.conn.Delete(q.path+"/"+ahead.node, -1))
		}},
		"changed and deleted at once": {1, func(t *testing.T, q *queue, ahead, _ *waiter) {
			_, err := q.conn.Multi(
				&zk.SetDataRequest{Path: q.path + "/" + ahead.node, Data: []byte("somebody's"), Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + ahead.node, Version: -1})
			require.NoError(t, err)
		}},
		"deleted with its line": {1, func(t *testing.T, q *queue, ahead, quitter *waiter) {
			ahead.link.Cut() // or it would make the line again
			_, err := q.conn.Multi(
				&zk.DeleteRequest{Path: q.path + "/" + ahead.node, Version: -1},
				&zk.DeleteRequest{Path: q.path + "/" + q.grant.Node(), Version: -1},
				&zk.DeleteRequest{Path: q.path, Version: -1})
			require.NoError(t, err)
			suite.Wait(t, q.grant.Done())
			suite.Wait(t, quitter.hears(2))
			ahead.link.Heal()
			q.granted(t, ahead)
			q.took(ahead)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				q := newQueue(t, srv, 2)
				ahead, quitter := q.waiters[0], q.waiters[1]
				q.quit(t, quitter)
				suite.Wait(t, quitter.hears(1)) // of its own end
				c.end(t, q, ahead, quitter)
				suite.Wait(t, quitter.hears(1+c.events))
				if name != "released" {
					suite.Wait(t, quitter.unwatches(1))
				}
				q.requireUnwatched(t, quitter, q.mark(ahead.node))
				q.requireUnwatched(t, quitter, q.path+"/"+ahead.node)
				q.disband(t)
			})
		})
	}
}

// After a reconnect requests may go out before the watches are set again, and so may the one that
// clears one of them.
func TestWatchForAMarkIsClearedWhereverTheConnectionBreaks(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for step := 1; step < 10; step++ {
			q := newQueue(t, srv, 1)
			ahead, link := q.waiters[0], srv.Link(t)
			option, rewatch := delaying(link, recipestest.OpSetWatches)
			quitter := q.enter(t, link, option)
			q.quit(t, quitter)
			suite.Wait(t, quitter.hears(1)) // of its own end
			link.At(step, func() { link.Cut(); link.Heal() })
			require.NoError(t, q.conn.Delete(q.path+"/"+ahead.node, -1))
			time.Sleep(time.Second)
			rewatch()
			time.Sleep(time.Minute)
			q.requireUnwatched(t, quitter, q.mark(ahead.node))
			q.disband(t)
		}
	})
}

// The watch for a marker may be set when the session has heard already that the node is gone.
func TestWatchForAMarkThatIsSetTooLateIsRemoved(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 1)
		ahead, link := q.waiters[0], srv.Link(t)
		option, send := delaying(link, recipestest.OpExists)
		c := link.Client(t, option)
		watched := link.Answered(recipestest.OpGetData, 2)
		w := q.start(t, link, c)
		suite.Wait(t, watched)
		looked := link.Answered(recipestest.OpGetChildren, 2)
		q.quit(t, ahead)
		suite.Wait(t, looked)
		require.Zero(t, link.Count(recipestest.OpRemoveWatches), "there is none yet")
		suite.Soon(t, send, "the watch is set")
		suite.Wait(t, w.unwatches(1))
		require.Empty(t, w.grant, "the holder was ahead still")
		q.requireUnwatched(t, w, q.mark(ahead.node))
		q.disband(t)
	})
}

// On a server that cannot remove watches a session finds that out once. From then on it expects no
// markers, and looks.
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
					marked := link.Answered(recipestest.OpExists, markers+1)
					w := q.start(t, link, c)
					suite.Wait(t, watched)
					if i < attempts {
						suite.Wait(t, marked)
					}
					back := link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1)
					looked := link.Sent(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
					q.quit(t, q.waiters[0])
					if i < attempts {
						suite.Wait(t, back)
					}
					suite.Wait(t, looked)
					require.Empty(t, w.grant, "the holder is ahead still")
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

// An oldServer takes a request to remove watches for one that it does not know.
type oldServer struct{ net.Conn }

func (c oldServer) Write(p []byte) (int, error) {
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == uint32(recipestest.OpRemoveWatches) {
		p = bytes.Clone(p)
		binary.BigEndian.PutUint32(p[8:], 99)
	}
	return c.Conn.Write(p)
}

// Whoever is passed over hears of the end of its own node before it hears that nobody is ahead, and
// so is not next, even if that is all that it hears for a while.
func TestWhoIsPassedOverIsNotNext(t *testing.T) {
	t.Parallel()
	for step := 1; step <= 3; step++ {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, recipestest.Start(t, recipestest.WithInMemory()), 4)
			over, chosen := q.waiters[2], q.waiters[3]
			held := make(chan struct{})
			stop := over.link.At(step, func() { <-held })
			require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
			q.granted(t, chosen)
			q.took(chosen)
			synctest.Wait()
			require.False(t, stop(), "its own end, the mark, and the end of the one ahead")
			require.Empty(t, over.grant, "it was passed over")
			close(held)
			suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "all wait again")
			q.disband(t)
		})
	}
}

// Who gives up at the moment when it would be passed over is left out, and nobody else.
func TestWhoLeavesWhileItIsPassedOver(t *testing.T) {
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
				suite.Soon(t, func() bool { return len(q.names(t)) == 4 }, "who was deleted has come again")
				q.disband(t)
			})
		}
	}
}

// While there was no connection events may have been missed, and come in any order.
func TestWhoIsNextLooksAfterAReconnect(t *testing.T) {
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
					suite.Soon(t, func() bool { return len(other.grant) == 1 }, "the one that has come again first")
					q.granted(t, other)
					resign(t, q.grant)
				}
				q.waiters = []*waiter{w}
				q.grant = hold(t, q.operator, q.path)
				looked := w.link.Answered(recipestest.OpGetChildren, 3) // its place is gone, and it has come again
				w.link.Heal()
				suite.Wait(t, looked)
				require.Empty(t, w.grant, "its place was gone")
				q.release(t, w)
				q.took(w)
				q.disband(t)
			})
		})
	}
}

// Whoever was away when the one ahead released looks when it is back.
func TestWhoWasAwayLooks(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		q := newQueue(t, srv, 2)
		ahead, w := q.waiters[0], q.waiters[1]
		lists := w.link.Count(recipestest.OpGetChildren)
		w.link.Cut()
		q.release(t, ahead)
		resign(t, q.grant)
		w.link.Heal()
		q.granted(t, w)
		require.Greater(t, w.link.Count(recipestest.OpGetChildren), lists)
		suite.Wait(t, w.hears(1)) // of an end
		q.requireUnwatched(t, w, q.mark(ahead.node))
		q.waiters = nil
		q.disband(t)
	})
}

// A node that has a mark's name is not ours to delete: nobody hears of a mark then, and so whoever
// is next looks.
func TestReleaseWhereNoMarkCanBeLeft(t *testing.T) {
	stranger := func(t *testing.T, q *queue, node string) {
		_, err := q.conn.Create(q.mark(node), []byte("a stranger's"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	forbid := func(t *testing.T, q *queue, _ string) {
		_, err := q.conn.SetACL(q.path, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(t, err)
	}
	tidy := func(t *testing.T, q *queue, node string, strange bool) {
		if strange {
			data, _, err := q.conn.Get(q.mark(node))
			require.NoError(t, err, "it was not ours to delete")
			require.Equal(t, "a stranger's", string(data))
			require.NoError(t, q.conn.Delete(q.mark(node), -1))
		}
		_, err := q.conn.SetACL(q.path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
	for name, prevent := range map[string]func(t *testing.T, q *queue, node string){"stranger": stranger, "ACL": forbid} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				t.Run("Release", func(t *testing.T) {
					q := newQueue(t, srv, 1)
					ahead := q.waiters[0]
					if name == "stranger" {
						prevent(t, q, ahead.node)
					}
					w := q.enter(t, srv.Link(t))
					if name == "ACL" {
						prevent(t, q, ahead.node)
					}
					q.release(t, ahead)
					lists := w.link.Count(recipestest.OpGetChildren)
					q.release(t, w)
					require.Greater(t, w.link.Count(recipestest.OpGetChildren), lists)
					tidy(t, q, ahead.node, name == "stranger")
					q.waiters = nil
					q.disband(t)
				})
				for which := range 2 {
					t.Run("ReleaseTo", func(t *testing.T) {
						q := newQueue(t, srv, 1)
						over := q.waiters[0]
						node := []string{q.grant.Node(), over.node}[which]
						if name == "stranger" {
							prevent(t, q, node)
						}
						chosen := q.enter(t, srv.Link(t))
						if name == "ACL" {
							prevent(t, q, node)
						}
						require.NoError(t, q.grant.ResignTo(suite.Lasting(t), chosen.node))
						q.granted(t, chosen)
						q.took(chosen)
						tidy(t, q, node, name == "stranger")
						if name != "ACL" { // over has failed to come again
							suite.Soon(t, func() bool { return len(q.names(t)) == 2 }, "who was passed over has come again")
						}
						q.disband(t)
					})
				}
			})
		})
	}
}

// A release whose answer is lost has released, once.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
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

// Release gives up if the client's back-off says so. What it could not find out it does not take
// for somebody else's deed.
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

// Nor is one to a chosen contender.
func TestReleaseToSomebodyThatIsGivenUpIsNoLoss(t *testing.T) {
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

// Whatever happens at any step of a release, there is one who is granted next, and who has it
// alone.
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
				for victim := range 2 { // who releases, or who is next
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
						suite.Soon(t, func() bool { return len(second.grant)+len(third.grant) > 0 }, "somebody is next")
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
		path := srv.Root(t) + "/judged"
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
		looked := second.Answered(recipestest.OpGetData, 3)
		resign(t, holder)
		g := suite.Wait(t, next)
		suite.Wait(t, looked)
		require.Empty(t, last)
		release(t, g)
		release(t, suite.Wait(t, last))
	})
}

// A slowConn is a connection that sends requests of a kind when it is told to, as if others had
// come in between.
type slowConn struct {
	net.Conn
	op  recipestest.Op
	mu  *sync.Mutex
	due *[]func()
}

func (c *slowConn) Write(p []byte) (int, error) {
	if len(p) < 12 || binary.BigEndian.Uint32(p[8:]) != uint32(c.op) {
		return c.Conn.Write(p)
	}
	late := bytes.Clone(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.due = append(*c.due, func() { c.Conn.Write(late) })
	return len(p), nil
}

// delaying returns an option for a client whose requests of a kind are sent when send is called,
// which reports whether there were any.
func delaying(link *recipestest.Link, op recipestest.Op) (_ protocol.ConnectOption, send func() (any bool)) {
	mu, due := new(sync.Mutex), new([]func())
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			if err != nil {
				return nil, err
			}
			return &slowConn{conn, op, mu, due}, nil
		}), func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, f := range *due {
				f()
			}
			return len(*due) > 0
		}
}

// The deletion of a node that was not watched for a while says little: a conversion may have come
// before.
func TestDeletionIsNotBelievedWhereAConversionMayHaveBeenMissed(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/converted", srv.Link(t)
		g, err := rwlock.New(srv.Client(t), path).Lock(suite.Lasting(t))
		require.NoError(t, err)
		option, rewatch := delaying(link, recipestest.OpSetWatches)
		c := link.Client(t, option)
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
		suite.Soon(t, rewatch, "watches are set again")
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
