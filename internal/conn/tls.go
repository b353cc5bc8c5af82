package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// TLSFiles has the fields of protocol.TLSFiles.
type TLSFiles struct {
	CA, Certificate, Key string
	ServerName           string
}

// A TLSLoader reads files for each handshake. It is safe for concurrent use.
type TLSLoader struct {
	files  TLSFiles
	failed func(error) // called with the error if files can't be read later

	mu     sync.Mutex // protects the fields below
	loaded *tls.Config
	told   string // the last error that failed was called with, unless the files were read since
}

// NewTLSLoader returns a loader, after it has read the files. If files can't be read later, it
// calls failed (once for each error) and uses the former files.
func NewTLSLoader(files TLSFiles, failed func(error)) (*TLSLoader, error) {
	loaded, err := files.load()
	return &TLSLoader{files: files, failed: failed, loaded: loaded}, err
}

// Config returns the configuration for a handshake. It never returns an error.
func (l *TLSLoader) Config() (*tls.Config, error) {
	cfg, err := l.files.load()

	// While files are being replaced one by one, the former configuration goes on.
	l.mu.Lock()
	news := err != nil && err.Error() != l.told

	switch {
	case err == nil:
		l.loaded, l.told = cfg, ""
	case news:
		l.told = err.Error()
	}
	cfg = l.loaded
	l.mu.Unlock()

	if news {
		l.failed(err) // without mu: other handshakes must not wait for a logger
	}

	return cfg, nil
}

func (f TLSFiles) load() (*tls.Config, error) {
	if (f.Certificate == "") != (f.Key == "") {
		return nil, errors.New("TLS: a certificate needs a key, and a key a certificate: give both files or none")
	}
	cfg := &tls.Config{ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS: %s has no certificate in PEM", f.CA)
		}
	}

	if f.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, fmt.Errorf("TLS: certificate %s with key %s: %w", f.Certificate, f.Key, err)
		}
		cfg.Certificates = []tls.Certificate{certificate}
	}

	return cfg, nil
}

// dialTLS connects over TLS. The certificate must be for the server's host, or for the
// configuration's ServerName.
func dialTLS(ctx context.Context, dial DialFunc, config func() (*tls.Config, error), network string, to target, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cfg, err := config()
	if err != nil {
		return nil, err
	}

	host, _, err := net.SplitHostPort(to.server)
	if err != nil {
		return nil, err
	}
	// The certificate is for the host in the connect string, whatever the address dialled.
	cfg = cfg.Clone()
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}

	plain, err := dial(ctx, network, to.address, timeout)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(plain, cfg)
	// The configuration can have functions of the user's.
	_, err = pace.Call(ctx, "TLS configuration", func() (struct{}, error) { return struct{}{}, secure.HandshakeContext(ctx) }, nil)
	if err != nil {
		plain.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", to.server, err)
	}

	return aside{secure}, nil // its Close sends an alert
}

// Dialer returns a dialer that speaks TLS.
func (l *TLSLoader) Dialer() func(network, address string, timeout time.Duration) (net.Conn, error) {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return dialTLS(context.Background(), dialNet, l.Config, network, target{server: address, address: address}, timeout)
	}
}
