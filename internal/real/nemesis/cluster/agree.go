package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A knownNode is a node, as one member knows it.
type knownNode struct {
	path         string
	czxid, mzxid int64
}

// Disagreement describes nodes that some members have and others don't, or returns "" if all have
// the same tree. Members may serve clients meanwhile. A disagreement is a fault of ZooKeeper's: all
// members have synced before they are read, so they must know the same transactions. (A follower of
// a ZooKeeper before 3.8.4 that loses its leader while the two synchronize can forget committed
// transactions: ZOOKEEPER-4785, and others like it.)
func (c *Cluster) Disagreement(ctx context.Context) (string, error) {
	// A node that comes or goes meanwhile can differ once, but not each time.
	disputed, err := c.disputed(nil)
	for range 2 {
		if len(disputed) == 0 || err != nil || ctx.Err() != nil {
			break
		}
		disputed, err = c.disputed(disputed)
	}
	if err != nil || len(disputed) == 0 {
		return "", err
	}

	var lines []string
	for node, members := range disputed {
		lines = append(lines, fmt.Sprintf("%s (czxid %#x, mzxid %#x): members %v alone", node.path, node.czxid, node.mzxid, members))
	}
	slices.Sort(lines)
	if more := len(lines) - 10; more > 0 {
		lines = append(lines[:10], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n"), nil
}

// disputed returns the nodes that some members alone have, with the numbers of these members. If
// before isn't nil, it keeps only nodes that were disputed by the same members before.
func (c *Cluster) disputed(before map[knownNode][]int) (map[knownNode][]int, error) {
	all := make(map[knownNode][]int)
	for _, m := range c.members {
		nodes, err := m.tree()
		if err != nil {
			return nil, fmt.Errorf("cluster: %v: %w", m, err)
		}
		for _, node := range nodes {
			known := knownNode{node.Path, node.Stat.Czxid, node.Stat.Mzxid}
			all[known] = append(all[known], m.id)
		}
	}

	for node, members := range all {
		if len(members) == len(c.members) || before != nil && !slices.Equal(before[node], members) {
			delete(all, node)
		}
	}
	return all, nil
}

// tree returns all nodes that a member has, once it knows what the leader knows now.
func (m *member) tree() (nodes []Node, err error) {
	err = m.inSession(func(conn *zk.Conn) error {
		if _, err := conn.Sync("/"); err != nil {
			return err
		}
		nodes, err = Tree(conn, "/")
		return err
	})
	return nodes, err
}

// A Node is one of a tree.
type Node struct {
	Path string
	Stat *zk.Stat
}

// Tree returns the node at a path and all below it.
func Tree(conn *zk.Conn, path string) (nodes []Node, err error) {
	children, stat, err := conn.Children(path)
	if err == zk.ErrNoNode || err == zk.ErrNoAuth {
		return nil, nil // it is gone meanwhile, or nobody may read it
	} else if err != nil {
		return nil, err
	}

	nodes = append(nodes, Node{path, stat})
	for _, child := range children {
		below, err := Tree(conn, strings.TrimSuffix(path, "/")+"/"+child)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, below...)
	}
	return nodes, nil
}
