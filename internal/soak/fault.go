package main

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// A network is the way of one client to the server. It can be cut.
type network struct {
	mu    sync.Mutex // protects what follows
	cut   bool
	conns map[*cuttable]struct{}
}

func newNetwork() *network { return &network{conns: make(map[*cuttable]struct{})} }

func (n *network) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut {
		return nil, syscall.ECONNREFUSED
	}

	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	c := &cuttable{conn, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	return c, nil
}

// fail breaks all connections, and refuses others for a while.
func (n *network) fail(ctx context.Context, while time.Duration) {
	n.mu.Lock()
	n.cut = true
	for c := range n.conns {
		c.Conn.Close()
	}
	n.mu.Unlock()

	pause(ctx, while)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = false
}

type cuttable struct {
	net.Conn
	network *network
}

func (c *cuttable) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

// disturb breaks connections until ctx ends: now and then for so long that the session expires.
func disturb(ctx context.Context, nets []*network) {
	const between, lossEach = 2 * time.Second, 30
	for i := 1; ctx.Err() == nil; i++ {
		pause(ctx, between)
		while := time.Duration(0)
		if i%lossEach == 0 {
			while = sessionTimeout * 3 / 2
		}
		nets[rand.IntN(len(nets))].fail(ctx, while)
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
