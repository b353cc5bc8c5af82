package recipestest_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Everything works as without TLS: clients, faults of a link, credentials and what is checked at
// the end. So it does over TCP, in memory inside a bubble, and with followers that lag.
func TestClientsOfATLSServer(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]recipestest.Option{
		"tcp":     {recipestest.WithTLS()},
		"lagging": {recipestest.WithTLS(), recipestest.Lagging(time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testClientsOfATLSServer(t, recipestest.Start(t, append(opts, lasting)...))
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		recipestest.Bubble(t, testClientsOfATLSServer, recipestest.WithTLS())
	})
}

func testClientsOfATLSServer(t *testing.T, s *recipestest.Server) {
	root, link := s.Root(t), s.Link(t)
	c := link.Client(t, protocol.WithAuth("digest", []byte("alice:secret")),
		protocol.WithSessionTimeout(40*time.Second)) // on a machine that computes
	session := suite.Got(recipe.SessionOf(t.Context(), c))(t)
	link.LoseReply(recipestest.OpCreate, 1)
	_, err := session.Conn().Create(root, []byte("hers"), 0, zk.AuthACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	suite.Got(recipe.Do(t.Context(), session, func(conn *zk.Conn) (string, error) { return conn.Sync(root) }))(t)
	require.Equal(t, 1, link.Count(recipestest.OpCreate))
	require.Equal(t, 2, link.Count(recipestest.OpConnect))

	other := s.Conn(t)
	suite.Got(other.Sync(root))(t)
	_, _, err = other.Get(root)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, other.AddAuth("digest", []byte("alice:secret")))
	data := suite.ReadAt(t, other.Get, root)
	require.Equal(t, "hers", string(data))

	suite.Blip(link)
	_, err = recipe.Do(t.Context(), session, func(conn *zk.Conn) (struct{}, error) {
		return struct{}{}, conn.Delete(root, -1)
	})
	require.NoError(t, err)
	s.ExpireSession(session.ID())
	suite.Wait(t, session.Done())
}

func TestTLSServerRefusesOthers(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t, recipestest.WithMutualTLS())
	dial := func(change func(*tls.Config)) error {
		config := s.TLSConfig()
		change(config)
		conn, err := tls.Dial("tcp", s.ConnectString(), config)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("ruok")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 4))
		return err
	}

	require.Nil(t, recipestest.Start(t).TLSConfig())
	require.NoError(t, dial(func(*tls.Config) {}))
	require.ErrorContains(t, dial(func(config *tls.Config) { config.Certificates = nil }), "certificate required")
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, dial(func(config *tls.Config) { config.RootCAs = x509.NewCertPool() }), &unknown)

	plain := suite.Got(net.Dial("tcp", s.ConnectString()))(t)
	defer plain.Close()
	_, err := plain.Write([]byte("ruok")) // begins no handshake
	require.NoError(t, err)
	require.NoError(t, plain.(*net.TCPConn).CloseWrite())
	answer, _ := io.ReadAll(plain)
	require.NotContains(t, string(answer), "imok")
}
