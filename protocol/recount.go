package protocol

import (
	"errors"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// recount looks, in the background, for nodes that others have deleted while nobody watched, and for
// those that were not created after all. It reads each node, and so does so at most once a minute.
func (s *Session) recount() {
	a := &s.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.recounted) < time.Minute {
		return
	}
	a.recounted = time.Now()
	nodes := maps.Clone(a.nodes)
	s.client.spawn(func() {
		if s.Fence(s.life) != nil { // before that, a create that is doubtful may be executed yet
			return
		}
		for node, e := range nodes {
			if s.life.Err() != nil {
				return
			}
			switch {
			case e.progress == numbering && e.flying == 0:
				if made, err := s.numbered(node); err == nil {
					a.settle(node, e, made)
				}
			case e.progress == numbering || e.progress == creating:
			case s.conn.Watches.Watched(node): // its end will be noted
			default:
				if mine, err := s.owns(node); err == nil && !mine {
					a.settle(node, e, nil)
				}
			}
		}
	})
}

// owns reports whether the node at an absolute path is one of the session's.
func (s *Session) owns(node string) (bool, error) {
	stat, err := s.exists(s.life, node)
	return stat != nil && stat.EphemeralOwner == s.ID(), err
}

// numbered returns the session's nodes whose absolute paths are prefix and a number.
func (s *Session) numbered(prefix string) (made []string, err error) {
	dir, name := path.Split(prefix)
	children, _, err := s.children(s.life, path.Clean(dir))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	for _, child := range children {
		number, ours := strings.CutPrefix(child, name)
		if _, ok := ParseSequence(number); !ours || !ok || err != nil {
			continue
		}
		mine := false
		if mine, err = s.owns(dir + child); mine {
			made = append(made, dir+child)
		}
	}
	return made, err
}
