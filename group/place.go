package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A place is a member's name in a group, or the other member that has the name.
type place struct {
	grant   *recipe.Grant
	free    func() // lets other members of the session claim the name; may be called again
	version int    // of the data that it was created with

	taken <-chan struct{} // if a member of this session has the name: closed when it has not
	other *zk.Stat        // if another session has it
}

// identities returns the path of the nodes that say with which identity members have joined, each
// named by an owner, which is never used again, and by the member. It is created in the transaction
// that creates the member's node, so their czxids are equal.
func (m *Member) identities() string { return m.group.recipe.Path() + "-identities" }

// renewIdentity gives the member another node to say its identity, for the next attempt to create
// its own. The former node may be there, without the member's node.
func (m *Member) renewIdentity(ctx context.Context, s *recipe.Session) error {
	if m.group.identity == "" {
		return nil
	}
	if m.identity != "" {
		if err := s.Delete(ctx, m.identity, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	m.identity = m.identities() + "/" + s.NewOwner().String() + "-" + m.name
	return nil
}

// takeOver deletes the node of a member with the same identity and reports whether that node is
// gone.
func (m *Member) takeOver(ctx context.Context, s *recipe.Session, other *zk.Stat) (bool, error) {
	if m.group.identity == "" {
		return false, nil
	}
	children, _, err := s.Children(ctx, m.identities())
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	for _, child := range children {
		if _, name, _ := recipe.ParseOwner(child); name != m.name {
			continue
		}
		node := m.identities() + "/" + child
		data, stat, err := s.Get(ctx, node)
		if errors.Is(err, zk.ErrNoNode) || err == nil && (stat.Czxid != other.Czxid || string(data) != m.group.identity) {
			continue
		} else if err != nil {
			return false, err
		}
		_, err = s.Multi(ctx,
			&zk.DeleteRequest{Path: node, Version: -1},
			&zk.DeleteRequest{Path: m.group.node(m.name), Version: -1})
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return true, nil // or it has just left
		}
		return false, err
	}
	return false, nil
}

// claim makes one attempt to create the member's node under s. It returns a place without a grant
// if the name is taken.
func (m *Member) claim(ctx context.Context, s *recipe.Session, data []byte) (place, error) {
	m.sessions[s.ID()] = true
	p, err := recipe.Detach(ctx, s, func(ctx context.Context, s *recipe.Session) (p place, err error) {
		defer s.KeepAlive()()
		if p.free, p.taken = claim(s, m.group.node(m.name)); p.free == nil {
			return p, nil
		}
		defer func() {
			if p.grant == nil {
				p.free()
			}
		}()

		stat, err := m.create(ctx, s, data)
		if err != nil {
			return p, err
		}
		if stat.EphemeralOwner != s.ID() {
			p.other = stat
			return p, nil
		}

		// The session has no other member of this name, so the node is the one that was created
		// here. It is ours unless the session ends, and then the node goes, too.
		identity := m.identity
		remove := func(ctx context.Context, s *recipe.Session) error {
			defer p.free()
			err := m.remove(ctx, s, stat)
			if identity != "" && s.Err() == nil {
				s.Delete(ctx, identity, -1)
			}
			return err
		}
		p.grant, err = m.group.recipe.NewNamedGrant(ctx, s, m.group.node(m.name), stat.Czxid, remove)
		return p, err
	}, func(late place) {
		if late.grant != nil {
			late.end()
		}
	})
	if p.grant != nil { // so the nodes of all earlier sessions are gone
		clear(m.sessions)
		m.sessions[s.ID()] = true
	}
	return p, err
}

// end gives the place back. It returns the error of [recipe.Grant.Release].
func (p place) end() error {
	err := p.grant.Release(context.Background())
	if errors.Is(err, protocol.ErrLost) {
		p.free()
	}
	return err
}

// create creates the node, unless there is one, and returns the Stat of the node that is there. It
// creates nothing once the caller has stopped waiting. Only if it has just created the directory,
// it creates the node, too: no server deletes a container that never had a child.
func (m *Member) create(ctx context.Context, s *recipe.Session, data []byte) (*zk.Stat, error) {
	node := m.group.node(m.name)
	made := false // the directory
	for {
		if err := m.renewIdentity(ctx, s); err != nil {
			return nil, err
		}
		identity := m.identity
		stat, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
			if err := s.Abandoned(); err != nil && !made {
				return nil, err
			}
			if identity == "" {
				_, err := recipe.Create(c, s.Path(node), data, zk.FlagEphemeral, s.ACL(node))
				return nil, err
			}
			_, err := recipe.Multi(c,
				&zk.CreateRequest{Path: s.Path(node), Data: data, Acl: s.ACL(node), Flags: zk.FlagEphemeral},
				&zk.CreateRequest{Path: s.Path(identity), Data: []byte(m.group.identity), Acl: s.ACL(identity), Flags: zk.FlagEphemeral})
			return nil, err
		}, func(ctx context.Context) (stat *zk.Stat, done bool, err error) {
			stat, err = s.Exists(ctx, node)
			if errors.Is(err, zk.ErrNoAuth) {
				err = nil // the next create fails
			}
			return stat, stat != nil && stat.EphemeralOwner == s.ID(), err
		})

		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := s.Abandoned(); err != nil {
				return nil, err
			}
			if _, err := s.EnsurePath(ctx, m.group.recipe.Path()); err != nil {
				return nil, err
			}
			if identity != "" {
				if _, err := s.EnsurePath(ctx, m.identities()); err != nil {
					return nil, err
				}
			}
			made = true
			continue
		case err != nil && !errors.Is(err, zk.ErrNodeExists):
			return nil, err
		case stat == nil:
			created := err == nil
			stat, err = s.Exists(ctx, node)
			switch {
			case errors.Is(err, zk.ErrNoAuth) && created:
				return nil, m.withdraw(ctx, s, err)
			case errors.Is(err, zk.ErrNoAuth):
				return nil, fmt.Errorf("%w: %q by a node that may not be read: %w", ErrNameTaken, m.name, err)
			case err != nil:
				return nil, err
			}
		}
		if stat != nil {
			return stat, nil
		}
	}
}

