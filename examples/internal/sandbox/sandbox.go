// Package sandbox gives an example a ZooKeeper to play on: a server inside the program, or a path
// of its own on an ensemble. Your own program only needs a connect string.
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
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Sandbox is where the clients of an example meet.
type Sandbox struct {
	Servers string // for protocol.Connect

	server         *embedded.Server // nil on an ensemble
	ensemble, path string           // Close removes this path from this ensemble
}

// Open starts a ZooKeeper. If servers isn't empty, it takes a new path there instead. The path
// begins with name.
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

// String says on which ZooKeeper the example runs.
func (s *Sandbox) String() string {
	if s.server != nil {
		return "on a ZooKeeper inside this program, at " + s.Servers
	}
	return "on the ensemble " + s.Servers
}

// Expire ends the session of a client as if its process had died. On an ensemble it does nothing,
// because an ensemble's sessions are not ours to end. ended reports whether it did.
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

// Close stops the ZooKeeper or removes the path. All clients must be closed before.
func (s *Sandbox) Close() error {
	if s.server != nil {
		return s.server.Close()
	}

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := protocol.Connect(ctx, s.ensemble)
	if err != nil {
		return fmt.Errorf("%s is left: %w", s.path, err)
	}

	defer client.Close()
	session, err := recipe.SessionOf(ctx, client)
	if err != nil {
		return fmt.Errorf("%s is left: %w", s.path, err)
	}
	defer context.AfterFunc(ctx, func() { client.Close() })() // this ends requests of its zk.Conn
	return remove(session, s.path)
}

// remove deletes a node and everything below it. Meanwhile a server can delete empty containers.
func remove(s *recipe.Session, path string) error {
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
