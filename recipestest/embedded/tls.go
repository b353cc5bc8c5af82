package embedded

import (
	"crypto/tls"
	"net"
)

// secured returns the server's end of a connection. It speaks TLS unless cfg is nil. The handshake
// comes with the first packet.
func secured(nc net.Conn, cfg *tls.Config) net.Conn {
	if cfg == nil {
		return nc
	}
	return secureConn{tls.Server(nc, cfg)}
}

// A secureConn closes without an alert, because an alert could block.
type secureConn struct{ *tls.Conn }

func (c secureConn) Close() error { return c.NetConn().Close() }
