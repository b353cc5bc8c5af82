package survey_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestMain(m *testing.M) { suite.Main(m) }

// client returns a client that the test's end closes with all that it holds.
func client(t *testing.T, srv *recipestest.Server, options ...protocol.ConnectOption) *protocol.Client {
	c := srv.Client(t, options...)
	t.Cleanup(func() { c.Close() })
	return c
}

func look(t *testing.T, c *protocol.Client, path string) *survey.Place {
	t.Helper()
	p, err := survey.Look(suite.Lasting(t), c, path, survey.Limits{})
	require.NoError(t, err)
	return p
}

// lookFor looks until a place has so many contenders.
func lookFor(t *testing.T, c *protocol.Client, path string, n int) (p *survey.Place) {
	t.Helper()
	suite.Soon(t, func() bool { p = look(t, c, path); return len(p.Contenders) == n }, "contenders")
	return p
}

func states(p *survey.Place) (all []survey.State) {
	for _, c := range p.Contenders {
		all = append(all, c.State)
	}
	return all
}

// start runs a call that blocks until the test ends.
func start(t *testing.T, call func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := suite.Later(func() struct{} { call(ctx); return struct{}{} })
	t.Cleanup(func() { cancel(); suite.Wait(t, done) })
}

func TestLockShowsHolderAndWaiters(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lock", client(t, srv)
		data := []byte(`{"host":"a.example","pid":7,"program":"backup","more":1}`)
		lease, err := lock.New(c, path, lock.WithData(data)).Lock(t.Context())
		require.NoError(t, err)
		waiter := client(t, srv)
		start(t, func(ctx context.Context) { lock.New(waiter, path).Lock(ctx) })

		p := lookFor(t, c, path, 2)
		require.Equal(t, survey.Lock, p.Recipe)
		require.Equal(t, []survey.State{survey.Holds, survey.Waits}, states(p))
		require.Equal(t, 1, p.Holders())
		holder := p.Contenders[0]
		require.Equal(t, lease.Node(), holder.Node)
		require.Equal(t, lease.Token(), holder.Token)
		require.Equal(t, suite.Session(t, c).ID(), holder.Session)
		require.Equal(t, survey.Ours, holder.Library)
		require.Equal(t, survey.Owner{Host: "a.example", PID: 7, Program: "backup"}, holder.Owner)
		require.Equal(t, data, holder.Data)
		require.Empty(t, holder.Orphan)
		require.Equal(t, suite.Session(t, waiter).ID(), p.Contenders[1].Session)
		require.False(t, p.Contenders[1].Since.Before(holder.Since))
		require.Same(t, &p.Contenders[1], p.Find(p.Contenders[1].Node))
		require.Nil(t, p.Find("lock-0000000000"))
	})
}

func TestLockThatMayBeUnusedLingers(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lingers", client(t, srv)
		m := lock.New(c, path, lock.WithLinger(time.Hour))
		lease, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, "lingers", lookFor(t, c, path, 1).Contenders[0].Mode)
		waiter := client(t, srv)
		start(t, func(ctx context.Context) { lock.New(waiter, path).Lock(ctx) })
		require.Empty(t, lookFor(t, c, path, 2).Contenders[0].Mode, "it is in use")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestReadersHoldTogetherUpToTheFirstWriter(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/rw", client(t, srv)
		for _, spelling := range []rwlock.Spelling{rwlock.Native, rwlock.Curator} {
			_, err := rwlock.New(c, path, rwlock.WithSpelling(spelling)).RLock(t.Context())
			require.NoError(t, err)
		}
		start(t, func(ctx context.Context) { rwlock.New(c, path).Lock(ctx) })
		lookFor(t, c, path, 3)
		start(t, func(ctx context.Context) { rwlock.New(c, path).RLock(ctx) })

		p := lookFor(t, c, path, 4)
		require.Equal(t, survey.RWLock, p.Recipe)
		require.Equal(t, []survey.State{survey.Holds, survey.Holds, survey.Waits, survey.Waits}, states(p))
		var modes []string
		for _, c := range p.Contenders {
			modes = append(modes, c.Mode)
		}
		require.Equal(t, []string{"read", "read", "write", "read"}, modes)
	})
}

