package suite_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestLastOptionForACLsCounts(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		open := func(string) []zk.ACL { return zk.WorldACL(zk.PermAll) }
		root := srv.Root(t)
		suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
		c := srv.Client(t, protocol.WithAuth("digest", []byte("alice:secret")))
		for name, view := range map[string]struct {
			c    *protocol.Client
			want []zk.ACL
		}{
			"none":      {c, zk.DigestACL(zk.PermAll, "alice", "secret")},
			"opened":    {c.With(protocol.WithACL(zk.WorldACL(zk.PermAll))), zk.WorldACL(zk.PermAll)},
			"for":       {c.With(protocol.WithACL(zk.WorldACL(zk.PermRead)), protocol.WithACLFor(open)), zk.WorldACL(zk.PermAll)},
			"constant":  {c.With(protocol.WithACLFor(open)).With(protocol.WithACL(zk.WorldACL(zk.PermRead))), zk.WorldACL(zk.PermRead)},
			"none for":  {c.With(protocol.WithACLFor(func(string) []zk.ACL { return nil })), zk.DigestACL(zk.PermAll, "alice", "secret")},
			"anonymous": {srv.Client(t), zk.WorldACL(zk.PermAll)},
			"address":   {srv.Client(t, protocol.WithAuth("ip", nil)), zk.WorldACL(zk.PermAll)},
		} {
			require.Equal(t, view.want, suite.Session(t, view.c).ACL(root+"/x"), name)
			require.NoError(t, suite.Session(t, view.c).Create(t.Context(), root+"/"+name, nil, 0), name)
		}
	})
}

// Each node gets the ACL that the function returns for its path, without the chroot.
func TestEveryNodeHasTheACLForItsPath(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		chroot, conn := srv.Root(t)+"/app", srv.Conn(t)
		require.NoError(t, conn.AddAuth("digest", []byte("alice:secret")))
		own := func(path string) []zk.ACL { // differs from path to path
			return append(zk.DigestACL(zk.PermAll, "alice", "secret"), zk.DigestACL(zk.PermRead, path, "")...)
		}
		c, err := protocol.Connect(t.Context(), srv.ConnectString()+chroot, protocol.WithDialer(srv.Dial),
			protocol.WithAuth("digest", []byte("alice:secret")), protocol.WithACLFor(own))
		require.NoError(t, err)
		defer suite.Close(t, c)
		lease, err := lock.New(c, "/x/lock").Lock(t.Context())
		require.NoError(t, err)
		q := queue.New(c, "/x/queue")
		require.NoError(t, errOf(q.Offer(t.Context(), nil)))
		item, err := q.Reserve(t.Context())
		require.NoError(t, err)

		sequence := regexp.MustCompile(`\d{10}$`) // which the server appends to the path
		seen := 0
		var look func(path string)
		look = func(path string) {
			acl, _, err := conn.GetACL(chroot + path)
			require.NoError(t, err)
			created := path
			if !strings.Contains(path, "/held/") { // whose names have the number of another node
				created = sequence.ReplaceAllString(path, "")
			}
			require.Equal(t, own("/"+strings.TrimPrefix(created, "/")), acl, path)
			children, _, err := conn.Children(chroot + path)
			require.NoError(t, err)
			for _, child := range children {
				seen++
				look(path + "/" + child)
			}
		}
		look("")
		require.Greater(t, seen, 5)
		require.NoError(t, errors.Join(item.Ack(t.Context()), lease.Unlock(t.Context())))
	})
}
