package ensemble_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestOptionsReachTheServer(t *testing.T) {
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	certificate, pool, text := newCertificate(t)
	cluster := ensemble.Start(t, 1,
		ensemble.WithJVMFlags("-Djute.maxbuffer=2000"),
		ensemble.WithConfig("maxSessionTimeout=30000"),
		ensemble.WithTLS(text, text),
	)
	server := cluster.Leader()

	conn := dial(t, server.ConnectString(), 30*time.Second)
	_, err := conn.Create("/small", make([]byte, 1000), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = conn.Create("/large", make([]byte, 3000), 0, zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrConnectionClosed)

	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}}
	secure := dial(t, server.SecureConnectString(), 30*time.Second,
		func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
		})
	exists, _, err := secure.Exists("/small")
	require.NoError(t, err)
	require.True(t, exists)
}

// newCertificate creates a self-signed certificate for server and clients. It returns the
// certificate, a pool of it alone, and both certificate and key as PEM.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ensemble"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)

	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	certificate, err := tls.X509KeyPair(certText, keyText)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certText))
	return certificate, pool, append(certText, keyText...)
}
