package suite_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
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
