package protocol

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// WithTLS speaks TLS with the servers, over the connections of [WithDialer] if that is given. Each
// server has to have a certificate for its host in the connect string, or for cfg.ServerName if
// that is set. &tls.Config{} trusts the CAs of the system.
//
// The version is 1.2 at least. WithTLS returns an error for a lower cfg.MinVersion, and for
// cfg.InsecureSkipVerify without a VerifyConnection or VerifyPeerCertificate, as any server would
// then be let in. cfg is cloned. [WithTLSFiles] reads files, and reads them again when they change.
// The last of the two counts.
func WithTLS(cfg *tls.Config) ConnectOption {
	return connectOption(func(c *Client) error {
		switch {
		case cfg == nil:
			return errors.New("TLS: nil configuration: give &tls.Config{} to trust the CAs of the system")
		case cfg.MinVersion != 0 && cfg.MinVersion < tls.VersionTLS12:
			return fmt.Errorf("TLS: MinVersion %s: must be 1.2 or later", tls.VersionName(cfg.MinVersion))
		case cfg.InsecureSkipVerify && cfg.VerifyConnection == nil && cfg.VerifyPeerCertificate == nil:
			return errors.New("TLS: InsecureSkipVerify lets any server in: set RootCAs, or check certificates in VerifyConnection")
		}
		cfg := cfg.Clone()
		c.tls = func() (*tls.Config, error) { return cfg, nil }
		return nil
	})
}

// A TLSFiles names files in PEM for TLS. The zero value trusts the CAs of the system, and presents
// no certificate.
type TLSFiles struct {
	CA          string // certificates to trust instead of the system's
	Certificate string // the client's own certificate, and those between it and the CA
	Key         string // the key of that certificate
	ServerName  string // what the servers' certificates are for, instead of their hosts in the connect string
}

// WithTLSFiles is [WithTLS] with certificates from files. Before each handshake the client looks
// whether a file has another size or time than before, which costs a system call for each, and then
// reads all of them. As long as they cannot be read, or do not fit together, the former ones are
// used, and the logger gets a warning, once for each error. So files can be replaced one by one. A
// connection that exists is not concerned.
//
// [Connect] returns an error that names the file if they cannot be read at first.
func WithTLSFiles(files TLSFiles) ConnectOption {
	return connectOption(func(c *Client) error {
		loader := &tlsLoader{files: files, failed: func(err error) {
			c.log.Warn("TLS files not read again: the former ones are used", "error", err)
		}}
		if _, err := loader.config(); err != nil {
			return err
		}
		c.tls = loader.config
		return nil
	})
}

// Dialer returns a dialer that speaks TLS as [WithTLSFiles] does, for other users of ZooKeeper's
// ports.
func (f TLSFiles) Dialer() (zk.Dialer, error) {
	loader := &tlsLoader{files: f, failed: func(error) {}}
	if _, err := loader.config(); err != nil {
		return nil, err
	}
	dial := dialTLS(dialNet, net.DefaultResolver.LookupHost, loader.config)
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return dial(context.Background(), network, address, timeout)
	}, nil
}

// A tlsLoader reads files whenever they have changed. It is safe for concurrent use.
type tlsLoader struct {
	files  TLSFiles
	failed func(error) // told of files that cannot be read, while there are former ones

	mu     sync.Mutex // protects what follows
	loaded *tls.Config
	stamps []fileStamp // of the files when they were read
	told   string      // the error that failed was told of since then
}

// A fileStamp changes when a file does.
type fileStamp struct {
	size     int64
	modified time.Time
}

// config returns the configuration for a handshake.
func (l *tlsLoader) config() (*tls.Config, error) {
	cfg, news, err := l.read()
	if news != nil {
		l.failed(news) // without mu: other handshakes must not wait for a logger
	}
	return cfg, err
}

// read returns the configuration. If that is a former one, news is why, unless it was returned
// before.
func (l *tlsLoader) read() (cfg *tls.Config, news, err error) {
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
			return nil, fmt.Errorf("TLS: %w", err) // which names the file
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

type dialFunc = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error)

// dialTLS returns what makes connections of dial speak TLS. Of several addresses of a server it
// takes one at random. Without lookup, dial resolves names.
func dialTLS(dial dialFunc, lookup func(context.Context, string) ([]string, error), config func() (*tls.Config, error)) dialFunc {
	return func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		cfg, err := config()
		if err != nil {
			return nil, err
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
		if cfg.ServerName == "" {
			cfg.ServerName = host
		}

		target := address
		if lookup != nil && net.ParseIP(host) == nil {
			if hosts, err := lookup(ctx, host); err == nil && len(hosts) > 0 {
				target = net.JoinHostPort(hosts[rand.IntN(len(hosts))], port)
			}
		}
		plain, err := dial(ctx, network, target, timeout)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(plain, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
		}
		return secure, nil
	}
}
