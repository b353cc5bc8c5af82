// Package sandbox gives an example a ZooKeeper to play on: one inside the program, or a path of its
// own on an ensemble. A program of yours has a connect string, and nothing of this.
package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Sandbox is where the clients of an example meet.
type Sandbox struct {
	Servers string // for protocol.Connect

	server         *embedded.Server // nil on an ensemble
	ensemble, path string           // what Close removes, and where
}

// Open starts a ZooKeeper, or takes a fresh path on servers if there are any. The path begins with
// name.
func Open(servers, name string) (*Sandbox, error) {
	if servers != "" {
		path := "/" + name + "-" + strings.ToLower(rand.Text()[:6])
		return &Sandbox{Servers: strings.TrimSuffix(servers, "/") + path, ensemble: servers, path: path}, nil
	}

	server, err := embedded.Start(embedded.Config{TickTime: 500 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	return &Sandbox{Servers: server.ConnectString(), server: server}, nil
}

// String says where the example runs.
func (s *Sandbox) String() string {
	if s.server != nil {
		return "on a ZooKeeper inside this program, at " + s.Servers
	}
	return "on the ensemble " + s.Servers
}

// Expire ends the session of a client as if its process had died, and reports whether it may: the
// sessions of an ensemble are not ours to end.
func (s *Sandbox) Expire(ctx context.Context, c *protocol.Client) (ended bool, err error) {
	if s.server == nil {
		return false, nil
	}
	session, err := c.Session(ctx)
	if err != nil {
		return false, err
	}
	return s.server.ExpireSession(session.ID()), nil
}

// Close stops the ZooKeeper, or removes the path. All clients must be closed before.
func (s *Sandbox) Close() error {
	if s.server != nil {
		return s.server.Close()
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := protocol.Connect(ctx, s.ensemble)
	if err != nil {
		return fmt.Errorf("%s is left: %w", s.path, err)
	}

	defer client.Close()
	session, err := client.Session(ctx)
	if err != nil {
		return fmt.Errorf("%s is left: %w", s.path, err)
	}
	defer context.AfterFunc(ctx, func() { client.Close() })() // which ends requests of its zk.Conn
	return remove(session, s.path)
}

// remove deletes a node and all below it. A server may be deleting empty containers meanwhile.
func remove(s *protocol.Session, path string) error {
	for {
		children, _, err := s.Conn().Children(s.Path(path))
		for _, child := range children {
			if err := remove(s, path+"/"+child); err != nil {
				return err
			}
		}

		if err == nil {
			err = s.Conn().Delete(s.Path(path), -1)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
}
