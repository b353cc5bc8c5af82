package recipestest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestFailAnswersWithoutExecuting(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)
		create(t, n.conn, n.root+"/a", 0)

		n.link.Fail(recipestest.OpDelete, n.root+"/a", int32(zkwire.CodeNoAuth), 2)
		for range 2 {
			require.ErrorIs(t, n.conn.Delete(n.root+"/a", -1), zk.ErrNoAuth)
			requireExists(t, n.conn, n.root+"/a", true)
		}
		require.NoError(t, n.conn.Delete(n.root+"/a", -1), "only two are to fail")

		n.link.Fail(recipestest.OpDelete, n.root+"/a", int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, n.conn.Delete(n.root+"/b", -1), zk.ErrNoNode, "of another node")
		n.link.Fail(recipestest.OpDelete, n.root+"/a", 0, 0)
		require.ErrorIs(t, n.conn.Delete(n.root+"/a", -1), zk.ErrNoNode, "the fault has ended")

		n.link.Fail(recipestest.OpAny, "", int32(zkwire.CodeNodeExists), 1)
		require.ErrorIs(t, attempt(n.conn, n.root+"/c"), zk.ErrNodeExists)
		requireExists(t, n.conn, n.root+"/c", false)
	})
}

func TestFailMeetsAnyOperationOfATransaction(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)
		ops := []any{
			&zk.CheckVersionRequest{Path: n.root, Version: -1},
			&zk.CreateRequest{Path: n.root + "/a", Acl: zk.WorldACL(zk.PermAll)},
		}

		n.link.Fail(recipestest.OpMulti, n.root+"/a", int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, suite.Err(n.conn.Multi(ops...)), zk.ErrNoAuth)
		requireExists(t, n.conn, n.root+"/a", false)
		suite.Got(n.conn.Multi(ops...))(t)
	})
}

func TestFailedTestShowsThePacketsOfItsLinks(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		var root string
		users := func(fail bool) *fakeTB {
			return run(t, func(tb testing.TB) {
				link := s.Link(tb)
				root = s.Root(tb)
				conn := connect(tb, s, link.Dial, 10*time.Second)
				create(tb, conn, root, 0)
				link.Fail(recipestest.OpGetData, root, int32(zkwire.CodeNoAuth), 1)
				conn.Get(root)
				link.LoseReply(recipestest.OpSetData, 1)
				conn.Set(root, nil, -1)
				_, _, changed, err := conn.GetW(root)
				require.NoError(tb, err)
				create(tb, conn, root+"/a", 0)
				suite.Got(conn.Multi(&zk.SetDataRequest{Path: root, Version: -1}))(tb)
				suite.Wait(tb, changed)

				trace := link.Trace()
				for _, line := range []string{
					"-> 1 create " + root + " (",
					"<- 1 create: ok (",
					"getData " + root,
					"is not executed",
					"getData: no permission",
					"setData: ok (",
					"is lost",
					"connection 2  -> ",
					"multi " + root,
					"<- event " + root,
				} {
					require.Contains(tb, trace, line)
				}
				require.NotContains(tb, trace, "ping")
				if fail {
					tb.Errorf("failed on purpose")
				}
			})
		}

		require.NotContains(t, strings.Join(users(false).logs, ""), "packets of a link")
		require.Contains(t, strings.Join(users(true).logs, ""), "create "+root)
	})
}

func TestTraceEndsWithTheLatestPackets(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		for range 150 {
			suite.ReadAt(t, n.conn.Exists, n.root)
		}
		suite.ReadAt(t, n.conn.Exists, n.root+"-last")

		lines := strings.Split(strings.TrimSuffix(n.link.Trace(), "\n"), "\n")
		require.Len(t, lines, 200)
		require.Contains(t, lines[199], "<- 151 exists: no node")
	})
}

