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

// tlsFiles returns the files from the flags or the environment, and a dialer (nil without TLS). The
// dialer reads the files again when they change, because a command can run for long.
func (a *app) tlsFiles() (files protocol.TLSFiles, dial zk.Dialer, err error) {
	files = protocol.TLSFiles{
		CA: cmp.Or(a.tls.CA, a.getenv("ZKR_TLS_CA")), Certificate: cmp.Or(a.tls.Certificate, a.getenv("ZKR_TLS_CERT")),
		Key: cmp.Or(a.tls.Key, a.getenv("ZKR_TLS_KEY")), ServerName: cmp.Or(a.tls.ServerName, a.getenv("ZKR_TLS_SERVER_NAME")),
	}

	switch {
	case !a.tlsOn && files == protocol.TLSFiles{}:
		return files, nil, nil
	case (files.Certificate == "") != (files.Key == ""):
		return files, nil, usagef("--tls-cert and --tls-key: give both or none")
	}

	if dial, err = files.Dialer(); err != nil {
		err = usagef("--tls-ca, --tls-cert or --tls-key: %w", err)
	}
	return files, dial, err
}

// badCertificate returns an error if the certificate of a server can't be trusted.
func (a *app) badCertificate(servers string) error {
	_, dial, err := a.tlsFiles()
	if dial == nil || err != nil {
		return nil
	}

	// One handshake with each server is enough to find a bad certificate.
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
