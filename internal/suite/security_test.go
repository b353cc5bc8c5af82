package suite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// as connects a client with a credential and no ACL.
func as(t *testing.T, srv *recipestest.Server, user string, more ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	return srv.Client(t, append(more, protocol.WithAuth("digest", []byte(user+":secret")))...)
}

// A client without rights has a session and another identity.
func TestClientWithoutRightsChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, root := suite.Lasting(t), srv.Root(t)
		suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
		alice, mallory := as(t, srv, "alice"), as(t, srv, "mallory")

		m, theirs := lock.New(alice, root+"/lock"), lock.New(mallory, root+"/lock")
		lease := suite.Must(t, m.Lock)
		node := lease.Node()
		q, stolen := queue.New(alice, root+"/queue"), queue.New(mallory, root+"/queue")
		id := suite.Got(q.Offer(ctx, []byte("secret")))(t)
		term := suite.Got(election.New(alice, root+"/election").Campaign(ctx, []byte("alice")))(t)
		member := suite.Got(group.New(alice, root+"/group").Join(ctx, "a", nil))(t)
		suite.CatchUp(t, mallory)

		path := suite.Session(t, mallory).Path(root + "/lock/" + node)
		for attempt, err := range map[string]error{
			"break":    theirs.Break(ctx, node),
			"revoke":   theirs.Revoke(ctx, node),
			"enter":    suite.Err(theirs.Lock(ctx)),
			"try":      suite.Err(theirs.TryLock(ctx)),
			"look":     suite.Err(theirs.Contenders(ctx)),
			"delete":   suite.Session(t, mallory).Conn().Delete(path, -1),
			"offer":    suite.Err(stolen.Offer(ctx, nil)),
			"poll":     suite.Err(stolen.Poll(ctx)),
			"reserve":  suite.Err(stolen.TryReserve(ctx)),
			"peek":     suite.Err(stolen.Peek(ctx)),
			"remove":   stolen.Remove(ctx, id),
			"campaign": suite.Err(election.New(mallory, root+"/election").Campaign(ctx, nil)),
			"depose":   election.New(mallory, root+"/election").Break(ctx, term.Node()),
			"leader":   suite.Err(election.New(mallory, root+"/election").Leader(ctx)),
			"join":     suite.Err(group.New(mallory, root+"/group").Join(ctx, "b", nil)),
			"members":  suite.Err(group.New(mallory, root+"/group").Members(ctx)),
		} {
			require.ErrorIs(t, err, zk.ErrNoAuth, attempt)
		}

		require.NoError(t, lease.Err())
		require.NoError(t, term.Err())
		require.True(t, member.Joined())
		require.Equal(t, "secret", string(suite.Must(t, q.Take)))
		require.NoError(t, lease.Unlock(ctx))
		require.NoError(t, term.Resign(ctx))
		require.NoError(t, member.Leave(ctx))
	})
}

// A client that may create children of the path, and nothing else, can be in the way.
func TestClientThatMayCreateContendersIsInTheWay(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, root := suite.Lasting(t), srv.Root(t)
		shared := protocol.WithACLFor(func(path string) []zk.ACL {
			if path == root+"/lock" {
				return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermCreate|zk.PermRead)...)
			}
			return nil
		})
		suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
		alice, mallory := as(t, srv, "alice", shared), as(t, srv, "mallory")
		m := lock.New(alice, root+"/lock")
		require.NoError(t, m.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))
		lease := suite.Must(t, m.Lock) // whose number is not the first one
		suite.CatchUp(t, mallory)

		// Mallory is in line, before and behind the holder, and ends nothing that is held.
		s := suite.Session(t, mallory)
		before := root + "/lock/mallory-lock-0000000000"
		require.NoError(t, s.Create(ctx, before, nil, zk.FlagEphemeral))
		require.ErrorIs(t, lock.New(mallory, root+"/lock").Break(ctx, lease.Node()), zk.ErrNoAuth)
		require.NoError(t, lease.Err())
		require.ErrorIs(t, suite.Err(m.TryLock(ctx)), lock.ErrLocked)
		require.NoError(t, lease.Unlock(ctx))

		// The lock is free once an operator breaks what is in the way.
		intruder := root + "/lock/mallory-lock-2000000000"
		require.NoError(t, s.Create(ctx, intruder, nil, zk.FlagEphemeral))
		suite.CatchUp(t, alice)
		require.ErrorIs(t, suite.Err(m.TryLock(ctx)), lock.ErrLocked)
		require.NoError(t, m.Break(ctx, intruder[len(root+"/lock/"):]))
		require.NoError(t, m.Break(ctx, before[len(root+"/lock/"):]))
		require.NoError(t, m.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))
	})
}

