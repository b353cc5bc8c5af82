package protocol_test

import (
	"bytes"
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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestDialerMayUseTLS(t *testing.T) {
	t.Parallel()
	certificate, key := selfSigned(t)
	server := ensemble.Start(t, 1, ensemble.WithTLS(append(certificate, key...), nil)).Members()[0]
	over := func(roots *x509.CertPool) protocol.ConnectOption {
		return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			d := &net.Dialer{Timeout: timeout}
			return tls.DialWithDialer(d, network, address, &tls.Config{RootCAs: roots, ServerName: "localhost"})
		})
	}
	trusting := x509.NewCertPool()
	require.True(t, trusting.AppendCertsFromPEM(certificate))

	c := connect(t, server.SecureConnectString(), over(trusting))
	g := hold(t, c, "/tls")
	require.NoError(t, g.Release(lasting(t)))

	requireSoon(t, func() bool { // a second may be too short for a handshake
		_, err := protocol.Connect(within(t, time.Second), server.SecureConnectString(), over(x509.NewCertPool()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var unknown x509.UnknownAuthorityError
		return errors.As(err, &unknown)
	}, "the error says what is wrong")

	_, err := protocol.Connect(within(t, time.Second), server.SecureConnectString())
	require.Error(t, err, "without TLS")
}

// selfSigned returns a certificate for localhost, and its key, in PEM.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localhost"},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	var c, k bytes.Buffer
	require.NoError(t, pem.Encode(&c, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	require.NoError(t, pem.Encode(&k, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	return c.Bytes(), k.Bytes()
}
