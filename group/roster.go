package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A roster has the members of a group. It reads each member once.
type roster struct {
	group *Group
	known map[string]*Peer // by name; nil for a child that is not a member

	// The group's node as it was when it was listed last. cversion counts the children that were
	// created or deleted.
	czxid    int64
	cversion int32
}

// update brings the roster up to a listing. (If a member is gone by now, another listing will
// come.)
func (r *roster) update(ctx context.Context, s *recipe.Session, children []string, dir *zk.Stat) error {
	added := slices.DeleteFunc(slices.Clone(children), func(name string) bool {
		_, there := r.known[name]
		return there
	})
	if dir != nil {
		// Each child that has come counts once, and so does each that has gone.
		if dir.Czxid != r.czxid || dir.Cversion-r.cversion != int32(2*len(added)+len(r.known)-len(children)) {
			// A child was deleted and created again in between (or the group was). No listing says
			// which child.
			r.known, added = nil, children
		}
		r.czxid, r.cversion = dir.Czxid, dir.Cversion
	}

	peers, err := recipe.ReadAll(added, func(name string) (*Peer, error) { return r.group.peer(ctx, s, name) })
	if err != nil {
		r.known = nil // because it would not agree with cversion
		return err
	}

	// Forget the children that have gone.
	known := make(map[string]*Peer, len(children))
	for _, name := range children {
		known[name] = r.known[name]
	}
	for i, name := range added {
		known[name] = peers[i]
	}
	r.known = known
	return nil
}

// peer reads one child. It returns nil if the child is no member, and [zk.ErrNoNode] if it is gone.
func (g *Group) peer(ctx context.Context, s *recipe.Session, name string) (*Peer, error) {
	data, stat, err := s.Get(ctx, g.node(name))
	if errors.Is(err, zk.ErrNoAuth) {
		// Before 3.8.4 and 3.9.2, this needs no permission.
		stat, err = s.Exists(ctx, g.node(name))
		if errors.Is(err, zk.ErrNoAuth) {
			return &Peer{Name: name}, nil
		}
	}
	if err != nil || stat == nil || stat.EphemeralOwner == 0 {
		return nil, err
	}
	return &Peer{name, data, stat.EphemeralOwner, time.UnixMilli(stat.Ctime), stat.Czxid}, nil
}

// peers returns the members in order of joining.
func (r *roster) peers() []Peer {
	peers := []Peer{}
	for _, p := range r.known {
		if p != nil {
			peers = append(peers, *p)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.czxid, b.czxid), cmp.Compare(a.Name, b.Name))
	})
	return peers
}
