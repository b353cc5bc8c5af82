package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// runCoordinator coordinates one transfer, in a process that kills itself at a packet. It prints
// which one that was, or the outcome.
func runCoordinator(ctx context.Context, out io.Writer, o options) error {
	b := &bomb{out: out, fatal: o.fatal}
	client, err := protocol.Connect(ctx, o.servers, protocol.WithDialer(b.dial),
		protocol.WithSessionTimeout(coordinatorTimeout))
	if err != nil {
		return err
	}

	b.left.Store(int32(o.fatal))
	committed, err := coordinate(ctx, client, o.path, transfer{From: "alice", To: "bob", Amount: amount})
	if errors.Is(err, protocol.ErrUncertain) && ctx.Err() == nil {
		fmt.Fprintln(out, "has lost its session") // on a machine that stood still, which is a death too
		return client.Close()
	} else if err != nil {
		return err
	}
	b.left.Store(0)
	fmt.Fprintf(out, "%s: committed is %t\n", hasEnded, committed)
	return client.Close()
}

// hasEnded begins what a coordinator prints that no packet was fatal to.
const hasEnded = "has ended"

// A bomb kills the process before it sends, or right after it has received, one of its packets.
type bomb struct {
	left  atomic.Int32 // how many packets are left, that one included; 0 for none
	fatal int
	out   io.Writer
}

func (b *bomb) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return &fatalConn{conn, b}, err
}

func (b *bomb) meet(what string) {
	if left := b.left.Load(); left == 0 || b.left.Add(-1) > 0 {
		return
	}
	fmt.Fprintf(b.out, "is killed %s packet %d\n", what, b.fatal)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Kill()
	}
	select {}
}

type fatalConn struct {
	net.Conn
	bomb *bomb
}

func (c *fatalConn) Write(p []byte) (int, error) {
	c.bomb.meet("before it sends")
	return c.Conn.Write(p)
}

func (c *fatalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.bomb.meet("when it has received")
	}
	return n, err
}
