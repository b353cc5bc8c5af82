package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// An authority writes certificates and keys to a directory. (In production your company's CA does
// that.)
type authority struct {
	dir string
	err error // the first error
}

// An identity is a certificate and its key, in files.
type identity struct {
	cert, key   string
	pem         []byte // of the certificate
	certificate *x509.Certificate
	private     *ecdsa.PrivateKey
}

// issue makes a certificate for name, for an hour. Without a signer, name is a CA.
func (a *authority) issue(name string, signer *identity) *identity {
	path := filepath.Join(a.dir, name)
	id := &identity{cert: path + ".pem", key: path + ".key", certificate: &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
	}}
	if signer == nil {
		id.certificate.IsCA, id.certificate.BasicConstraintsValid = true, true
		signer = id
	}

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	id.private = private
	cert, err := x509.CreateCertificate(rand.Reader, id.certificate, signer.certificate, private.Public(), signer.private)
	a.check(err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	a.check(err)
	id.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	a.check(os.WriteFile(id.cert, id.pem, 0o600))
	a.check(os.WriteFile(id.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return id
}

func (a *authority) check(err error) {
	if a.err == nil {
		a.err = err
	}
}