func TestSemaphoreShowsItsPermits(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/sem", client(t, srv)
		s := semaphore.New(c, path, 2)
		for range 2 {
			_, err := s.Acquire(t.Context())
			require.NoError(t, err)
		}
		start(t, func(ctx context.Context) { s.Acquire(ctx) })

		p := lookFor(t, c, path, 3)
		require.Equal(t, survey.Semaphore, p.Recipe)
		require.Equal(t, 2, p.Permits)
		require.Equal(t, []survey.State{survey.Holds, survey.Holds, survey.Waits}, states(p))
		require.Empty(t, p.Notes)

		require.NoError(t, s.Resize(t.Context(), 3))
		p = lookFor(t, c, path, 3)
		require.Equal(t, 3, p.Permits)
		require.Equal(t, 3, p.Holders())
		require.Empty(t, p.Notes)
	})
}

func TestOnceShowsWhichKeysRun(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", client(t, srv)
		o := once.New(c, path)
		_, err := o.Do(t.Context(), "a", func(context.Context, *once.Run) error { return nil })
		require.NoError(t, err)
		require.Equal(t, survey.Once, look(t, c, path).Recipe)

		run := func(ctx context.Context, _ *once.Run) error { <-ctx.Done(); return ctx.Err() }
		for i, key := range []string{"b", "b", "c"} {
			start(t, func(ctx context.Context) { o.Do(ctx, key, run) })
			lookFor(t, c, path, i+1)
		}
		p := look(t, c, path)
		require.Equal(t, 1, p.Done)
		require.Equal(t, []survey.State{survey.Holds, survey.Holds, survey.Waits}, states(p))
		require.Equal(t, "b", p.Contenders[0].Mode)
		require.Equal(t, "c", p.Contenders[1].Mode)
		require.Empty(t, p.Unknown)
		require.Empty(t, p.Below)
	})
}

func TestQueueShowsLengthReservationsAndConsumers(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/queue", client(t, srv)
		q := queue.New(c, path)
		for _, element := range []string{"a", "b"} {
			_, err := q.Offer(t.Context(), []byte(element))
			require.NoError(t, err)
		}
		item, err := q.Reserve(t.Context())
		require.NoError(t, err)

		p := look(t, c, path)
		require.Equal(t, survey.Queue, p.Recipe)
		require.Equal(t, 2, p.Entries.Length)
		require.Equal(t, 1, p.Entries.Reserved)
		require.Equal(t, 2, p.Entries.Looked)
		require.WithinDuration(t, time.Now(), p.Entries.Oldest, suite.Limit)
		require.Equal(t, item.ID(), p.Contenders[0].Node)
		require.Equal(t, suite.Session(t, c).ID(), p.Contenders[0].Session)

		require.NoError(t, item.Ack(t.Context()))
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		start(t, func(ctx context.Context) { q.Take(ctx) })
		p = lookFor(t, c, path, 1)
		require.Equal(t, survey.Queue, p.Recipe)
		require.Zero(t, p.Entries.Length)
		require.Equal(t, []survey.State{survey.Waits}, states(p))
	})
}

// A tree that was copied has persistent nodes of consumers that are nowhere.
func TestReservationsThatNobodyStandsBehindAreOrphans(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		q, s := queue.New(c, root+"/queue"), suite.Session(t, c)
		for range 2 {
			_, err := q.Offer(t.Context(), []byte("element"))
			require.NoError(t, err)
			_, err = q.Reserve(t.Context())
			require.NoError(t, err)
		}
		for _, contender := range look(t, c, root+"/queue").Contenders {
			require.Empty(t, contender.Orphan)
		}

		var copyTree func(from, to string)
		copyTree = func(from, to string) {
			data, _, err := s.Get(t.Context(), from)
			require.NoError(t, err)
			require.NoError(t, s.Create(t.Context(), to, data, 0))
			children, _, err := s.Children(t.Context(), from)
			require.NoError(t, err)
			for _, child := range children {
				copyTree(from+"/"+child, to+"/"+child)
			}
		}
		copyTree(root+"/queue", root+"/copy")
		p := look(t, c, root+"/copy")
		require.Equal(t, []survey.State{survey.Holds, survey.Holds, survey.Member}, states(p))
		for _, contender := range p.Contenders {
			require.Contains(t, contender.Orphan, "not ephemeral")
		}

		// Without the node of its consumer, the next consumer has what was reserved.
		require.NoError(t, s.Delete(t.Context(), root+"/copy/"+p.Contenders[2].Node, -1))
		p = look(t, c, root+"/copy")
		require.Equal(t, []survey.State{survey.Holds, survey.Holds}, states(p))
		require.Contains(t, p.Contenders[0].Orphan, "has gone")
		_, err := queue.New(c, root+"/copy").Take(suite.Lasting(t))
		require.NoError(t, err)
	})
}