func TestDumpShowsTheTree(t *testing.T) {
	test := func(t *testing.T, s *recipestest.Server) {
		root, conn := s.Root(t), s.Conn(t)
		create(t, conn, root, 0)
		suite.Got(conn.Set(root, []byte("data"), -1))(t)
		open := zk.WorldACL(zk.PermAll)
		for _, path := range []string{root + "/b", root + "/a"} {
			suite.Got(conn.Create(path, nil, 0, open))(t)
		}
		suite.Got(conn.Create(root+"/b/c", nil, zk.FlagEphemeral, open))(t)
		suite.Got(conn.Set(root+"/b/c", []byte("c"), 0))(t)
		hidden := []zk.ACL{{Perms: zk.PermAdmin | zk.PermDelete, Scheme: "world", ID: "anyone"}}
		suite.Got(conn.Create(root+"/secret", nil, 0, hidden))(t)

		defer func() { require.NoError(t, conn.Delete(root+"/b/c", -1)) }()
		require.Equal(t, fmt.Sprintf(`%[1]s  version 1, 4 bytes "data"
%[1]s/a  version 0, 0 bytes
%[1]s/b  version 0, 0 bytes
%[1]s/b/c  version 1, 1 bytes "c", session %#[2]x
%[1]s/secret: no permission
`, root, conn.SessionID()), s.Dump(root))
		require.Contains(t, s.Dump("/"), "\n"+root+"/b/c")
		require.Empty(t, s.Dump(root+"/none"))
	}

	everywhere(t, test)
	t.Run("3.9", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = "3.9" })))
	})
}

func TestConnIsClosedWithItsTest(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		var conn *zk.Conn
		require.Empty(t, run(t, func(tb testing.TB) {
			conn = s.Conn(tb)
			suite.ReadAt(tb, conn.Get, "/")
		}).errors)
		_, _, err := conn.Get("/")
		require.Error(t, err)
	})
}

func TestFailPartRefusesOneOperationOfATransaction(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)
		ops := []any{
			&zk.CheckVersionRequest{Path: n.root, Version: -1},
			&zk.CreateRequest{Path: n.root + "/a", Acl: zk.WorldACL(zk.PermAll)},
			&zk.DeleteRequest{Path: n.root + "/a", Version: -1},
		}

		n.link.FailPart(3, int32(zkwire.CodeNoAuth))
		require.NoError(t, suite.Err(n.conn.Multi(ops[:2]...)), "which has only two operations")
		require.NoError(t, n.conn.Delete(n.root+"/a", -1))
		n.link.FailPart(2, int32(zkwire.CodeNodeExists))
		for _, refused := range []struct {
			part int
			err  error
		}{{3, zk.ErrNoAuth}, {2, zk.ErrNodeExists}} {
			results, err := n.conn.Multi(ops...)
			require.ErrorIs(t, err, refused.err)
			require.Len(t, results, 3)
			for i, r := range results {
				switch part := i + 1; {
				case part < refused.part:
					require.NoError(t, r.Error)
				case part == refused.part:
					require.ErrorIs(t, r.Error, refused.err)
				default:
					require.ErrorContains(t, r.Error, "-2")
				}
			}
			requireExists(t, n.conn, n.root+"/a", false)
		}
		suite.Got(n.conn.Multi(ops...))(t)
	})
}

func TestMeetSaysWhatThePacketIs(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)
		changed := suite.WatchAt(t, n.conn.GetW, n.root)

		met := make(chan []string, 5)
		for step := range cap(met) {
			n.link.Meet(step+1, func(operations []string) { met <- operations })
		}
		suite.Got(n.conn.Set(n.root, nil, -1))(t)
		suite.Wait(t, changed)
		_, err := n.conn.Multi(
			&zk.CreateRequest{Path: n.root + "/a", Acl: zk.WorldACL(zk.PermAll)},
			&zk.SetDataRequest{Path: n.root, Version: -1},
			&zk.DeleteRequest{Path: n.root + "/a", Version: -1},
		)
		require.NoError(t, err)
		for _, want := range [][]string{
			{"setData " + n.root}, {"event at " + n.root}, {"answer to setData"},
			{"create " + n.root + "/a", "setData " + n.root, "delete " + n.root + "/a"}, {"answer to multi"},
		} {
			require.Equal(t, want, suite.Wait(t, met))
		}
		require.True(t, n.link.Meet(1, nil)(), "stop disarms it")
	})
}
