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
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// rereads simulates clients that make nodes, and look again and again whether they are there, in the same session.
func rereads(connect func(*sim.World, *sim.Client) *protocol.Client) func(*sim.World) {
	return func(w *sim.World) {
		for _, c := range w.Clients(2) {
			client := connect(w, c)
			c.Go(func(ctx context.Context) error {
				for i := range 10 {
					s, err := client.Session(ctx)
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

func reread(ctx context.Context, w *sim.World, c *sim.Client, s *protocol.Session, node string) error {
	if _, err := s.EnsurePath(ctx, w.Path); err != nil {
		return nil // it happens, and so it does below
	}
	if _, err := s.Conn().Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return nil
	}
	for range 4 {
		c.Sleep(ctx, c.Upto(w.Timeout/10))
		if there, _, err := s.Conn().Exists(node); err == nil && !there {
			return fmt.Errorf("%s has made %s, and does not find it", c.Name, node)
		}
	}
	return nil
}

// A session that forgets what it has seen is found by what it reads then, as the link does not look at its handshakes.
func TestSimFindsSessionsThatForgetWhatTheyHaveSeen(t *testing.T) {
	t.Run("forgetful", func(t *testing.T) {
		f := sim.Find(t, rereads(forgetful), sim.Seeds(200), sim.Faults(sim.CutTwice))
		require.NotNil(t, f)
		require.ErrorContains(t, f.Err, "does not find it")
		t.Log(f)
	})
	t.Run("ours", func(t *testing.T) {
		ours := func(_ *sim.World, c *sim.Client) *protocol.Client { return c.Client }
		sim.Run(t, rereads(ours), sim.Seeds(200))
	})
}

// forgetful connects another client of the same process, each of whose handshakes claims that it has seen nothing.
func forgetful(w *sim.World, c *sim.Client) *protocol.Client {
	forgetting := func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := c.Dial(network, address, timeout)
		return &amnesiac{Conn: conn}, err
	}
	client, err := protocol.Connect(w.Context(), w.Server.ConnectString(),
		protocol.WithDialer(forgetting), protocol.WithSessionTimeout(w.Timeout))
	require.NoError(w, err)
	w.Cleanup(func() { client.Close() })
	return client
}

// An amnesiac is a connection whose handshake names no zxid.
type amnesiac struct {
	net.Conn
	greeted bool
}

func (a *amnesiac) Write(b []byte) (int, error) {
	if !a.greeted {
		const zxid = 4 + 4 // behind the length and the protocol version
		clear(b[zxid : zxid+8])
		a.greeted = true
	}
	return a.Conn.Write(b)
}
