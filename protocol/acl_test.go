package protocol_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The function gets the root for the chroot, and what it has no ACL for is open.
func TestFunctionForACLsGetsPathsWithoutTheChroot(t *testing.T) {
	srv := recipestest.Start(t)
	var mu sync.Mutex
	var asked []string
	c, err := protocol.Connect(t.Context(), srv.ConnectString()+srv.Root(t)+"/chroot", protocol.WithDialer(srv.Dial))
	require.NoError(t, err)
	defer suite.Close(t, c)
	view := c.With(protocol.WithACLFor(func(path string) []zk.ACL {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, path)
		return nil
	}))

	s, err := view.Session(suite.Lasting(t))
	require.NoError(t, err)
	_, err = s.EnsurePath(suite.Lasting(t), "/a")
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(asked)
	require.Equal(t, []string{"/", "/a"}, slices.Compact(asked))
	acl, _, err := s.Conn().GetACL(s.Path("/a"))
	require.NoError(t, err)
	require.Equal(t, zk.WorldACL(zk.PermAll), acl)
}

func TestTransactionOfASessionChecksVersions(t *testing.T) {
	srv := recipestest.Start(t)
	c, path := srv.Client(t), srv.Root(t)+"/a"
	s := suite.Session(t, c)
	_, err := s.EnsurePath(t.Context(), path)
	require.NoError(t, err)
	check := func(version int32) error {
		_, err := s.Multi(t.Context(), &zk.CheckVersionRequest{Path: path, Version: version})
		return err
	}
	require.NoError(t, check(0))
	require.ErrorIs(t, check(1), zk.ErrBadVersion)
}

func TestExistsReturnsNoStatBesideAnError(t *testing.T) {
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/hidden"
	s := suite.Session(t, link.Client(t))
	link.Fail(recipestest.OpExists, path, int32(zkwire.CodeNoAuth), 1)
	stat, err := s.Exists(t.Context(), path)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorContains(t, err, "no permission to read "+path)
	require.Nil(t, stat)
}

func TestErrorNamesTheRootIfItsACLForbidsANode(t *testing.T) {
	s := suite.Session(t, recipestest.Start(t).Client(t))
	_, err := s.Conn().SetACL("/", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
	require.NoError(t, err)
	_, err = s.EnsurePath(t.Context(), "/a")
	require.ErrorContains(t, err, "no permission to create /a: the ACL of / does not allow it")
}
