package protocol_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

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

// serverConfig demands certificates of clients that a has signed.
func (a *authority) serverConfig(t *testing.T, host string) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(a.pair(t, host, "server"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
}

// write makes the files of a client. Their time differs from that of earlier ones.
func (a *authority) write(t *testing.T, files protocol.TLSFiles, generation int) {
	t.Helper()
	certificate, key := a.pair(t, "client", "client")
	at := time.Unix(int64(1e9+generation), 0)
	for name, content := range map[string][]byte{files.CA: a.pem(), files.Certificate: certificate, files.Key: key} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
		require.NoError(t, os.Chtimes(name, at, at))
	}
}

func clientFiles(t *testing.T) protocol.TLSFiles {
	dir := t.TempDir()
	return protocol.TLSFiles{CA: dir + "/ca.pem", Certificate: dir + "/cert.pem", Key: dir + "/key.pem"}
}

func TestTLSFilesAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[tls.Config]
	first := newAuthority(t)
	current.Store(first.serverConfig(t, "localhost"))
	server, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil },
	}})
	require.NoError(t, err)
	defer server.Close()
	files := clientFiles(t)
	files.ServerName = "localhost" // the connect string has an address
	first.write(t, files, 1)
	log := new(lines)
	c := connect(t, server.ConnectString(), protocol.WithTLSFiles(files), protocol.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	s := session(t, c)
	again := func() {
		t.Helper()
		server.DropConnections()
		require.NoError(t, s.Sync(lasting(t), "/"))
	}
	again()

	second := newAuthority(t)
	second.write(t, files, 2)
	current.Store(second.serverConfig(t, "localhost"))
	again()

	// A file that is being written is no file yet.
	require.NoError(t, os.WriteFile(files.CA, []byte("-----BEGIN"), 0o600))
	again()
	again()
	require.Equal(t, 1, strings.Count(log.String(), "former ones are used"), "one warning for one error")
	require.Contains(t, log.String(), files.CA)
	_, err = protocol.Connect(lasting(t), server.ConnectString(), protocol.WithTLSFiles(files))
	require.ErrorContains(t, err, files.CA)
}

// A lines is a log. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestServersAreVerifiedByTheirNamesInTheConnectString(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server, err := embedded.Start(embedded.Config{TLS: a.serverConfig(t, "other.example")})
	require.NoError(t, err)
	defer server.Close()
	files := clientFiles(t)
	a.write(t, files, 1)
	_, port, err := net.SplitHostPort(server.ConnectString())
	require.NoError(t, err)

	requireSoon(t, func() bool { // a second may be too short for a handshake
		_, err = protocol.Connect(within(t, time.Second), "localhost:"+port, protocol.WithTLSFiles(files))
		require.Error(t, err)
		return errors.As(err, new(x509.HostnameError))
	}, "the certificate is for another host")
	files.ServerName = "other.example"
	require.NoError(t, session(t, connect(t, "localhost:"+port, protocol.WithTLSFiles(files))).Sync(lasting(t), "/"))
}

func TestTLSThatIsNotSafeIsRefused(t *testing.T) {
	t.Parallel()
	files := clientFiles(t)
	newAuthority(t).write(t, files, 1)
	for want, option := range map[string]protocol.ConnectOption{
		"nil configuration":  protocol.WithTLS(nil),
		"1.2 or later":       protocol.WithTLS(&tls.Config{MinVersion: tls.VersionTLS11}),
		"InsecureSkipVerify": protocol.WithTLS(&tls.Config{InsecureSkipVerify: true}),
		"both files or none": protocol.WithTLSFiles(protocol.TLSFiles{Certificate: files.Certificate}),
		"/nowhere/key.pem":   protocol.WithTLSFiles(protocol.TLSFiles{Certificate: files.Certificate, Key: "/nowhere/key.pem"}),
		files.Key:            protocol.WithTLSFiles(protocol.TLSFiles{Certificate: files.Certificate, Key: files.Certificate}),
		"has no certificate": protocol.WithTLSFiles(protocol.TLSFiles{CA: files.Key}),
		"is a directory":     protocol.WithTLSFiles(protocol.TLSFiles{CA: t.TempDir()}),
	} {
		_, err := protocol.Connect(t.Context(), "127.0.0.1:1", option)
		if want == files.Key {
			want = files.Certificate
		}
		require.ErrorContains(t, err, want)
	}
	_, err := protocol.TLSFiles{CA: "/nowhere/ca.pem"}.Dialer()
	require.ErrorContains(t, err, "/nowhere/ca.pem")
}

func TestTLSWorksThroughALink(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t, recipestest.WithMutualTLS())
	link, config := srv.Link(t), srv.TLSConfig()
	config.MinVersion = tls.VersionTLS12
	c := connect(t, srv.ConnectString(), protocol.WithTLS(config), protocol.WithDialer(link.DialTLS))
	root := srv.Root(t)
	g := hold(t, c, root)
	link.Cut()
	link.Heal()
	require.NoError(t, g.Release(lasting(t)))
	require.NotZero(t, link.Count(recipestest.OpCreate)+link.Count(recipestest.OpMulti))
}
