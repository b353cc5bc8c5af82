package ensemble_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestOptionsReachTheServer(t *testing.T) {
	suite.Needs(t, ensemble.Real(t), suite.TLS)
	a := suite.NewAuthority(t)
	certificate, key := a.Pair(t, "localhost", "everybody")
	cluster := ensemble.Start(t, 1,
		ensemble.WithJVMFlags("-Djute.maxbuffer=2000"),
		ensemble.WithConfig("maxSessionTimeout=30000"),
		ensemble.WithTLS(append(certificate, key...), a.PEM()),
	)
	server := cluster.Leader()

	conn := dial(t, server.ConnectString(), 30*time.Second)
	suite.Got(conn.Create("/small", make([]byte, 1000), 0, zk.WorldACL(zk.PermAll)))(t)
	_, err := conn.Create("/large", make([]byte, 3000), 0, zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrConnectionClosed)

	pair := suite.Got(tls.X509KeyPair(certificate, key))(t)
	config := &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
	secure := dial(t, server.SecureConnectString(), 30*time.Second,
		func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
		})
	require.True(t, suite.ReadAt(t, secure.Exists, "/small"))
}
