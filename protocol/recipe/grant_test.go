package recipe_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	kernel "github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// noNode is the answer of a server that lags.
const noNode = -101

// TestNodeThatSeemsToBeMissingIsLookedForAgain has a server be wrong about a holder's node once.
func TestNodeThatSeemsToBeMissingIsLookedForAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		link.Fail(recipestest.OpGetData, "", noNode, 1)
		g := suite.Hold(t, c, root)
		time.Sleep(time.Second)
		require.Equal(t, 2, link.Count(recipestest.OpGetData), "the node is read to be watched")
		require.NoError(t, g.Err())

		before := link.Count(recipestest.OpExists)
		link.Fail(recipestest.OpExists, "", noNode, 1)
		require.NoError(t, g.SetData(suite.Lasting(t), []byte("new")))
		require.Greater(t, link.Count(recipestest.OpExists), before+1)
		require.NoError(t, g.Err())

		require.NoError(t, suite.LineAt(c, root).Break(suite.Lasting(t), g.Node()))
		suite.Wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.ErrorIs(t, g.SetData(suite.Lasting(t), nil), protocol.ErrLost)
	})
}

// TestNodeThatIsBelievedMissingIsDeleted has a server be wrong however often it is asked.
func TestNodeThatIsBelievedMissingIsDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		link.Fail(recipestest.OpGetData, "", noNode, 1)
		link.Fail(recipestest.OpExists, "", noNode, 1)
		g := suite.Hold(t, c, root)
		suite.Wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.NoError(t, suite.Session(t, c).Err())
		suite.Release(t, suite.Hold(t, srv.Client(t), root))
	})
}

// TestNodeIsLookedForBehindASync has a session come back at a follower that does not know the node
// yet. Servers refuse that to a session that says which zxid it has seen, so these handshakes
// claim that it has seen nothing.
func TestNodeIsLookedForBehindASync(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		c := link.Client(t, suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
			if len(p) > 16 && binary.BigEndian.Uint32(p[4:]) == 0 { // a handshake, which has no xid
				clear(p[8:16]) // the last zxid seen
			}
			return conn.Write(p)
		}))
		require.NoError(t, suite.Hold(t, c, root+"/line").Release(suite.Lasting(t)))
		f.Lag(300 * time.Millisecond)
		time.Sleep(time.Second)

		g := suite.Hold(t, c, root+"/line")
		link.Move(f)
		suite.Blip(link)
		time.Sleep(200 * time.Millisecond) // the node is looked at now
		f.Lag(0)
		time.Sleep(time.Second)

		require.NoError(t, g.Err())
		require.NoError(t, g.Release(suite.Lasting(t)))
		require.NoError(t, c.Close())
	})
}

// If a holder can't read its node, it asks the server whether the node exists. (Servers like 3.9
// refuse to answer, which also says that it exists.)
func TestGrantOfANodeThatMayNotBeRead(t *testing.T) {
	suite.InBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/line", srv.Client(t)
		suite.Keep(t, other, path)
		g := suite.Hold(t, srv.Client(t).With(protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead))), path)
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())
		require.NoError(t, g.Verify(t.Context()))

		require.NoError(t, suite.Session(t, other).Delete(t.Context(), path+"/"+g.Node(), -1))
		time.Sleep(time.Minute)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
	})
}

// Another node takes the name of a grant's node, and the holder can't read it. (Servers like 3.9
// don't even say that it is another node.)
func TestNamedGrantWhoseNameIsTakenIsLost(t *testing.T) {
	suite.InBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		root, c, other := srv.Root(t), srv.Client(t), suite.Session(t, srv.Client(t))
		path, s := root+"/name", suite.Session(t, c)
		suite.Keep(t, c, root)
		require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
		_, stat := suite.Get(t, c, path)
		g, err := recipe.New(c, "test", path).NewNamedGrant(t.Context(), s, path, stat.Czxid,
			func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
		require.NoError(t, err)
		_, err = other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
			&zk.CreateRequest{Path: path, Flags: zk.FlagEphemeral, Acl: zk.WorldACL(zk.PermAll &^ zk.PermRead)})
		require.NoError(t, err)
		suite.Wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.NoError(t, other.Delete(t.Context(), path, -1))
	})
}

