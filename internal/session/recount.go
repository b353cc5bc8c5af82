package session

import (
	"errors"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// recount looks in the background for nodes that other clients have deleted without an event, and
// for nodes that were never created. It reads each node that is not watched, so it does this once a
// minute at most.
func (c *Client) recount(s *Session) {
	a := &s.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.recounted) < time.Minute {
		return
	}

	a.recounted = time.Now()
	nodes := maps.Clone(a.nodes)
	b := c.own(s)
	c.Spawn(func() {
		if b.Fence(b.Life) != nil { // a create of unknown outcome can be executed until then
			return
		}

		for node, e := range nodes {
			if b.Life.Err() != nil {
				return
			}

			// A create under way settles itself, and a watched node has an event when it goes.
			if e.flying > 0 || !e.numbered && b.Conn.Watches.Watched(node) {
				continue
			}
			if exist, err := b.owned(node, e.numbered); err == nil {
				a.settle(node, e, exist)
			}
		}
	})
}

// owned returns the session's nodes at an absolute path, to which the server has added numbers if
// numbered is true.
func (b *Bound) owned(node string, numbered bool) (owned []string, err error) {
	candidates := []string{node}
	if numbered {
		dir, prefix := path.Split(node)
		children, _, err := b.Children(b.Life, path.Clean(dir))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}

		candidates = nil
		for _, child := range children {
			number, ours := strings.CutPrefix(child, prefix)
			if _, ok := layout.ParseSequence(number); ours && ok {
				candidates = append(candidates, dir+child)
			}
		}
	}

	for _, candidate := range candidates {
		stat, err := b.Exists(b.Life, candidate)
		if err != nil {
			return nil, err
		}
		if stat != nil && stat.EphemeralOwner == b.ID() {
			owned = append(owned, candidate)
		}
	}

	return owned, nil
}
