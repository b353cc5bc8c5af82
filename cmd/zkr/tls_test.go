package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestTLSFiles(t *testing.T) {
	authority := suite.NewAuthority(t)
	own := authority.Files(t, t.TempDir(), "zkr") // the server has the same certificate, for localhost
	ca, certificate, key := own.CA, own.Certificate, own.Key
	pair := suite.Got(tls.LoadX509KeyPair(certificate, key))(t)
	s, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	_, port, err := net.SplitHostPort(s.ConnectString())
	require.NoError(t, err)
	servers := "localhost:" + port

	files := []string{"--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key}
	succeed(t, servers, append(files, "queue", "offer", "/q", "a")...)
	r := inProcess(t, servers, "", append(files, "queue", "take", "/q")...)
	assert.Equal(t, "a", r.stdout)
	assert.Contains(t, r.stderr, "warning: the servers take no identity from the certificate", "this one knows no x509")

	// Names and the environment do as well. A certificate for another host is found out at once.
	env := map[string]string{"ZKR_SERVERS": servers, "ZKR_TLS_CA": ca, "ZKR_TLS_CERT": certificate, "ZKR_TLS_KEY": key}
	for _, c := range []struct {
		name   string
		status int
	}{{"", 0}, {"localhost", 0}, {"elsewhere.example", exitCertificate}} {
		var stdout, stderr bytes.Buffer
		a := newApp("", nil, &stdout, &stderr)
		a.getenv = func(key string) string { return env[key] }
		env["ZKR_TLS_SERVER_NAME"] = c.name
		began := time.Now()
		assert.Equal(t, c.status, run(t.Context(), a, []string{"queue", "len", "/q", "--wait", "1h"}), "%s: %s", c.name, stderr.String())
		assert.Less(t, time.Since(began), time.Minute)
	}

	// A client that is not trusted (or does not trust) gets an error.
	for name, args := range map[string][]string{
		"no certificate": files[:2],
		"another CA":     {"--tls", "--tls-cert", certificate, "--tls-key", key},
		"no TLS":         {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inProcess(t, servers, "", append(args, "queue", "len", "/q", "--wait", "2s")...)
			assert.Contains(t, []int{exitUnreachable, exitCertificate}, r.status, r.stderr)
		})
	}

	// Bad files are bad usage, and the message names the flag.
	for name, args := range map[string][]string{
		"no CA":       {"--tls-ca", key},
		"no file":     {"--tls-ca", "/nowhere"},
		"key alone":   {"--tls-key", key},
		"no pair":     {"--tls-cert", key, "--tls-key", certificate},
		"no such key": {"--tls-cert", certificate, "--tls-key", "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			r := inProcess(t, servers, "", append(args, "queue", "len", "/q")...)
			assert.Equal(t, exitUsage, r.status, r.stderr)
			assert.Regexp(t, `\Azkr: --tls-[^\n]+\n\z`, r.stderr)
		})
	}
}