func TestBarriersAreShown(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		lease, err := lock.New(c, root+"/used").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		require.Contains(t, []survey.Recipe{survey.Empty, survey.Missing}, look(t, c, root+"/used").Recipe, "servers remove it some time")

		require.NoError(t, barrier.New(c, root+"/b/set").Set(t.Context()))
		require.Equal(t, survey.Leaf, look(t, c, root+"/b/set").Recipe)
		require.Equal(t, survey.Missing, look(t, c, root+"/b/open").Recipe)

		require.NoError(t, barrier.New(c, root+"/b/falls", barrier.WithEphemeral()).Set(t.Context()))
		p := look(t, c, root+"/b")
		require.Equal(t, survey.Directory, p.Recipe)
		require.Len(t, p.Below, 2)
		require.Equal(t, survey.Barrier, p.Below[0].Recipe)
		require.Equal(t, survey.Leaf, p.Below[1].Recipe)
		require.Equal(t, survey.Barrier, look(t, c, root+"/b/falls").Recipe)
	})
}

func TestDoubleBarrierShowsWhoIsMissing(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/double", client(t, srv)
		b := doublebarrier.New(c, path, 2)
		first := make(chan *doublebarrier.Entry, 1)
		start(t, func(ctx context.Context) { e, _ := b.Enter(ctx); first <- e })
		p := lookFor(t, c, path, 1)
		require.Equal(t, survey.DoubleBarrier, p.Recipe)
		require.Equal(t, 2, p.Permits)
		require.Equal(t, []survey.State{survey.Waits}, states(p))

		second, err := b.Enter(t.Context())
		require.NoError(t, err)
		require.NotNil(t, suite.Wait(t, first))
		p = look(t, c, path)
		require.Equal(t, []survey.State{survey.Inside, survey.Inside}, states(p))
		require.Equal(t, "process/"+second.Node(), p.Find("process/"+second.Node()).Node)
		require.Empty(t, p.Below)
		require.Empty(t, p.Unknown)
	})
}

func TestGroupShowsMembersInOrder(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/group", client(t, srv)
		for _, name := range []string{"b", "a"} {
			_, err := group.New(c, path).Join(t.Context(), name, []byte("10.0.0.7"))
			require.NoError(t, err)
		}
		p := look(t, c, path)
		require.Equal(t, survey.Group, p.Recipe)
		require.Equal(t, []survey.State{survey.Member, survey.Member}, states(p))
		require.Equal(t, "b", p.Contenders[0].Node)
		require.Equal(t, "10.0.0.7", p.Contenders[0].Owner.Host)
	})
}

func TestOrphansAndUnknownNodesAreMarked(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lock", client(t, srv)
		_, err := lock.New(c, path).Lock(t.Context())
		require.NoError(t, err)

		s := suite.Session(t, c)
		create := func(node string, flags int32) string {
			created, err := s.Conn().Create(s.Path(path+"/"+node), nil, flags, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			return created[len(s.Path(path))+1:]
		}
		const guid = "_c_0123456789abcdef0123456789abcdef-lock-"
		lasting := create("_c_ffffffffffffffffffffffffffffffff-lock-", zk.FlagSequence)
		create(guid, zk.FlagEphemeralSequential)
		second := create(guid, zk.FlagEphemeralSequential)
		forged := create("00000000000000aa-0000000b-lock-", zk.FlagEphemeralSequential)
		create("README", 0)
		create("me", zk.FlagEphemeral)
		create("below", 0)
		create("below/lock-", zk.FlagEphemeralSequential)

		p := look(t, c, path)
		require.Equal(t, survey.Lock, p.Recipe)
		require.Len(t, p.Contenders, 5)
		require.Contains(t, p.Find(lasting).Orphan, "not ephemeral")
		require.Contains(t, p.Find(second).Orphan, "second node")
		require.Contains(t, p.Find(forged).Orphan, "0xaa")
		require.Equal(t, survey.ZKLock, p.Find(second).Library)
		require.Len(t, p.Unknown, 2)
		require.Equal(t, "me", p.Unknown[0].Node)
		require.True(t, p.Unknown[0].Ephemeral)
		require.Equal(t, "README", p.Unknown[1].Node)
		require.Len(t, p.Below, 1)
		require.Equal(t, survey.Lock, p.Below[0].Recipe)
		require.Equal(t, survey.Unknown, p.Below[0].Contenders[0].Library)
	})
}

