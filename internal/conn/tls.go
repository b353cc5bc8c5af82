package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// TLSFiles has the fields of protocol.TLSFiles.
type TLSFiles struct {
	CA, Certificate, Key string
	ServerName           string
}

// A TLSLoader reads files whenever they have changed. It is safe for concurrent use.
type TLSLoader struct {
	files  TLSFiles
	failed func(error) // called with the error if files can't be read later

	mu     sync.Mutex // protects the fields below
	loaded *tls.Config
	stamps []fileStamp // the files' stamps when they were read
	told   string      // the last error that failed was called with
}

// A fileStamp changes when a file does.
type fileStamp struct {
	size     int64
	modified time.Time
}

// NewTLSLoader returns a loader, after it has read the files. If files can't be read later, it
// calls failed and uses the former files.
func NewTLSLoader(files TLSFiles, failed func(error)) (*TLSLoader, error) {
	l := &TLSLoader{files: files, failed: failed}
	_, err := l.Config()
	return l, err
}

// Config returns the configuration for a handshake.
func (l *TLSLoader) Config() (*tls.Config, error) {
	cfg, news, err := l.read()
	if news != nil {
		l.failed(news) // without mu: other handshakes must not wait for a logger
	}
	return cfg, err
}

// read returns the configuration. If it returns a former configuration, news says why (once for
// each error).
func (l *TLSLoader) read() (cfg *tls.Config, news, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamps, err := l.files.stamps()
	if err == nil && l.loaded != nil && slices.Equal(stamps, l.stamps) {
		l.told = ""
		return l.loaded, nil, nil
	}

	if err == nil {
		cfg, err = l.files.load()
	}
	switch {
	case err == nil:
		l.loaded, l.stamps, l.told = cfg, stamps, ""
	case l.loaded == nil:
		return nil, nil, err
	case err.Error() != l.told:
		l.told = err.Error()
		return l.loaded, err, nil
	}

	return l.loaded, nil, nil
}

func (f TLSFiles) stamps() ([]fileStamp, error) {
	var stamps []fileStamp
	for _, name := range []string{f.CA, f.Certificate, f.Key} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err) // the error names the file
		}
		stamps = append(stamps, fileStamp{info.Size(), info.ModTime()})
	}

	return stamps, nil
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
	if err := secure.HandshakeContext(ctx); err != nil {
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
