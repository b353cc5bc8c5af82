package protocol_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// serverConfig demands certificates of clients that a has signed.
func serverConfig(t *testing.T, a *suite.Authority, host string) *tls.Config {
	t.Helper()
	pair := suite.Got(tls.X509KeyPair(a.Pair(t, host, "server")))(t)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()}
}

// write makes the files of a client, with another time than before.
func write(t *testing.T, a *suite.Authority, dir string, generation int) protocol.TLSFiles {
	t.Helper()
	files := a.Files(t, dir, "client")
	at := time.Unix(int64(1e9+generation), 0)
	for _, name := range []string{files.CA, files.Certificate, files.Key} {
		require.NoError(t, os.Chtimes(name, at, at))
	}
	return files
}

func TestTLSFilesAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[tls.Config]
	first := suite.NewAuthority(t)
	current.Store(serverConfig(t, first, "localhost"))
	server, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil },
	}})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() }) // after the client
	dir := t.TempDir()
	files := write(t, first, dir, 1)
	files.ServerName = "localhost" // the connect string has an address
	log := newJournal()
	c := connect(t, server.ConnectString(), protocol.WithTLSFiles(files), log.logger())
	s := suite.Session(t, c)
	again := func() {
		t.Helper()
		server.DropConnections()
		require.NoError(t, s.Sync(suite.Lasting(t), "/"))
	}

	again()

	second := suite.NewAuthority(t)
	write(t, second, dir, 2)
	current.Store(serverConfig(t, second, "localhost"))
	again()

	// A file that is being written is no file yet.
	require.NoError(t, os.WriteFile(files.CA, []byte("-----BEGIN"), 0o600))
	again()
	again()
	warnings := log.take("former ones are used")
	require.Len(t, warnings, 1, "one warning for one error")
	require.Contains(t, warnings[0], files.CA)
	_, err = protocol.Connect(suite.Lasting(t), server.ConnectString(), protocol.WithTLSFiles(files))
	require.ErrorContains(t, err, files.CA)
}

func TestServersAreVerifiedByTheirNamesInTheConnectString(t *testing.T) {
	t.Parallel()
	a := suite.NewAuthority(t)
	server := suite.Got(embedded.Start(embedded.Config{TLS: serverConfig(t, a, "other.example")}))(t)
	t.Cleanup(func() { server.Close() }) // after the client
	files := a.Files(t, t.TempDir(), "client")
	_, port, err := net.SplitHostPort(server.ConnectString())
	require.NoError(t, err)

	suite.Soon(t, func() bool { // a second can be too short for a handshake
		_, err = protocol.Connect(suite.Within(t, time.Second), "localhost:"+port, protocol.WithTLSFiles(files))
		require.Error(t, err)
		return errors.As(err, new(x509.HostnameError))
	}, "the certificate is for another host")
	files.ServerName = "other.example"
	require.NoError(t, suite.Session(t, connect(t, "localhost:"+port, protocol.WithTLSFiles(files))).Sync(suite.Lasting(t), "/"))
}

func TestTLSThatIsNotSafeIsRefused(t *testing.T) {
	t.Parallel()
	files := suite.NewAuthority(t).Files(t, t.TempDir(), "client")

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

	require.ErrorContains(t, suite.Err(protocol.TLSFiles{CA: "/nowhere/ca.pem"}.Dialer()), "/nowhere/ca.pem")
}