// The right to delete below a path is that of an operator: holders are told of their loss.
func TestClientThatMayDeleteBreaksWhatIsHeld(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, root := suite.Lasting(t), srv.Root(t)
		shared := protocol.WithACLFor(func(path string) []zk.ACL {
			return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead|zk.PermDelete)...)
		})
		suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
		alice, mallory := as(t, srv, "alice", shared), as(t, srv, "mallory")

		m := lock.New(alice, root+"/lock")
		lease := suite.Must(t, m.Lock)
		suite.CatchUp(t, mallory)
		require.NoError(t, lock.New(mallory, root+"/lock").Break(ctx, lease.Node()))
		suite.Wait(t, lease.Done())
		require.ErrorIs(t, lease.Err(), protocol.ErrLost)
		require.ErrorIs(t, lease.Err(), protocol.ErrNodeDeleted)
		require.NoError(t, m.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))

		q := queue.New(alice, root+"/queue")
		id := suite.Got(q.Offer(ctx, []byte("a")))(t)
		suite.CatchUp(t, mallory)
		require.NoError(t, suite.Session(t, mallory).Delete(ctx, root+"/queue/"+id, -1))
		suite.CatchUp(t, alice)
		require.ErrorIs(t, suite.Err(q.Poll(ctx)), queue.ErrEmpty)
	})
}

// The right to create below a path is the right to take part. What comes of a forged marker, a
// fencing token tells apart.
func TestForgedMarkerLeavesTokensInOrder(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, root := suite.Lasting(t), srv.Root(t)
		held := suite.Must(t, lock.New(srv.Client(t), root).Lock)
		leaving, leave := context.WithCancel(ctx)
		var left suite.Group
		middle, last := lock.New(srv.Client(t), root), lock.New(srv.Client(t), root)
		left.Go(func() error { return suite.Err(middle.Lock(leaving)) })
		time.Sleep(time.Second)
		granted := suite.Later(func() *lock.Lease {
			l := suite.Got(last.Lock(ctx))(t)
			return l
		})
		time.Sleep(time.Second)

		mallory := srv.Client(t)
		line := suite.Await(t, 3, last.Contenders)
		forged := root + "/" + line[1].Node + recipe.MarkerSuffix
		s := suite.Session(t, mallory)
		require.NoError(t, s.Create(ctx, forged, nil, zk.FlagEphemeral))
		leave()
		require.ErrorIs(t, left.Wait(), context.Canceled)
		require.NoError(t, s.Delete(ctx, forged, -1))
		require.NoError(t, held.Unlock(ctx))
		next := suite.Wait(t, granted)
		require.Greater(t, next.Token(), held.Token())
		require.NoError(t, next.Unlock(ctx))
	})
}

// Names and data of nodes that no recipe has written are left alone.
func TestGarbageBesideTheNodesOfARecipe(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c, conn := srv.Client(t), srv.Conn(t)
	rapid.Check(t, func(rt *rapid.T) {
		root := srv.Root(t)
		garbage := rapid.SliceOfN(rapid.Byte(), 0, 300)
		name := rapid.OneOf(
			rapid.StringOfN(rapid.RuneFrom([]rune("ab-_.:%é\u202e0123456789x")), 1, 40, -1),
			rapid.Map(rapid.Int32(), func(n int32) string { return fmt.Sprintf("%016x-%08x-%s%010d", n, n, "item-", n) }),
			rapid.SampledFrom([]string{
				"lock", "lock-", "lock-x", "_c_-lock-1", "qn-", "qn-x", "-lock-99999999999", "read-0000000001x", "x-1-",
				"zkrecipes-", "item-", "permit-", "keep", "key-run-", "-passed", "0000000000000000-00000000-",
			}))
		for range rapid.IntRange(1, 8).Draw(rt, "nodes") {
			for _, dir := range []string{"/lock", "/rwlock", "/semaphore", "/queue", "/group", "/election"} {
				if _, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
					require.ErrorIs(rt, err, zk.ErrNodeExists)
				}
				conn.Create(root+dir, garbage.Draw(rt, "parent"), 0, zk.WorldACL(zk.PermAll))
				conn.Create(root+dir+"/"+name.Draw(rt, "name"), garbage.Draw(rt, "data"), 0, zk.WorldACL(zk.PermAll))
			}
		}

		// Each call ends: a name may well be a contender's, and then it is in the way.
		ctx := suite.Within(t, suite.Limit)
		lock.New(c, root+"/lock").TryDo(ctx, func(context.Context, *lock.Lease) error { return nil })
		lock.New(c, root+"/lock").Contenders(ctx)
		if l, err := rwlock.New(c, root+"/rwlock").TryLock(ctx); err == nil {
			l.Unlock(ctx)
		}
		semaphore.New(c, root+"/semaphore", 2).TryDo(ctx, func(context.Context, *semaphore.Permit) error { return nil })
		election.New(c, root+"/election").Leader(ctx)
		election.New(c, root+"/election").Candidates(ctx)
		group.New(c, root+"/group").Members(ctx)
		q := queue.New(c, root+"/queue")
		q.Offer(ctx, []byte("x"))
		q.Poll(ctx)
		if it, err := q.TryReserve(ctx); err == nil {
			it.Nack(ctx)
		}
		q.Len(ctx)
		require.NoError(rt, ctx.Err(), "each call has ended")
		require.NoError(rt, suite.Session(t, c).Err(), "the session lives")
	})
}