// withdraw deletes a node that was just created, because its own member may not read it. It returns
// why.
func (m *Member) withdraw(ctx context.Context, s *recipe.Session, why error) error {
	s.Delete(ctx, m.group.node(m.name), -1) // a refusal is what Detach returns, and it is tried again
	if m.identity != "" {
		s.Delete(ctx, m.identity, -1)
	}
	return fmt.Errorf("a member must be able to read its own node, so give its ACL zk.PermRead: %w", why)
}

// remove deletes the node with this Stat, but no node that another session creates later. If the
// server refuses, remove lets the caller go and tries again until the session ends.
func (m *Member) remove(ctx context.Context, s *recipe.Session, own *zk.Stat) error {
	node := m.group.node(m.name)
	for {
		_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, recipe.Delete(c, s.Path(node), -1)
		}, func(ctx context.Context) (_ struct{}, done bool, err error) {
			stat, err := s.Exists(ctx, node)
			if errors.Is(err, zk.ErrNoAuth) { // own could be read, so this is another node
				return struct{}{}, true, nil
			}
			return struct{}{}, err == nil && (stat == nil || stat.Czxid != own.Czxid), err
		})
		if err == nil || errors.Is(err, zk.ErrNoNode) || s.Err() != nil {
			return err
		}

		m.group.recipe.Logger().Error("member's node not deleted yet", "node", node, "error", err)
		s.LetGo(err)
		select {
		case <-time.After(pause):
		case <-s.Done():
		}
	}
}

// claims are the names that members of this process have, or are about to have. The server cannot
// tell two members of one session apart, as their nodes are equal.
var claims = struct {
	sync.Mutex
	names map[claimKey]chan struct{}
}{names: make(map[claimKey]chan struct{})}

type claimKey struct {
	conn *zk.Conn // shared by all views of a session
	node string
}

// claim returns a function that ends the claim. If another member has the claim, it returns a
// channel that is closed when that claim ends.
func claim(s *recipe.Session, node string) (free func(), taken <-chan struct{}) {
	claims.Lock()
	defer claims.Unlock()
	key := claimKey{s.Conn(), s.Path(node)}
	if other := claims.names[key]; other != nil {
		return nil, other
	}

	own := make(chan struct{})
	claims.names[key] = own
	return sync.OnceFunc(func() {
		claims.Lock()
		defer claims.Unlock()
		delete(claims.names, key)
		close(own)
	}), nil
}
