package survey_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
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
	p := suite.Got(survey.Look(suite.Lasting(t), c, path, survey.Limits{}))(t)
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

func TestLockThatMayBeUnusedLingers(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lingers", client(t, srv)
		m := lock.New(c, path, lock.WithLinger(time.Hour))
		lease := suite.Must(t, m.Lock)
		require.Equal(t, "lingers", lookFor(t, c, path, 1).Contenders[0].Mode)
		waiter := client(t, srv)
		start(t, func(ctx context.Context) { lock.New(waiter, path).Lock(ctx) })
		require.Empty(t, lookFor(t, c, path, 2).Contenders[0].Mode, "it is in use")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// The lengths and reservations of queues are in the transcripts of zkr.
func TestConsumerOfAnEmptyQueueWaits(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/queue", client(t, srv)
		start(t, func(ctx context.Context) { queue.New(c, path).Take(ctx) })
		p := lookFor(t, c, path, 1)
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
			suite.Got(q.Offer(t.Context(), []byte("element")))(t)
			suite.Must(t, q.Reserve)
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
		suite.Must(t, queue.New(c, root+"/copy").Take)
	})
}

func TestBarriersAreShown(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		require.NoError(t, barrier.New(c, root+"/b/set").Set(t.Context()))
		require.Equal(t, survey.Leaf, look(t, c, root+"/b/set").Recipe)
		require.NoError(t, barrier.New(c, root+"/b/falls", barrier.WithEphemeral()).Set(t.Context()))
		p := look(t, c, root+"/b")
		require.Equal(t, survey.Directory, p.Recipe)
		require.Len(t, p.Below, 2)
		require.Equal(t, survey.Barrier, p.Below[0].Recipe)
		require.Equal(t, survey.Leaf, p.Below[1].Recipe)
		require.Equal(t, survey.Barrier, look(t, c, root+"/b/falls").Recipe)
	})
}

func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	test := func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		owner := client(t, srv, protocol.WithAuth("digest", []byte("me:secret")), protocol.WithACL(zk.AuthACL(zk.PermAll)))
		suite.Must(t, lock.New(owner, root+"/lock").Lock)

		p := look(t, client(t, srv), root+"/lock")
		require.Equal(t, survey.Hidden, p.Recipe)
		require.Equal(t, suite.Has(t, srv, suite.HiddenStats), p.Since.IsZero())

		s := suite.Session(t, owner)
		suite.Got(s.Conn().SetACL(s.Path(root+"/lock"), zk.WorldACL(zk.PermRead), -1))(t)
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
		require.ErrorIs(t, suite.Err(survey.Look(t.Context(), nil, path, survey.Limits{})), zk.ErrInvalidPath)
		_, err := survey.NewViewer(nil, path, survey.Limits{}).Look(t.Context(), false)
		require.ErrorIs(t, err, zk.ErrInvalidPath)
	}
}