// The data are set, but the answer is lost, and then another node takes the name. It has the
// version that the grant's node had.
func TestSetDataLeavesAnotherNodeOfTheNameAlone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, other := srv.Link(t), suite.Session(t, srv.Client(t))
		root, c := srv.Root(t), link.Client(t)
		path, s := root+"/name", suite.Session(t, c)
		suite.Keep(t, c, root)
		require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
		_, stat := suite.Get(t, c, path)
		g, err := recipe.New(c, "test", path).NewNamedGrant(t.Context(), s, path, stat.Czxid,
			func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
		require.NoError(t, err)
		link.Meet(4, func(operations []string) { // exists, its answer, setData
			link.Cut()
			_, err := other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
				&zk.CreateRequest{Path: path, Data: []byte("other"), Flags: zk.FlagEphemeral})
			assert.NoError(t, err)
			link.Heal()
		})
		require.ErrorIs(t, g.SetData(suite.Lasting(t), []byte("new")), protocol.ErrLost)
		data, _, err := other.Get(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, "other", string(data))
		require.NoError(t, other.Delete(t.Context(), path, -1))
	})
}

// The holder has not heard yet that its node is gone.
func TestReleaseOfADeletedNodeReportsTheLoss(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s := suite.Session(t, c)
		g := suite.Got(grantOf(t.Context(), c, s, path, 1))(t)
		err := g.Release(t.Context())
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorIs(t, err, protocol.ErrNodeDeleted)
	})
}

// A holder that has its node guarded notices a deletion at once. Again, and after the usual time,
// that costs nothing.
func TestGuardedNodeIsWatchedAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/x"
		c, other := link.Client(t), suite.Session(t, srv.Client(t))
		g := suite.Hold(t, c, path)
		before := link.Count(recipestest.OpAny)
		g.Guard()
		g.Guard()
		time.Sleep(50 * time.Millisecond)
		g.Guard()
		synctest.Wait()
		require.Equal(t, before+1, link.Count(recipestest.OpAny))
		suite.Release(t, g)

		g = suite.Hold(t, c, path)
		g.Guard()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, other.Delete(t.Context(), path+"/"+g.Node(), -1))
		suite.Wait(t, g.Done())
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, g.Err(), protocol.ErrNodeDeleted)
		g.Guard() // has nothing to watch any more
	})
}

// Nothing else would make the session look at its clocks at that moment: it was engaged before, and
// has no connection.
func TestGrantWithoutAConnectionEndsWithTrust(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/x"
		c := link.Client(t)
		s := suite.Session(t, c)
		defer s.KeepAlive()()
		link.Cut()
		synctest.Wait()
		g := suite.Got(grantOf(t.Context(), c, s, path, 1))(t)
		end := s.Deadline()
		suite.Wait(t, g.Done())
		require.WithinDuration(t, end, time.Now(), 10*time.Millisecond)
		require.ErrorIs(t, g.Err(), protocol.ErrUntrusted)
		link.Heal()
	})
}

// TestGrantOfASessionThatCannotBeTrustedIsRefused asks for a grant in a session that is silent, and
// in a session that is lost. Neither call makes the session look after its connection for longer.
func TestGrantOfASessionThatCannotBeTrustedIsRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/x"
		c := link.Client(t)
		s := suite.Session(t, c)
		grant := func(ctx context.Context) error { _, err := grantOf(ctx, c, s, path, 1); return err }

		srv.Embedded().Stop()
		time.Sleep(s.Timeout())
		require.ErrorIs(t, grant(suite.Within(t, time.Second)), context.DeadlineExceeded)
		require.NoError(t, s.Err(), "it holds nothing, so only the servers end it")

		require.NoError(t, srv.Embedded().Resume())
		require.NoError(t, s.Sync(suite.Lasting(t), "/"))
		time.Sleep(time.Second)
		asked := link.Count(recipestest.OpAny)
		time.Sleep(10 * s.Timeout())
		require.Equal(t, asked, link.Count(recipestest.OpAny), "proofs of a session that holds nothing")

		require.NoError(t, s.Fence(suite.Lasting(t)), "trust is fresh")
		srv.ExpireSession(s.ID())
		suite.Wait(t, s.Done())
		require.ErrorIs(t, grant(suite.Lasting(t)), protocol.ErrLost)
	})
}

