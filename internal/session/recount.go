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

// recount looks, in the background, for nodes that others have deleted while nobody watched, and for
// those that were not created after all. It reads each node, and so does so at most once a minute.
func (b *Bound) recount() {
	a := &b.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.recounted) < time.Minute {
		return
	}
	a.recounted = time.Now()
	nodes := maps.Clone(a.nodes)
	b.Spawn(func() {
		if b.Fence(b.Life) != nil { // before that, a create that is doubtful may be executed yet
			return
		}
		for node, e := range nodes {
			if b.Life.Err() != nil {
				return
			}
			switch {
			case e.progress == numbering && e.flying == 0:
				if made, err := b.numbered(node); err == nil {
					a.settle(node, e, made)
				}
			case e.progress == numbering || e.progress == creating:
			case b.Conn.Watches.Watched(node): // its end will be noted
			default:
				if mine, err := b.owns(node); err == nil && !mine {
					a.settle(node, e, nil)
				}
			}
		}
	})
}

// owns reports whether the node at an absolute path is one of the session's.
func (b *Bound) owns(node string) (bool, error) {
	stat, err := b.Exists(b.Life, node)
	return stat != nil && stat.EphemeralOwner == b.ID(), err
}

// numbered returns the session's nodes whose absolute paths are prefix and a number.
func (b *Bound) numbered(prefix string) (made []string, err error) {
	dir, name := path.Split(prefix)
	children, _, err := b.Children(b.Life, path.Clean(dir))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	for _, child := range children {
		number, ours := strings.CutPrefix(child, name)
		if _, ok := layout.ParseSequence(number); !ours || !ok || err != nil {
			continue
		}
		mine := false
		if mine, err = b.owns(dir + child); mine {
			made = append(made, dir+child)
		}
	}
	return made, err
}
