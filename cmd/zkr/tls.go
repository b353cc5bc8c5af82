package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// tlsFlags is what the TLS flags give. A file or a name turns TLS on.
type tlsFlags struct {
	on                  bool
	ca, cert, key, name string
}

// tlsFiles returns what the flags or the environment say, and a dialer for that, or nil if TLS is
// not wanted. The files are read again when they change, as a command may run for long.
func (a *app) tlsFiles() (files protocol.TLSFiles, dial zk.Dialer, err error) {
	files = protocol.TLSFiles{
		CA: cmp.Or(a.tls.ca, a.getenv("ZKR_TLS_CA")), Certificate: cmp.Or(a.tls.cert, a.getenv("ZKR_TLS_CERT")),
		Key: cmp.Or(a.tls.key, a.getenv("ZKR_TLS_KEY")), ServerName: cmp.Or(a.tls.name, a.getenv("ZKR_TLS_SERVER_NAME")),
	}
	switch {
	case !a.tls.on && files == protocol.TLSFiles{}:
		return files, nil, nil
	case (files.Certificate == "") != (files.Key == ""):
		return files, nil, usagef("--tls-cert and --tls-key: give both or none")
	}
	if dial, err = files.Dialer(); err != nil {
		err = usagef("--tls-ca, --tls-cert or --tls-key: %w", err)
	}
	return files, dial, err
}

// badCertificate returns an error if a server has a certificate that is not to be trusted.
func (a *app) badCertificate(servers string) error {
	_, dial, err := a.tlsFiles()
	if dial == nil || err != nil {
		return nil
	}
	hosts, _, _ := strings.Cut(servers, "/")
	for address := range strings.SplitSeq(hosts, ",") {
		conn, err := dial("tcp", address, connectLimit)
		if err == nil {
			conn.Close()
		}
		if bad := new(tls.CertificateVerificationError); errors.As(err, &bad) {
			return fmt.Errorf("%s: %w", address, bad)
		}
	}
	return nil
}
