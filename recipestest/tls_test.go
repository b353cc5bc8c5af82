package recipestest_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// secured runs a test with a server that speaks TLS: over TCP, in memory inside a bubble, and with
// followers that lag.
func secured(t *testing.T, option recipestest.Option, test func(t *testing.T, s *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	for name, opts := range map[string][]recipestest.Option{
		"tcp":     {option},
		"lagging": {option, recipestest.Lagging(time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, recipestest.Start(t, opts...))
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			test(t, recipestest.Start(t, option, recipestest.WithInMemory()))
		})
	})
}

// Everything works as without TLS: clients, faults of a link, credentials and what is checked at
// the end.
func TestClientsOfATLSServer(t *testing.T) {
	secured(t, recipestest.WithTLS(), func(t *testing.T, s *recipestest.Server) {
		root, link := s.Root(t), s.Link(t)
		c := link.Client(t, protocol.WithAuth("digest", []byte("alice:secret")))
		session, err := recipe.SessionOf(t.Context(), c)
		require.NoError(t, err)
		link.LoseReply(recipestest.OpCreate, 1)
		_, err = session.Conn().Create(root, []byte("hers"), 0, zk.AuthACL(zk.PermAll))
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		_, err = recipe.Do(t.Context(), session, func(conn *zk.Conn) (string, error) { return conn.Sync(root) })
		require.NoError(t, err)
		require.Equal(t, 1, link.Count(recipestest.OpCreate))
		require.Equal(t, 2, link.Count(recipestest.OpConnect))

		other := s.Conn(t)
		_, err = other.Sync(root)
		require.NoError(t, err)
		_, _, err = other.Get(root)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NoError(t, other.AddAuth("digest", []byte("alice:secret")))
		data, _, err := other.Get(root)
		require.NoError(t, err)
		require.Equal(t, "hers", string(data))

		link.Cut()
		link.Heal()
		_, err = recipe.Do(t.Context(), session, func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.Delete(root, -1)
		})
		require.NoError(t, err)
		s.ExpireSession(session.ID())
		<-session.Done()
	})
}

// A program that speaks TLS itself does so with the server, and over a link.
func TestProgramThatSpeaksTLSItself(t *testing.T) {
	secured(t, recipestest.WithMutualTLS(), func(t *testing.T, s *recipestest.Server) {
		link, root := s.Link(t), s.Root(t)
		c := connect(t, s, func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.DialTLS(network, address, timeout)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, s.TLSConfig()), nil
		}, 10*time.Second)
		create(t, c, root, 0)
		require.Equal(t, 1, link.Count(recipestest.OpCreate), "the link tells packets apart")

		link.LoseReply(recipestest.OpSetData, 1)
		_, err := c.Set(root, []byte("new"), -1)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		link.Cut()
		_, err = link.DialTLS("tcp", s.ConnectString(), time.Second)
		require.Error(t, err)
		link.Heal()
		requireExists(t, c, root, true)
		data, _, err := c.Get(root)
		require.NoError(t, err)
		require.Equal(t, "new", string(data))
	})
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

	require.NoError(t, dial(func(*tls.Config) {}))
	require.ErrorContains(t, dial(func(config *tls.Config) { config.Certificates = nil }), "certificate required")
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, dial(func(config *tls.Config) { config.RootCAs = x509.NewCertPool() }), &unknown)

	plain, err := net.Dial("tcp", s.ConnectString())
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.Write([]byte("ruok")) // begins no handshake
	require.NoError(t, err)
	require.NoError(t, plain.(*net.TCPConn).CloseWrite())
	answer, _ := io.ReadAll(plain)
	require.NotContains(t, string(answer), "imok")
}

func TestTLSIsAskedForOfAServerThatSpeaksIt(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t)
	require.Nil(t, s.TLSConfig())
	_, err := s.Link(t).DialTLS("tcp", s.ConnectString(), time.Second)
	require.ErrorContains(t, err, "does not speak TLS: start it with WithTLS")
}
