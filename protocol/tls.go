package protocol

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithTLS speaks TLS with the servers (over the connections of [WithDialer] if there is one). Each
// server must have a certificate for its host in the connect string (or for cfg.ServerName).
// &tls.Config{} trusts the CAs of the system.
//
// The version is at least 1.2. WithTLS returns an error for a lower cfg.MinVersion. It also refuses
// a cfg.InsecureSkipVerify that would let in any server (without a VerifyConnection or
// VerifyPeerCertificate). cfg is cloned. The last WithTLS or [WithTLSFiles] counts.
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

// A TLSFiles names PEM files for TLS. The zero value trusts the CAs of the system and presents no
// certificate.
type TLSFiles struct {
	CA          string // certificates to trust instead of the system's
	Certificate string // the client's own certificate and those between it and the CA
	Key         string // the key of that certificate
	ServerName  string // the name in the servers' certificates, instead of their hosts in the connect string
}

// WithTLSFiles is [WithTLS] with certificates from files. The client reads them before each
// handshake, so files can be replaced one by one. If they can't be read or don't fit together, it
// uses the former certificates and the logger gets a warning. If they can't be read at first,
// [Connect] returns an error that names the file.
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
