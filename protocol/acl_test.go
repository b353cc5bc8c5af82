package protocol_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
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

	s, err := recipe.SessionOf(suite.Lasting(t), view)
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

// New nodes are for the identities of the credentials that were given, and for no other identity of
// the connection.
func TestNewNodesAreForTheGivenIdentitiesAlone(t *testing.T) {
	srv := recipestest.Start(t)
	aclOf := func(c *protocol.Client, path string) []zk.ACL {
		s := suite.Session(t, c)
		require.NoError(t, s.Create(suite.Lasting(t), path, nil, 0))
		acl, _, err := s.Conn().GetACL(s.Path(path))
		require.NoError(t, err)
		return acl
	}
	root := srv.Root(t)
	_, err := suite.Session(t, srv.Client(t)).EnsurePath(suite.Lasting(t), root)
	require.NoError(t, err)
	alice, bob := zk.DigestACL(zk.PermAll, "alice", "se:cret"), zk.DigestACL(zk.PermAll, "bob", "")
	asAlice, asBob := protocol.WithAuth("digest", []byte("alice:se:cret")), protocol.WithAuth("digest", []byte("bob:"))

	require.Equal(t, alice, aclOf(srv.Client(t, asAlice), root+"/one"))
	require.Equal(t, append(alice, bob...), aclOf(srv.Client(t, asAlice, asBob), root+"/two"))
	require.Equal(t, alice, aclOf(srv.Client(t, asAlice, protocol.WithAuth("ip", nil)), root+"/address"))
	require.Equal(t, zk.WorldACL(zk.PermAll), aclOf(srv.Client(t, protocol.WithAuth("ip", nil)), root+"/open"))

	// The connection has another identity, as it has with a shared certificate.
	c := srv.Client(t, asAlice)
	require.NoError(t, suite.Session(t, c).Conn().AddAuth("digest", []byte("shared:certificate")))
	require.Equal(t, alice, aclOf(c, root+"/beside"))

	// It is not this credential that the server knows the connection by.
	link := srv.Link(t)
	link.Fail(recipestest.OpWhoAmI, "", int32(zkwire.CodeUnimplemented), 1)
	_, err = protocol.Connect(suite.Lasting(t), srv.ConnectString(), protocol.WithDialer(accepting(link)), protocol.WithAuth("other", nil))
	require.ErrorContains(t, err, "give WithACL")
	_, err = protocol.Connect(suite.Lasting(t), srv.ConnectString(), protocol.WithDialer(accepting(link)), protocol.WithAuth("other", nil))
	require.ErrorContains(t, err, "give WithACL")
	given := link.Client(t, protocol.WithDialer(accepting(link)), protocol.WithAuth("other", nil), protocol.WithACL(alice))
	require.NoError(t, given.Close())
}

// accepting is a way through link on which the server takes any credential for an address.
func accepting(link *recipestest.Link) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		return acceptingConn{c}, err
	}
}

type acceptingConn struct{ net.Conn }

func (c acceptingConn) Write(p []byte) (int, error) {
	frame := bytes.Replace(p, []byte("\x00\x00\x00\x05other"), []byte("\x00\x00\x00\x02ip"), 1)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, err := c.Conn.Write(frame)
	return len(p), err
}
