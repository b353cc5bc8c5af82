package recipestest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// TLSConfig returns a client's configuration for TLS with the server: the CA to trust, the name to
// expect, and a client certificate. It is a copy, so the caller may change it. It is nil if the
// server doesn't speak TLS.
func (s *Server) TLSConfig() *tls.Config {
	if s.tls == nil {
		return nil
	}
	return s.tls.client.Clone()
}

// secrecy has the TLS configurations of both sides.
type secrecy struct{ server, client *tls.Config }

func newSecrecy(clients tls.ClientAuthType) (*secrecy, error) {
	authority, key, err := certify(nil, nil)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	var certificates [2]tls.Certificate // of the server, and of its clients
	for i := range certificates {
		leaf, own, err := certify(authority, key)
		if err != nil {
			return nil, err
		}
		certificates[i] = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: own, Leaf: leaf}
	}

	return &secrecy{
		server: &tls.Config{Certificates: certificates[:1], ClientAuth: clients, ClientCAs: roots},
		client: &tls.Config{Certificates: certificates[1:], RootCAs: roots, ServerName: "localhost"},
	}, nil
}

// certify makes a key, and a certificate for it. The CA signs the certificate. If ca is nil, the
// certificate is for a CA itself.
func certify(ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}

	now := time.Now() // can be virtual
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "recipestest"},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),

		BasicConstraintsValid: true,
	}
	// A CA signs itself.
	if ca == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		ca, caKey = template, key
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	made, err := x509.ParseCertificate(der)
	return made, key, err
}

// over returns a dialer that speaks TLS over the connections of dial.
func (s *secrecy) over(dial zk.Dialer) zk.Dialer {
	if s == nil {
		return dial
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		plain, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		// Dial is done only after the handshake, so that its errors are errors of dialing.
		c := tls.Client(plain, s.client)
		plain.SetDeadline(time.Now().Add(timeout))
		if err := c.Handshake(); err != nil {
			plain.Close()
			return nil, err
		}
		plain.SetDeadline(time.Time{})
		return c, nil
	}
}
