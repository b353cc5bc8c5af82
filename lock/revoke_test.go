package lock_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The holder may not read its node for a while. No caller would be told that it listens no more.
func TestRevocationIsHeardOfAfterRefusals(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path, ctx := srv.Link(t), srv.Root(t)+"/revoked", t.Context()
		l := suite.Must(t, lock.New(link.Client(t), path).Lock)
		time.Sleep(time.Second) // until its node is watched
		conn := suite.Session(t, srv.Client(t)).Conn()
		link.Delay(100 * time.Millisecond) // or the lease reads the request before it may not
		require.NoError(t, lock.New(srv.Client(t), path).Revoke(ctx, l.Node()))
		suite.Got(conn.SetACL(path+"/"+l.Node(), zk.WorldACL(zk.PermAll&^zk.PermRead), -1))(t)
		link.Delay(0)
		revoked := l.Revoked()
		time.Sleep(time.Hour)
		reads := link.Count(recipestest.OpGetData)
		time.Sleep(time.Hour)
		again := link.Count(recipestest.OpGetData) - reads
		require.Positive(t, again)
		require.LessOrEqual(t, again, 60*(6+1), "the lease itself asks once in a session timeout, and this once a minute")

		suite.Got(conn.SetACL(path+"/"+l.Node(), zk.WorldACL(zk.PermAll), -1))(t)
		time.Sleep(2 * time.Minute)
		suite.Wait(t, revoked)
		require.NoError(t, l.Unlock(ctx))
	})
}

// Revoke adds to the owner data, and a holder that has heard of it writes its own back. What is not
// an owner's stays.
func TestRevokeDestroysNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/revoked", srv.Client(t)
		m, other := lock.New(c, path), lock.New(srv.Client(t), path)
		data := func(node string) string { data, _ := suite.Get(t, c, path+"/"+node); return string(data) }
		l := suite.Must(t, m.Lock)
		own := data(l.Node())
		for range 2 {
			require.NoError(t, other.Revoke(t.Context(), l.Node()))
			require.Equal(t, strings.TrimSuffix(own, "}")+`,"revoked":true}`, data(l.Node()))
			p, ok := protocol.ParseProcess([]byte(data(l.Node())))
			require.True(t, ok)
			require.Equal(t, os.Getpid(), p.PID)
		}
		suite.Wait(t, l.Revoked())
		synctest.Wait()
		require.Equal(t, own, data(l.Node()))
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, other.Revoke(t.Context(), l.Node()), zk.ErrNoNode)
		require.ErrorIs(t, other.Revoke(t.Context(), "config"), zk.ErrInvalidPath)

		// Curator's Revoker replaces whatever there is.
		l = suite.Must(t, lock.New(c, path, lock.WithData([]byte("mine"))).Lock)
		err := other.Revoke(t.Context(), l.Node())
		require.ErrorIs(t, err, lock.ErrNotRevocable)
		require.ErrorContains(t, err, "lock: "+path+": ")
		revoked := l.Revoked()
		suite.Got(suite.Session(t, c).Set(t.Context(), path+"/"+l.Node(), []byte("__REVOKE__"), -1))(t)
		suite.Wait(t, revoked)
		synctest.Wait()
		require.Equal(t, "mine", data(l.Node()))
		require.NoError(t, l.Unlock(t.Context()))

		for given, want := range map[string]string{"": "__REVOKE__", "10.0.0.4": "__REVOKE__", "10.0.0.4:80": "10.0.0.4:80"} {
			conn := suite.Session(t, c).Conn()
			node := suite.Got(conn.CreateProtectedEphemeralSequential(path+"/lock-", []byte(given), zk.WorldACL(zk.PermAll)))(t)
			err = other.Revoke(t.Context(), node[len(path)+1:])
			require.Equal(t, want == given, errors.Is(err, lock.ErrNotRevocable), given)
			require.Equal(t, want, data(node[len(path)+1:]))
			require.NoError(t, conn.Delete(node, -1))
		}
	})
}
