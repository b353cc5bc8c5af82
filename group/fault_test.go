package group_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestFaultAtEachStep(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					return liveUnder(t, srv, fmt.Sprintf("%s/%s/%d", root, f.Name, step), f, step)
				})
			})
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for _, f := range suite.SlowFaults(10 * time.Second) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					met = liveUnder(t, srv, srv.Root(t)+"/g", f, step)
				})
				return met
			})
		})
	}
}

// liveUnder joins, sets, watches and leaves with a fault at one of the packets.
func liveUnder(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, step int) (met bool) {
	ctx := suite.Within(t, 10*time.Minute)
	link, sound := srv.Link(t), srv.Client(t)
	victim := link.Client(t)
	defer suite.Close(t, sound)
	session := suite.Session(t, victim).ID()
	g, other := group.New(victim, path), group.New(sound, path)
	first, err := other.Join(ctx, "first", nil)
	require.NoError(t, err)

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	m, err := g.Join(ctx, "a", []byte("old"))
	require.NoError(t, err, "step %d", step)
	require.NoError(t, m.Set(ctx, []byte("new")), "step %d", step)
	peers, err := g.Await(ctx, 2)
	require.NoError(t, err, "step %d", step)
	require.Equal(t, []string{"first", "a"}, names(peers), "step %d", step)
	require.NoError(t, first.Leave(ctx))
	for peers, err := range g.Watch(ctx) {
		require.NoError(t, err, "step %d", step)
		if len(peers) == 1 && peers[0].Name == "a" {
			break
		}
	}
	joined(t, m, true)
	peers, err = other.Members(ctx)
	require.NoError(t, err)
	if len(peers) > 0 { // or else the session has just ended
		require.Equal(t, []string{"a=new"}, described(peers), "step %d", step)
	}
	require.NoError(t, m.Leave(ctx), "step %d", step)
	met = over()
	link.Heal()

	again, err := other.Join(ctx, "a", nil)
	require.NoError(t, err, "step %d", step)
	require.NoError(t, again.Leave(ctx))
	suite.Close(t, victim)
	require.Empty(t, suite.Children(t, sound, path), "step %d", step)
	return met
}

// A Join whose ctx ends has a node only if it returns a member, whatever becomes of the answer.
func TestJoinThatIsGivenUpAtAnyStepLeavesNothing(t *testing.T) {
	for _, created := range []bool{false, true} {
		t.Run(fmt.Sprintf("created=%t", created), func(t *testing.T) {
			suite.Sweep(t, func(step int) bool { return giveUpJoin(t, created, step) })
		})
	}
}

// giveUpJoin gives up a Join at one of the packets, whose group was created before or not.
func giveUpJoin(t *testing.T, created bool, step int) (met bool) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path, link := srv.Root(t)+"/g", srv.Link(t)
		c := link.Client(t)
		g := group.New(c, path)
		suite.Session(t, c)
		if created {
			suite.Keep(t, srv.Client(t), path)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := suite.At(link, step, func() { cancel(); link.Cut(); time.AfterFunc(time.Second, link.Heal) })
		m, err := g.Join(ctx, "a", nil)
		met = over()
		cancel()
		if err == nil {
			joined(t, m, true)
			leave(t, m)
		} else {
			require.ErrorIs(t, err, context.Canceled, "step %d", step)
		}
		time.Sleep(time.Minute)
		require.Empty(t, suite.Children(t, srv.Client(t), path), "step %d", step)
		leave(t, join(t, g, "a", ""))
	})
	return met
}

// The answer to the deletion is lost, and another process takes the name at that moment. The
// deletion is not repeated.
func TestLeaveDoesNotDeleteTheNextMemberOfTheName(t *testing.T) {
	leaveBesideNext(t, nil)
}

// The next member belongs to another identity, and a server like 3.9 hides even the Stat of its
// node.
func TestLeaveDoesNotDeleteTheNextHiddenMemberOfTheName(t *testing.T) {
	leaveBesideNext(t, []protocol.ConnectOption{protocol.WithAuth("digest", []byte("alice:secret"))}, like39)
}

// leaveBesideNext has a member leave that loses an answer, while another client with these options
// takes the name.
func leaveBesideNext(t *testing.T, opts []protocol.ConnectOption, server ...recipestest.Option) {
	hit := false
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, append(server, recipestest.WithInMemory())...)
			path, link := srv.Root(t)+"/g", srv.Link(t)
			other := group.New(srv.Client(t, opts...), path)
			m := join(t, group.New(link.Client(t), path), "a", "")
			time.Sleep(time.Second) // the node is watched
			over := suite.At(link, step, func() { link.StallReplies() })
			left := suite.Later(func() error { return m.Leave(t.Context()) })
			time.Sleep(50 * time.Millisecond)
			next, err := other.Join(t.Context(), "a", nil)
			met = over()
			if err == nil && met {
				hit = true
			} else if err != nil {
				require.ErrorIs(t, err, group.ErrNameTaken)
			}
			link.Cut()
			link.Heal()
			require.NoError(t, <-left, "step %d", step)
			time.Sleep(time.Minute)
			if next != nil {
				require.True(t, next.Joined(), "step %d", step)
				select {
				case <-next.Changes():
					require.Fail(t, "deleted", "step %d", step)
				default:
				}
				leave(t, next)
			}
		})
		return met
	})
	require.True(t, hit, "no answer to a deletion was lost")
}

