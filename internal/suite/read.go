package suite

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// The reads of this file can follow a fault, or overlap with one. They are repeated when the
// connection breaks, and in the next session when the session is lost. If no answer comes within
// [Limit], they fail t.

// Get returns the data of a node and its Stat. It fails t if there is no such node.
func Get(t testing.TB, c *protocol.Client, path string) ([]byte, *zk.Stat) {
	t.Helper()
	type node struct {
		data []byte
		stat *zk.Stat
	}

	n, err := read(t, c, path, func(conn *zk.Conn, path string) (node, error) {
		data, stat, err := conn.Get(path)
		return node{data, stat}, err
	})
	require.NoError(t, err, path)
	return n.data, n.stat
}

// Exists reports whether there is a node at path.
func Exists(t testing.TB, c *protocol.Client, path string) bool {
	t.Helper()
	exists, err := read(t, c, path, func(conn *zk.Conn, path string) (bool, error) {
		exists, _, err := conn.Exists(path)
		return exists, err
	})
	require.NoError(t, err, path)
	return exists
}

// Children returns the names of a node's children. There are none if there is no such node.
func Children(t testing.TB, c *protocol.Client, path string) []string {
	t.Helper()
	children, err := read(t, c, path, func(conn *zk.Conn, path string) ([]string, error) {
		children, _, err := conn.Children(path)
		return children, err
	})

	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(t, err, path)
	}

	return children
}

func read[T any](t testing.TB, c *protocol.Client, path string, op func(conn *zk.Conn, path string) (T, error)) (T, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()

	for {
		s, err := recipe.SessionOf(ctx, c)
		require.NoError(t, err)
		v, err := recipe.Do(ctx, s, func(conn *zk.Conn) (T, error) { return op(conn, s.Path(path)) })
		if !errors.Is(err, protocol.ErrLost) {
			return v, err
		}
	}
}

// ReadAt returns what a read of a [zk.Conn] finds at path: the data, the children, or whether there
// is a node. It fails t if the read does.
func ReadAt[V any](t testing.TB, read func(path string) (V, *zk.Stat, error), path string) V {
	t.Helper()
	v, _, err := read(path)
	require.NoError(t, err)
	return v
}

// WatchAt sets a watch of a [zk.Conn] at path. It fails t if it can't.
func WatchAt[V any](t testing.TB, watch func(path string) (V, *zk.Stat, <-chan zk.Event, error), path string) <-chan zk.Event {
	t.Helper()
	_, _, events, err := watch(path)
	require.NoError(t, err)
	return events
}
