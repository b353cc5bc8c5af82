package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"time"

	"github.com/go-zookeeper/zk"
)

// tlsFiles is what the TLS flags give. A file turns TLS on.
type tlsFiles struct {
	on            bool
	ca, cert, key string
}

// dialer returns what makes connections with TLS, or nil if that is not wanted.
func (f tlsFiles) dialer() (zk.Dialer, error) {
	if !f.on && f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}

	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, usagef("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca %s: has no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--tls-cert and --tls-key: give both or none")
	}
	if f.cert != "" {
		certificate, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usagef("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{certificate}
	}

	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, cfg)
	}, nil
}
