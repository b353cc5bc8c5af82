package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// pemFiles writes a certificate for 127.0.0.1 that has signed itself, and its key.
func pemFiles(t *testing.T) (certificate, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(secret)
	require.NoError(t, err)

	certificate, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: signed},
		key:         {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return certificate, key
}

func TestTLSFiles(t *testing.T) {
	certificate, key := pemFiles(t)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(t, err)
	content, err := os.ReadFile(certificate)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(content))
	s, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	}})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })

	files := []string{"--tls-ca", certificate, "--tls-cert", certificate, "--tls-key", key}
	succeed(t, s.ConnectString(), append(files, "queue", "offer", "/q", "a")...)
	r := inProcess(t, s.ConnectString(), "", append(files, "queue", "take", "/q")...)
	assert.Equal(t, "a", r.stdout)
	assert.Contains(t, r.stderr, "warning: the servers take no identity from the certificate", "this one knows no x509")

	// Names and the environment do as well. A certificate for another host is found out at once.
	env := map[string]string{"ZKR_SERVERS": s.ConnectString(), "ZKR_TLS_CA": certificate, "ZKR_TLS_CERT": certificate, "ZKR_TLS_KEY": key}
	for _, c := range []struct {
		name   string
		status int
	}{{"", 0}, {"127.0.0.1", 0}, {"elsewhere.example", exitCertificate}} {
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
			r := inProcess(t, s.ConnectString(), "", append(args, "queue", "len", "/q", "--wait", "2s")...)
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
			r := inProcess(t, s.ConnectString(), "", append(args, "queue", "len", "/q")...)
			assert.Equal(t, exitUsage, r.status, r.stderr)
			assert.Regexp(t, `\Azkr: --tls-[^\n]+\n\z`, r.stderr)
		})
	}
}
