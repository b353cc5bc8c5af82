package real_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestDialerMayUseTLS(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	a := newAuthority(t)
	certificate, key := a.pair(t, "localhost", "server")
	server := ensemble.Start(t, 1, ensemble.WithTLS(append(certificate, key...), nil)).Members()[0]
	over := func(roots *x509.CertPool) protocol.ConnectOption {
		return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			d := &net.Dialer{Timeout: timeout}
			return tls.DialWithDialer(d, network, address, &tls.Config{RootCAs: roots, ServerName: "localhost"})
		})
	}
	trusting := x509.NewCertPool()
	require.True(t, trusting.AppendCertsFromPEM(a.pem()))

	c := connect(t, server.SecureConnectString(), over(trusting))
	g := hold(t, c, "/tls")
	require.NoError(t, g.Release(suite.Lasting(t)))

	suite.Soon(t, func() bool { // a second may be too short for a handshake
		_, err := protocol.Connect(suite.Within(t, time.Second), server.SecureConnectString(), over(x509.NewCertPool()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var unknown x509.UnknownAuthorityError
		return errors.As(err, &unknown)
	}, "the error says what is wrong")

	_, err := protocol.Connect(suite.Within(t, time.Second), server.SecureConnectString())
	require.Error(t, err, "without TLS")
}

// The certificate of a client is its identity where the servers demand one.
func TestNodesOfACertificateAreItsOwn(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	a := newAuthority(t)
	certificate, key := a.pair(t, "localhost", "server")
	server := ensemble.Start(t, 1, ensemble.WithTLS(append(certificate, key...), a.pem())).Members()[0]
	as := func(subject string) *protocol.Client {
		dir := t.TempDir()
		files := protocol.TLSFiles{CA: dir + "/ca.pem", Certificate: dir + "/cert.pem", Key: dir + "/key.pem", ServerName: "localhost"}
		certificate, key := a.pair(t, "client", subject)
		for name, content := range map[string][]byte{files.CA: a.pem(), files.Certificate: certificate, files.Key: key} {
			require.NoError(t, os.WriteFile(name, content, 0o600))
		}
		return connect(t, server.SecureConnectString(), protocol.WithTLSFiles(files), protocol.WithAuth("x509", nil))
	}
	alice, bob := as("alice"), as("bob")
	g := hold(t, alice, "/x509")
	defer g.Release(suite.Lasting(t))

	acl, _, err := suite.Session(t, alice).Conn().GetACL("/x509")
	require.NoError(t, err)
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=alice"}}, acl)
	_, _, err = suite.Session(t, bob).Children(suite.Lasting(t), "/x509")
	require.ErrorIs(t, err, zk.ErrNoAuth)
}

// The example for clients with certificates runs as its comment says.
func TestTLSExampleOnARealServer(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	a := newAuthority(t)
	certificate, key := a.pair(t, "localhost", "server")
	server := ensemble.Start(t, 1, ensemble.WithTLS(append(certificate, key...), a.pem())).Members()[0]
	_, port, err := net.SplitHostPort(server.SecureConnectString())
	require.NoError(t, err)

	dir := t.TempDir()
	certificate, key = a.pair(t, "client", "billing")
	for name, content := range map[string][]byte{"ca.pem": a.pem(), "billing.pem": certificate, "billing.key": key} {
		require.NoError(t, os.WriteFile(dir+"/"+name, content, 0o600))
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../..", "./examples/tls", "-servers", "localhost:"+port,
		"-ca", dir+"/ca.pem", "-cert", dir+"/billing.pem", "-key", dir+"/billing.key").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "The client takes a lock, with token ")
}

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := new(authority)
	a.cert, a.key = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

// pair returns a certificate for the host "localhost", and of this subject.
func (a *authority) pair(t *testing.T, host, subject string) (certificate, key []byte) {
	t.Helper()
	cert, private := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: subject}, DNSNames: []string{host}})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pemOf("CERTIFICATE", cert.Raw), pemOf("PRIVATE KEY", der)
}

func (a *authority) pem() []byte { return pemOf("CERTIFICATE", a.cert.Raw) }

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
