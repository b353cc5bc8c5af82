package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

const (
	lockPath = "/lock"
	dataPath = "/data" // holders of the lock write to it
)

// A zookeeper is a lock of package lock on one ZooKeeper.
type zookeeper struct {
	lease    time.Duration
	server   *embedded.Server
	sessions []int64
}

func startZooKeeper(lease time.Duration) (service, error) {
	server, err := embedded.Start(embedded.Config{InMemory: true, TickTime: lease / 4})
	if err != nil {
		return nil, err
	}
	return &zookeeper{lease: lease, server: server}, nil
}

func (z *zookeeper) close() { z.server.Close() }

// leap ends all sessions. The server would do the same if the clock for its timeouts leapt by more
// than a timeout.
func (z *zookeeper) leap(int, time.Duration, *rand.Rand) {
	for _, id := range z.sessions {
		z.server.ExpireSession(id)
	}
}

func (z *zookeeper) connect(ctx context.Context, n *network) (client, error) {
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		return n.dial(func() (net.Conn, error) { return z.server.Dial(network, address, timeout) })
	}

	c, err := protocol.Connect(ctx, z.server.ConnectString(), protocol.WithSessionTimeout(z.lease), protocol.WithDialer(dial))
	if err != nil {
		return nil, err
	}

	session, err := ensureData(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}

	z.sessions = append(z.sessions, session.ID())
	return &zookeeperClient{c, lock.New(c, lockPath)}, nil
}

// ensureData creates the node that holders write to, and returns its session.
func ensureData(ctx context.Context, c *protocol.Client) (*protocol.Session, error) {
	for {
		session, err := c.Session(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = session.EnsurePath(ctx, dataPath); !errors.Is(err, protocol.ErrLost) {
			return session, err
		}
	}
}

type zookeeperClient struct {
	client *protocol.Client
	mutex  *lock.Mutex
}

func (c *zookeeperClient) close() { c.client.Close() }

func (c *zookeeperClient) lock(ctx context.Context) (holding, error) {
	lease, err := c.mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &zookeeperHolding{c.client, lease}, nil
}

type zookeeperHolding struct {
	client *protocol.Client
	lease  *lock.Lease
}

func (h *zookeeperHolding) held(context.Context) bool { return h.lease.Err() == nil }

func (h *zookeeperHolding) value() string { return h.lease.Node() }

func (h *zookeeperHolding) token() int64 { return h.lease.Token() }

// write writes in the client's current session, which can be newer than the lease.
func (h *zookeeperHolding) write(ctx context.Context) (bool, error) {
	for {
		session, err := h.client.Session(ctx)
		if err != nil {
			return false, err
		}

		_, err = protocol.Do(ctx, session, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
			return conn.Multi(h.lease.Check(), &zk.SetDataRequest{Path: session.Path(dataPath), Version: -1})
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return false, nil
		case !errors.Is(err, protocol.ErrLost):
			return err == nil, err
		}
	}
}

func (h *zookeeperHolding) unlock(ctx context.Context) {
	h.lease.Unlock(ctx) // an error if it was lost
}
