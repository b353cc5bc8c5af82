package real_test

import (
	"net"
	"os/exec"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// The certificate of a client is its identity where the servers demand one.
func TestNodesOfACertificateAreItsOwn(t *testing.T) {
	t.Parallel()
	a, server := startTLS(t)
	as := func(subject string) *protocol.Client {
		return connect(t, server.SecureConnectString(), protocol.WithTLSFiles(filesOf(t, a, subject)), protocol.WithAuth("x509", nil))
	}
	// The node that alice creates is for her certificate alone.
	alice, bob := as("alice"), as("bob")
	g := suite.Hold(t, alice, "/x509")
	defer g.Release(suite.Lasting(t))

	acl := suite.ReadAt(t, suite.Session(t, alice).Conn().GetACL, "/x509")
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=alice"}}, acl)
	_, _, err := suite.Session(t, bob).Children(suite.Lasting(t), "/x509")
	require.ErrorIs(t, err, zk.ErrNoAuth)
}

// The example for clients with certificates runs as its comment says.
func TestTLSExampleOnARealServer(t *testing.T) {
	t.Parallel()
	a, server := startTLS(t)
	_, port, err := net.SplitHostPort(server.SecureConnectString())
	require.NoError(t, err)

	// The files are what the example's comment tells a user to make.
	files := filesOf(t, a, "billing")
	out, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../..", "./examples/tls", "-servers", "localhost:"+port,
		"-ca", files.CA, "-cert", files.Certificate, "-key", files.Key).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "The client takes a lock, with token ")
}

// startTLS starts a server that demands certificates of its clients, and returns the authority that
// it trusts.
func startTLS(t *testing.T) (*suite.Authority, *ensemble.Member) {
	t.Helper()
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	a := suite.NewAuthority(t)
	certificate, key := a.Pair(t, "localhost", "server")
	return a, ensemble.Start(t, 1, ensemble.WithTLS(append(certificate, key...), a.PEM())).Members()[0]
}

// filesOf writes the files of a client with this subject.
func filesOf(t *testing.T, a *suite.Authority, subject string) protocol.TLSFiles {
	t.Helper()
	files := a.Files(t, t.TempDir(), subject)
	files.ServerName = "localhost"
	return files
}
