package embedded

import (
	"crypto/tls"
	"net"
)

// secured returns the server's end of a connection, over which it speaks TLS if it is configured to
// do so. The handshake comes with the first packet.
func (s *Server) secured(nc net.Conn) net.Conn {
	if s.cfg.TLS == nil {
		return nc
	}
	return secureConn{tls.Server(nc, s.cfg.TLS)}
}

// A secureConn closes without an alert, which could block.
type secureConn struct{ *tls.Conn }

func (c secureConn) Close() error { return c.NetConn().Close() }
