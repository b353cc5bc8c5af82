package main

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// tlsFiles is what the TLS flags give. A file turns TLS on.
type tlsFiles struct {
	on            bool
	ca, cert, key string
}

// dialer returns what makes connections with TLS, or nil if that is not wanted. The files are read
// again when they change, as a command may run for long.
func (f tlsFiles) dialer() (zk.Dialer, error) {
	if !f.on && f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--tls-cert and --tls-key: give both or none")
	}

	dial, err := protocol.TLSFiles{CA: f.ca, Certificate: f.cert, Key: f.key}.Dialer()
	if err != nil {
		return nil, usagef("--tls-ca, --tls-cert or --tls-key: %w", err)
	}
	return dial, nil
}
