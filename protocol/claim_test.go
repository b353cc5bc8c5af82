package protocol_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A witness compares what a client's handshakes claim to have seen with what was delivered before.
type witness struct {
	mu         sync.Mutex
	handshakes int
	delivered  uint64
	less       int // handshakes that have claimed less
}

func (w *witness) option(link *recipestest.Link) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		return &witnessed{Conn: conn, w: w}, err
	})
}

type witnessed struct {
	net.Conn
	w              *witness
	shaken, opened bool
	rest           []byte
}

func (c *witnessed) Write(p []byte) (int, error) {
	if !c.shaken {
		c.shaken = true
		c.w.mu.Lock()
		c.w.handshakes++
		if binary.BigEndian.Uint64(p[8:]) < c.w.delivered {
			c.w.less++
		}
		c.w.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *witnessed) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		if zxid := binary.BigEndian.Uint64(frame[4:]); c.opened && int64(zxid) > 0 {
			c.w.mu.Lock()
			c.w.delivered = max(c.w.delivered, zxid)
			c.w.mu.Unlock()
		}
		c.opened = true
		c.rest = append(head, frame...)
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// TestNoHandshakeClaimsLessThanWasDelivered cuts the connection at each packet of a wait and a
// hold, and once more later.
func TestNoHandshakeClaimsLessThanWasDelivered(t *testing.T) {
	t.Parallel()
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link, w := srv.Root(t)+"/x", srv.Link(t), new(witness)
			c := link.Client(t, w.option(link))
			h := hold(t, srv.Client(t), path)
			blip := func() { link.Cut(); link.Heal() }
			stop := link.At(step, blip)
			got := later(func() *recipe.Grant { g, _ := lineAt(c, path).Enter(context.Background(), request); return g })
			time.Sleep(700 * time.Millisecond)
			release(t, h)
			g := wait(t, got)
			time.Sleep(100 * time.Millisecond)
			met = !stop()
			for range 3 {
				release(t, hold(t, c, path+"-other"))
				blip()
				time.Sleep(time.Second)
			}
			require.NoError(t, g.Err())
			require.GreaterOrEqual(t, w.handshakes, 4)
			require.Zero(t, w.less, "cut at packet %d", step)
			release(t, g)
		})
		return met
	})
}