// The loss of a session while the node may have been created is not another member.
func TestJoinWaitsForItsOwnLostSession(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/g", srv.Link(t)
			c := link.Client(t)
			suite.Session(t, c)
			over := suite.At(link, step, func() {
				link.StallReplies()
				time.AfterFunc(20*time.Second, link.Heal)
			})
			m, err := group.New(c, path).Join(suite.Within(t, 5*time.Minute), "a", nil)
			require.NoError(t, err, "step %d", step)
			met = over()
			joined(t, m, true)
			require.Len(t, members(t, group.New(srv.Client(t), path)), 1)
			leave(t, m)
		})
		return met
	})
}

// What each call costs, as the package documentation has it.
func TestCosts(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		c, other := link.Client(t), srv.Client(t)
		g := group.New(c, path)
		first := join(t, group.New(other, path), "first", "")
		suite.CatchUp(t, c)
		requests := func(f func()) int {
			synctest.Wait()
			before := link.Count(recipestest.OpAny)
			f()
			synctest.Wait()
			return link.Count(recipestest.OpAny) - before
		}

		var m *group.Member
		require.Equal(t, 2, requests(func() { m = join(t, g, "a", "") }))
		require.Equal(t, 1, requests(func() { time.Sleep(30 * time.Millisecond) }), "the watch")
		require.Equal(t, 3, requests(func() { require.NoError(t, m.Set(t.Context(), nil)) }), "with the watch")
		require.Equal(t, 4, requests(func() { members(t, g) }))
		require.Equal(t, 1, requests(func() { leave(t, m) }))

		// A watcher costs pings, whatever the data of the members does.
		var next func() []group.Peer
		require.Equal(t, 3, requests(func() { next = watch(t, g); until(t, next, "first=") }))
		require.Zero(t, requests(func() {
			for i := range 10 {
				require.NoError(t, first.Set(t.Context(), fmt.Append(nil, i)))
			}
			time.Sleep(59 * time.Second)
		}))
		require.Equal(t, 1, requests(func() { time.Sleep(time.Minute) }), "a watch is checked once a minute")

		var more *group.Member
		require.Equal(t, 2, requests(func() {
			more = join(t, group.New(other, path), "more", "")
			until(t, next, "first=", "more=")
		}))
		require.Equal(t, 1, requests(func() { leave(t, more); until(t, next, "first=") }))

		// Another loop of the session shares the listings, and nothing else.
		also := watch(t, g)
		until(t, also, "first=9")
		require.Equal(t, 2, requests(func() { time.Sleep(time.Minute) }))
		require.Equal(t, 3, requests(func() {
			more = join(t, group.New(other, path), "more", "")
			until(t, next, "first=", "more=")
			until(t, also, "first=9", "more=")
		}))
		leave(t, more)
		until(t, next, "first=")
		until(t, also, "first=9")
		leave(t, first)
		until(t, next)
		until(t, also)
	})
}

// At rest a member costs what any holder does.
func TestMemberAtRestCostsWhatAHolderDoes(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		g := group.New(c, srv.Root(t)+"/g")
		var all []*group.Member
		for i := range 20 {
			all = append(all, join(t, g, fmt.Sprint(i), ""))
		}
		time.Sleep(time.Minute)
		before := link.Count(recipestest.OpAny)
		const timeouts = 10
		time.Sleep(timeouts * suite.Session(t, c).Timeout())
		require.LessOrEqual(t, link.Count(recipestest.OpAny)-before, timeouts*16)
		leave(t, all...)
	})
}

// A member whose node cannot be deleted tells so, and goes on trying.
func TestLeaveThatIsRefusedSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(c, path)
		m, other := join(t, g, "a", ""), join(t, g, "other", "")
		conn := suite.Session(t, srv.Client(t)).Conn()
		allow := func(perms int32) {
			_, err := conn.SetACL(path, zk.WorldACL(perms), -1)
			require.NoError(t, err)
		}
		allow(zk.PermRead | zk.PermAdmin)
		err := m.Leave(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.False(t, errors.Is(err, protocol.ErrLost))
		_, err = g.Join(t.Context(), "a", nil)
		require.ErrorIs(t, err, group.ErrNameTaken, "the node is there")
		for range 20 {
			require.ErrorIs(t, m.Set(t.Context(), nil), protocol.ErrReleased)
		}
		allow(zk.PermAll)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"other="}, members(t, g))
		leave(t, join(t, g, "a", ""), other)
	})
}
