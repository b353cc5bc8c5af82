package protocol_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A waiter is a contender that is known to be asleep.
type waiter struct {
	link   *recipestest.Link
	client *protocol.Client
	cancel context.CancelFunc
	grant  <-chan *protocol.Grant
}

func enter(t *testing.T, srv *recipestest.Server, path string) waiter {
	t.Helper()
	link := srv.Link(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := waiter{link: link, client: link.Client(t), cancel: cancel}
	w.grant = later(func() *protocol.Grant {
		g, _ := line(w.client, path).Enter(ctx, bid)
		return g
	})
	wait(t, link.Answered(recipestest.OpGetData, 2))
	return w
}

// requireGranted waits for the grant of one that was woken, and tells how often it has listed the line for that.
func (w waiter) granted(t *testing.T) (*protocol.Grant, int) {
	t.Helper()
	g := wait(t, w.grant)
	require.NotNil(t, g)
	return g, w.link.Count(recipestest.OpGetChildren) - 1
}

func release(t *testing.T, g *protocol.Grant) {
	t.Helper()
	require.NoError(t, protocol.Release(lasting(t), g))
}

func TestWhoIsNextNeedsNoListing(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/marked"
		g := hold(t, srv.Client(t), path)
		waiters := make([]waiter, 5)
		for i := range waiters {
			waiters[i] = enter(t, srv, path)
		}
		marked := true
		for i, w := range waiters {
			last, read := g.Token(), w.link.Answered(recipestest.OpGetData, 3)
			release(t, g)
			next, listings := w.granted(t)
			// A lost connection leaves doubt, and who has looked knows too little to leave a mark for the next.
			if marked && w.link.Count(recipestest.OpConnect) == 1 {
				require.Zero(t, listings, "of contender %d", i)
			}
			require.Greater(t, next.Token(), last)
			marked = listings == 0
			if marked {
				wait(t, read) // the mark, and what it takes to leave one
			}
			g = next
		}
		release(t, g)
	})
}

// What the line's node says must not be believed where it says nothing about those ahead.
func TestWhoIsNextLooksWhereNoMarkTellsThatAllAreGone(t *testing.T) {
	passed := func(incarnation int64, number int) []byte {
		return fmt.Appendf(nil, "passed %016x %010d", incarnation, number)
	}
	for name, sign := range map[string]func(born int64) []byte{
		"no mark":                     func(int64) []byte { return nil },
		"somebody's data":             func(int64) []byte { return []byte("somebody's") },
		"a mark that is too old":      func(born int64) []byte { return passed(born, 0) },
		"another incarnation's mark":  func(born int64) []byte { return passed(born-1, 99) },
		"data as long as a mark":      func(int64) []byte { return []byte("passed by a stranger in the night!") },
		"a mark with something added": func(born int64) []byte { return append(passed(born, 99), ' ') },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, srv *recipestest.Server) {
				path := srv.Root(t) + "/unmarked"
				stranger := srv.Client(t)
				g := hold(t, srv.Client(t), path)
				quitter, w := enter(t, srv, path), enter(t, srv, path)
				conn := session(t, stranger).Conn()
				_, stat, err := conn.Exists(path)
				require.NoError(t, err)
				data := sign(stat.Czxid)
				_, err = conn.Set(path, data, -1)
				require.NoError(t, err)
				// No contender, but path would be gone without it once everybody has left.
				_, err = conn.Create(path+"/README", nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)

				looked := w.link.Answered(recipestest.OpGetChildren, 2)
				watched := w.link.Answered(recipestest.OpGetData, 4)
				quitter.cancel()
				require.Nil(t, wait(t, quitter.grant))
				wait(t, looked)
				wait(t, watched)
				require.Empty(t, w.grant, "somebody was ahead still")
				release(t, g)
				next, _ := w.granted(t)
				release(t, next)
				got, _, err := conn.Get(path)
				require.NoError(t, err)
				if len(data) > 0 && name[:2] != "a " && name[:3] != "ano" {
					require.Equal(t, string(data), string(got), "it was not ours to replace")
				}
			})
		})
	}
}

func TestWhoIsNextLooksBehindAnotherLibrary(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/mixed"
		g := hold(t, srv.Client(t), path)
		conn := session(t, srv.Client(t)).Conn()
		other, err := conn.Create(path+"/_c_0-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		w := enter(t, srv, path)
		looked := w.link.Answered(recipestest.OpGetChildren, 2)
		require.NoError(t, conn.Delete(other, -1))
		wait(t, looked)
		require.Empty(t, w.grant, "the holder was ahead still")
		release(t, g)
		next, _ := w.granted(t)
		release(t, next)
	})
}

// A contender whose own node went in the same breath as the one ahead is not next.
func TestWhoIsPassedOverIsNotNext(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/passed"
		c := srv.Client(t)
		g := hold(t, c, path)
		var over []waiter
		for range 3 {
			over = append(over, enter(t, srv, path))
		}
		chosen := enter(t, srv, path)
		standings, err := line(c, path).Standings(lasting(t))
		require.NoError(t, err)
		require.NoError(t, line(c, path).ReleaseTo(lasting(t), g, standings[4].Name.Node))
		next, _ := chosen.granted(t)
		for _, w := range over {
			require.Empty(t, w.grant)
		}
		release(t, next)
		for range over {
			var g *protocol.Grant
			select {
			case g = <-over[0].grant:
			case g = <-over[1].grant:
			case g = <-over[2].grant:
			case <-lasting(t).Done():
			}
			require.NotNil(t, g)
			require.Greater(t, g.Token(), next.Token())
			next = g
			release(t, next)
		}
	})
}

// While there was no connection events may have been missed, and come in any order.
func TestWhoIsNextLooksAfterAReconnect(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/again"
		c := srv.Client(t)
		g := hold(t, c, path)
		w := enter(t, srv, path)
		standings, err := line(c, path).Standings(lasting(t))
		require.NoError(t, err)
		w.link.Cut()
		for _, s := range standings {
			require.NoError(t, line(c, path).Break(lasting(t), s.Name.Node))
		}
		_ = g
		other := hold(t, c, path)
		looked := w.link.Answered(recipestest.OpGetChildren, 3) // its place is gone, and it has come again
		w.link.Heal()
		wait(t, looked)
		require.Empty(t, w.grant, "its place was gone")
		release(t, other)
		next, _ := w.granted(t)
		require.Greater(t, next.Token(), other.Token())
		release(t, next)
	})
}