// What Kafka has is no recipe, but for the brokers that are there, which are like the members of a group.
func TestWhatOthersKeepIsNoRecipe(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		s := suite.Session(t, c)
		for _, node := range []struct {
			path  string
			data  string
			flags int32
		}{
			{"", "", 0}, {"/controller", `{"version":1,"brokerid":1}`, zk.FlagEphemeral}, {"/controller_epoch", "7", 0},
			{"/brokers", "", 0}, {"/brokers/ids", "", 0}, {"/brokers/ids/1", "{}", zk.FlagEphemeral}, {"/consumers", "", 0},
		} {
			require.NoError(t, s.Create(t.Context(), root+node.path, []byte(node.data), node.flags))
		}
		p := look(t, c, root)
		recipes := make(map[string]survey.Recipe)
		for below := range p.All() {
			recipes[below.Path[len(root):]] = below.Recipe
		}
		require.Equal(t, map[string]survey.Recipe{
			"": survey.Directory, "/controller_epoch": survey.Value, "/brokers": survey.Directory,
			"/brokers/ids": survey.Group, "/consumers": survey.Leaf,
		}, recipes)
		require.Empty(t, p.Contenders)
		require.Equal(t, "controller", p.Unknown[0].Node)
	})
}

func TestWalkShowsEverythingBelow(t *testing.T) {
	srv := recipestest.Start(t)
	root, c := srv.Root(t), client(t, srv)
	for _, path := range []string{"/a/one", "/a/two", "/b"} {
		_, err := lock.New(c, root+path).Lock(t.Context())
		require.NoError(t, err)
	}
	var paths []string
	for p := range look(t, c, root).All() {
		paths = append(paths, p.Path)
	}
	require.Equal(t, []string{root, root + "/a", root + "/a/one", root + "/a/two", root + "/b"}, paths)

	for p := range look(t, c, root).All() {
		if p.Path == root+"/a/one" {
			break // which ends the walk
		}
	}
	few, err := survey.Look(t.Context(), c, root, survey.Limits{Places: 1})
	require.NoError(t, err)
	require.True(t, few.Truncated)
	require.Equal(t, survey.Directory, look(t, c, "/").Recipe)
}

func TestLongLinesAreCut(t *testing.T) {
	srv := recipestest.Start(t)
	path, c := srv.Root(t)+"/lock", client(t, srv)
	s := suite.Session(t, c)
	_, err := s.EnsurePath(t.Context(), path)
	require.NoError(t, err)
	for range 3 {
		_, err := s.Conn().Create(s.Path(path)+"/lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	p, err := survey.Look(t.Context(), c, path, survey.Limits{Contenders: 2})
	require.NoError(t, err)
	require.Len(t, p.Contenders, 2)
	require.True(t, p.Truncated)
	require.Equal(t, []string{"1 more in line were not read"}, p.Notes)
}

func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	test := func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		owner := client(t, srv, protocol.WithAuth("digest", []byte("me:secret")), protocol.WithACL(zk.AuthACL(zk.PermAll)))
		_, err := lock.New(owner, root+"/lock").Lock(t.Context())
		require.NoError(t, err)

		p := look(t, client(t, srv), root+"/lock")
		require.Equal(t, survey.Hidden, p.Recipe)
		require.Equal(t, suite.Has(t, srv, suite.HiddenStats), p.Since.IsZero())

		s := suite.Session(t, owner)
		_, err = s.Conn().SetACL(s.Path(root+"/lock"), zk.WorldACL(zk.PermRead), -1)
		require.NoError(t, err)
		p = look(t, client(t, srv), root+"/lock")
		require.Equal(t, survey.Lock, p.Recipe)
		require.Empty(t, p.Contenders[0].Data)
		require.NotZero(t, p.Contenders[0].Session)
		require.Empty(t, p.Contenders[0].Orphan)
	}

	suite.EmbeddedAndReal(t, test)
	t.Run("3.9", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, like39))
	})
}

// like39 makes the embedded server hide the Stat of a node that may not be read.
var like39 = recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = "3.9" })

func TestBadPathsAreRefused(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "relative", "/a/", "/a//b", "/\x00"} {
		_, err := survey.Look(t.Context(), nil, path, survey.Limits{})
		require.Error(t, err)
	}
}