// TestGrantAfterASuspensionIsPaced has a session whose last contact was almost a timeout ago
// (after a suspension, for example). Answers renew trust only after a while.
func TestGrantAfterASuspensionIsPaced(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)
		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
		_, stat := suite.Get(t, c, path)

		kernel.Open(s).Suspend(s.Timeout()*99/100, s.Timeout())
		began := time.Now()
		suite.Got(grantOf(suite.Lasting(t), c, s, path, stat.Czxid))(t)
		after := suite.Got(s.Set(t.Context(), path, nil, -1))(t)
		require.Positive(t, time.Since(began))
		require.Less(t, after.Mzxid-stat.Czxid, int64(20))
		require.NoError(t, s.Delete(t.Context(), path, -1))
	})
}

// grantOf returns a grant of a node, which is gone when it is released.
func grantOf(ctx context.Context, c *protocol.Client, s *recipe.Session, path string, czxid int64) (*recipe.Grant, error) {
	return recipe.New(c, "test", path).NewGrant(ctx, s, path, czxid,
		func(context.Context, *recipe.Session) error { return zk.ErrNoNode })
}

// The answer is lost, and whether the data were set cannot be found out.
func TestSetDataReturnsWhyItsOutcomeIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		refuse recipestest.Op
		perms  int32
		want   error
	}{
		"read is refused":     {recipestest.OpGetData, zk.PermAll, zk.ErrNotEmpty},
		"read is not allowed": {0, zk.PermAll &^ zk.PermRead, protocol.ErrUncertain},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			path, link := srv.Root(t)+"/line", srv.Link(t)
			acls := protocol.WithACLFor(func(node string) []zk.ACL {
				if strings.HasPrefix(node, path+"/") {
					return zk.WorldACL(test.perms)
				}
				return nil
			})
			g := suite.Hold(t, link.Client(t, acls), path)
			require.NoError(t, g.SetData(suite.Lasting(t), []byte("old"))) // so that the version is not 0
			time.Sleep(time.Second)                                        // until the node is watched

			// The grant can read first, because its watch has fired.
			link.Fail(test.refuse, path+"/"+g.Node(), int32(zkwire.CodeNotEmpty), 2)
			link.LoseReply(recipestest.OpSetData, 1)
			require.ErrorIs(t, g.SetData(suite.Lasting(t), []byte("new")), test.want)
			require.NoError(t, g.Err())
			suite.Release(t, g)
		})
	}
}

const refused = -102 // no permission

// A refusal that a member can give by itself is no proof of a quorum, and neither is the answer to
// a transaction that was not executed.
func TestRefusalsDoNotRenewTrust(t *testing.T) {
	const sessionExpired = -112

	for name, ask := range map[string]func(t *testing.T, link *recipestest.Link, s *recipe.Session, path string){
		"none": func(*testing.T, *recipestest.Link, *recipe.Session, string) {},
		"delete": func(t *testing.T, _ *recipestest.Link, s *recipe.Session, path string) {
			require.ErrorIs(t, s.Delete(suite.Lasting(t), path, 7), zk.ErrNoAuth)
		},
		"transaction": func(t *testing.T, link *recipestest.Link, s *recipe.Session, path string) {
			link.FailPart(1, sessionExpired)
			_, err := s.Conn().Multi(&zk.SetDataRequest{Path: s.Path(path), Version: -1})
			require.ErrorIs(t, err, zk.ErrSessionExpired)
		},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			link, path := srv.Link(t), srv.Root(t)+"/line"
			suite.Keep(t, srv.Client(t), path)
			g := suite.Hold(t, link.Client(t), path)
			s := g.Session()
			link.Fail(recipestest.OpDelete, "", refused, 1<<20)
			begin := time.Now()
			for g.Err() == nil && time.Since(begin) < time.Minute {
				ask(t, link, s, path)
				time.Sleep(s.Timeout() / 20)
			}
			require.ErrorIs(t, g.Err(), protocol.ErrUntrusted)
			require.LessOrEqual(t, time.Since(begin), s.Timeout())
			link.Fail(recipestest.OpDelete, "", refused, 0)
		})
	}
}
