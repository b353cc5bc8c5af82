package sim_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// rereads simulates clients that create nodes, and look for them again and again in the same
// session.
func rereads(connect func(*sim.World, *sim.Client) *protocol.Client) func(*sim.World) {
	return func(w *sim.World) {
		for _, c := range w.Clients(2) {
			client := connect(w, c)
			c.Go(func(ctx context.Context) error {
				for i := range 10 {
					s, err := recipe.SessionOf(ctx, client)
					if err != nil {
						return err
					}
					if err := reread(ctx, w, c, s, fmt.Sprintf("%s/%s-%d", w.Path, c.Name, i)); err != nil {
						return err
					}
				}

				return nil
			})
		}
	}
}

func reread(ctx context.Context, w *sim.World, c *sim.Client, s *recipe.Session, node string) error {
	if _, err := s.EnsurePath(ctx, w.Path); err != nil {
		return nil // a fault, as below
	}

	if _, err := s.Conn().Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return nil
	}

	for range 4 {
		c.Sleep(ctx, c.Upto(w.Timeout/10))
		if there, _, err := s.Conn().Exists(node); err == nil && !there {
			return fmt.Errorf("%s has created %s, and does not find it", c.Name, node)
		}
	}

	return nil
}

// A session that forgets what it has seen is found by what it reads then. The link does not check
// its handshakes.
func TestSimFindsSessionsThatForgetWhatTheyHaveSeen(t *testing.T) {
	t.Run("forgetful", func(t *testing.T) {
		f := sim.Find(t, rereads(forgetful), sim.WithSeeds(200), sim.WithFaults(sim.CutTwice))
		require.NotNil(t, f)
		require.ErrorContains(t, f.Err, "does not find it")
		t.Log(f)
	})

	t.Run("ours", func(t *testing.T) {
		ours := func(_ *sim.World, c *sim.Client) *protocol.Client { return c.Client }
		sim.Run(t, rereads(ours), sim.WithSeeds(20))
	})
}

// forgetful connects another client of the same process. Its handshakes name no zxid.
func forgetful(w *sim.World, c *sim.Client) *protocol.Client {
	forgetting := func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := c.Dial(network, address, timeout)
		return &forgetfulConn{Conn: conn}, err
	}

	client, err := protocol.Connect(w.Context(), w.Server.ConnectString(),
		protocol.WithDialer(forgetting), protocol.WithSessionTimeout(w.Timeout))
	require.NoError(w, err)
	w.Cleanup(func() { client.Close() })
	return client
}

// A forgetfulConn is a connection whose handshake names no zxid.
type forgetfulConn struct {
	net.Conn
	handshaken bool
}

func (c *forgetfulConn) Write(b []byte) (int, error) {
	if !c.handshaken {
		const zxid = 4 + 4 // after the length and the protocol version
		clear(b[zxid : zxid+8])
		c.handshaken = true
	}
	return c.Conn.Write(b)
}
