package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A roster has the members of a group. It reads each member once.
type roster struct {
	group   *Group
	watched bool             // the members' data are
	known   map[string]*Peer // by name; nil for a child that is not a member

	czxid    int64 // of the group's node, when it was listed last
	cversion int32 // likewise: it counts the children that were created or deleted
}

const readers = 16 // how many nodes are read at the same time

// update brings the roster up to a listing. If a member is gone by now, another listing will come.
func (r *roster) update(ctx context.Context, s *protocol.Session, children []string, dir *zk.Stat) error {
	added := 0
	for _, name := range children {
		if _, there := r.known[name]; !there {
			added++
		}
	}
	if dir != nil {
		removed := len(r.known) + added - len(children)
		if dir.Czxid != r.czxid || dir.Cversion-r.cversion != int32(added+removed) {
			// A child was deleted and created again in between, or the group was. No listing says
			// which child.
			r.known = nil
		}
		r.czxid, r.cversion = dir.Czxid, dir.Cversion
	}

	// Read the children that are not known yet, and forget those that have gone.
	peers, errs := make([]*Peer, len(children)), make([]error, len(children))
	slots := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for i, name := range children {
		if peer, there := r.known[name]; there {
			peers[i] = peer
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			peers[i], errs[i] = r.group.peer(ctx, s, name)
		})
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		r.known = nil // because it would not agree with cversion
		return err
	}

	r.known = make(map[string]*Peer, len(children))
	for i, name := range children {
		r.known[name] = peers[i]
	}
	return nil
}

// renew takes note of a member's new data.
func (r *roster) renew(p Peer) {
	if known := r.known[p.Name]; known != nil && known.czxid == p.czxid {
		r.known[p.Name] = &p
	}
}

// peer reads one child. It returns nil if the child is no member, or is gone.
func (g *Group) peer(ctx context.Context, s *protocol.Session, name string) (*Peer, error) {
	data, stat, err := s.Get(ctx, g.node(name))
	if errors.Is(err, zk.ErrNoAuth) {
		stat, err = s.Exists(ctx, g.node(name)) // which needs no permission before 3.8.4 and 3.9.2
		if errors.Is(err, zk.ErrNoAuth) {
			return &Peer{Name: name}, nil // no more is known
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
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
