package embedded

import (
	"crypto/tls"
	"net"
)

// secured returns the server's end of a connection. It speaks TLS if the server is configured for
// TLS. The handshake comes with the first packet.
func (s *Server) secured(nc net.Conn) net.Conn {
	if s.cfg.TLS == nil {
		return nc
	}
	return secureConn{tls.Server(nc, s.cfg.TLS)}
}

// A secureConn closes without an alert, because an alert could block.
type secureConn struct{ *tls.Conn }

func (c secureConn) Close() error { return c.NetConn().Close() }
