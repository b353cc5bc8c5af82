package suite

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority, which signs its own certificate.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := new(Authority)
	a.cert, a.key = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *Authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
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

// Pair returns a certificate for this host and of this subject, and its key, as PEM blocks.
func (a *Authority) Pair(t testing.TB, host, subject string) (certificate, key []byte) {
	t.Helper()
	cert, private := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: subject}, DNSNames: []string{host}})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pemOf("CERTIFICATE", cert.Raw), pemOf("PRIVATE KEY", der)
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return pemOf("CERTIFICATE", a.cert.Raw) }

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Pool returns a pool of the authority's certificate alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Files writes the files of a client with this subject to dir.
func (a *Authority) Files(t testing.TB, dir, subject string) protocol.TLSFiles {
	t.Helper()
	files := protocol.TLSFiles{CA: dir + "/ca.pem", Certificate: dir + "/cert.pem", Key: dir + "/key.pem"}
	certificate, key := a.Pair(t, "localhost", subject)
	for name, content := range map[string][]byte{files.CA: a.PEM(), files.Certificate: certificate, files.Key: key} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
	return files
}
