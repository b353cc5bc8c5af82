package protocol

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
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
	return connectOption(func(c *session.Client) error {
		switch {
		case cfg == nil:
			return errors.New("TLS: nil configuration: give &tls.Config{} to trust the CAs of the system")
		case cfg.MinVersion != 0 && cfg.MinVersion < tls.VersionTLS12:
			return fmt.Errorf("TLS: MinVersion %s: must be 1.2 or later", tls.VersionName(cfg.MinVersion))
		case cfg.InsecureSkipVerify && cfg.VerifyConnection == nil && cfg.VerifyPeerCertificate == nil:
			return errors.New("TLS: InsecureSkipVerify lets any server in: set RootCAs, or check certificates in VerifyConnection")
		}
		cfg := cfg.Clone()
		c.TLS = func() (*tls.Config, error) { return cfg, nil }
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
	return connectOption(func(c *session.Client) error {
		loader, err := conn.NewTLSLoader(conn.TLSFiles(files), func(err error) {
			c.Root.Log.Warn("TLS files not read again: the former ones are used", "error", err)
		})
		c.TLS = loader.Config
		return err
	})
}

// Dialer returns a dialer that speaks TLS as [WithTLSFiles] does, for other users of ZooKeeper's
// ports.
func (f TLSFiles) Dialer() (zk.Dialer, error) {
	loader, err := conn.NewTLSLoader(conn.TLSFiles(f), func(error) {})
	if err != nil {
		return nil, err
	}
	return loader.Dialer(), nil
}
