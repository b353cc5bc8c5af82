package group

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A place is a member's name in a group, or the other member that has the name.
type place struct {
	grant *recipe.Grant
	taken <-chan struct{} // if a member of this session has the name: closed when the name is free
	other *zk.Stat        // if another session has the name
}

// identity returns the path of the node that says with which identity a session's member has
// joined. The transaction that creates the member's node creates it, so their czxids are equal.
func (m *Member) identity(session int64) string {
	return m.group.identities() + "/" + recipe.Owner{Session: session}.String() + "-" + m.name
}

func (g *Group) identities() string { return g.recipe.Path() + "-identities" }

// takeOver deletes the node of a member with the same identity and reports whether that node is
// gone.
func (m *Member) takeOver(ctx context.Context, s *recipe.Session, other *zk.Stat) (bool, error) {
	if m.group.identity == "" {
		return false, nil
	}

	identity := m.identity(other.EphemeralOwner)
	data, stat, err := s.Get(ctx, identity)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	} else if err != nil || stat.Czxid != other.Czxid || string(data) != m.group.identity {
		return false, err
	}

	// Both or none: if the identity is gone, the node may be another member's by now.
	_, err = s.Multi(ctx,
		&zk.DeleteRequest{Path: identity, Version: -1},
		&zk.DeleteRequest{Path: m.group.node(m.name), Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err == nil, err
}

// claim makes one attempt to create the member's node under s. It returns a place without a grant
// if the name is taken.
func (m *Member) claim(ctx context.Context, s *recipe.Session) (place, error) {
	m.sessions[s.ID()] = true

	p, err := recipe.Detach(ctx, s, func(ctx context.Context, s *recipe.Session) (p place, err error) {
		defer s.KeepAlive()()
		free, taken := claim(s, m.group.node(m.name))
		if free == nil {
			return place{taken: taken}, nil
		}
		defer func() {
			if p.grant == nil {
				free()
			}
		}()

		stat, err := m.create(ctx, s)
		if err != nil || stat.EphemeralOwner != s.ID() {
			return place{other: stat}, err
		}

		// The session has no other member of this name, so this is the node that we have created.
		// It stays ours until the session ends, and then the node goes, too.
		remove := func(ctx context.Context, s *recipe.Session) error {
			defer free()
			return m.remove(ctx, s, stat)
		}

		p.grant, err = m.group.recipe.NewNamedGrant(ctx, s, m.group.node(m.name), stat.Czxid, remove)
		if err == nil {
			p.grant.AfterFunc(func() {
				if errors.Is(p.grant.Err(), protocol.ErrLost) { // then remove is not called
					m.removeIdentity(context.Background(), p.grant.Session())
					free()
				}
			})
		}
		return p, err
	}, func(late place) {
		if late.grant != nil {
			late.grant.Release(context.Background())
		}
	})

	if p.grant != nil { // so the nodes of all earlier sessions are gone
		clear(m.sessions)
		m.sessions[s.ID()] = true
	}
	return p, err
}

// create creates the node (unless there is a node) and returns the Stat of the node that is there.
// It creates nothing once the caller has stopped waiting. But if it has just created the directory,
// it creates the node as well, because no server deletes a container that never had a child.
func (m *Member) create(ctx context.Context, s *recipe.Session) (*zk.Stat, error) {
	_, _, data := m.current()
	node, identity := m.group.node(m.name), m.identity(s.ID())

	for made := false; ; {
		_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (none struct{}, err error) {
			if err := s.Abandoned(); err != nil && !made {
				return none, err
			}

			if m.group.identity == "" {
				_, err = recipe.Create(c, s.Path(node), data, zk.FlagEphemeral, s.ACL(node))
			} else {
				_, err = recipe.Multi(c,
					&zk.CreateRequest{Path: s.Path(node), Data: data, Acl: s.ACL(node), Flags: zk.FlagEphemeral},
					&zk.CreateRequest{Path: s.Path(identity), Data: []byte(m.group.identity), Acl: s.ACL(identity), Flags: zk.FlagEphemeral})
			}
			return none, err
		}, func(ctx context.Context) (none struct{}, done bool, err error) {
			stat, err := s.Exists(ctx, node)
			if errors.Is(err, zk.ErrNoAuth) {
				err = nil // then the next create fails
			}
			return none, stat != nil && stat.EphemeralOwner == s.ID(), err
		})
		if errors.Is(err, zk.ErrNoNode) {
			if err := m.group.ensure(ctx, s); err != nil {
				return nil, err
			}
			made = true
			continue
		} else if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return nil, err
		}

		// Find out the Stat of the node that is there now, of this session or another.
		stat, refused := s.Exists(ctx, node)
		switch {
		case errors.Is(refused, zk.ErrNoAuth) && err == nil:
			// A refusal is what Detach returns, and the deletion is tried again.
			s.Delete(ctx, node, -1)
			m.removeIdentity(ctx, s)
			return nil, fmt.Errorf("a member must be able to read its own node, so give its ACL zk.PermRead: %w", refused)
		case errors.Is(refused, zk.ErrNoAuth):
			return nil, fmt.Errorf("%w: %q by a node that may not be read: %w", ErrNameTaken, m.name, refused)
		case refused != nil || stat != nil:
			return stat, refused
		}

		// The node is gone by now, or an operator has deleted the node of this session alone, and
		// its identity is left.
		m.removeIdentity(ctx, s)
	}
}

// ensure creates the directories (unless the caller has stopped waiting).
func (g *Group) ensure(ctx context.Context, s *recipe.Session) error {
	err := s.Abandoned()
	if err == nil {
		_, err = s.EnsurePath(ctx, g.recipe.Path())
	}
	if err == nil && g.identity != "" {
		_, err = s.EnsurePath(ctx, g.identities())
	}
	return err
}

// removeIdentity deletes the node that says with which identity the member has joined under s.
func (m *Member) removeIdentity(ctx context.Context, s *recipe.Session) {
	if m.group.identity != "" && s.Err() == nil {
		s.Delete(ctx, m.identity(s.ID()), -1)
	}
}

// remove deletes the node with this Stat, but no node that another session creates later. If the
// server refuses, the deletion goes on in the background until the session ends.
//
// Only takeOver can replace the node while this session lives, and takeOver deletes the identity
// with it. So the two go together here, too: if our identity is gone, so is our node, unless an
// operator has deleted the identity.
func (m *Member) remove(ctx context.Context, s *recipe.Session, own *zk.Stat) error {
	node, identified := m.group.node(m.name), m.group.identity != ""
	var with []string
	if identified {
		with = append(with, m.identity(s.ID()))
	}

	err := s.DeleteOnce(ctx, node, own.Czxid, with...)
	if identified && errors.Is(err, zk.ErrNoNode) {
		var now *zk.Stat
		if now, err = s.Exists(ctx, node); err == nil && now != nil && now.Czxid == own.Czxid {
			err = s.DeleteOnce(ctx, node, own.Czxid)
		}
		m.removeIdentity(ctx, s) // which is left if an operator has deleted the node alone
	}

	if errors.Is(err, zk.ErrNoAuth) && s.Err() == nil {
		s.Gone(node) // we could read our own node, so this is another node
		return nil
	}
	return err
}

// claims are the names that members of this process have or are about to have. Each has a channel
// that is closed when the claim ends. (The server cannot tell two members of one session apart,
// because their nodes are equal. All views of a session have the same connection.)
var claims sync.Map

// claim returns a function that ends the claim. If another member has the claim, it returns a
// channel that is closed when that claim ends.
func claim(s *recipe.Session, node string) (free func(), taken <-chan struct{}) {
	key, own := [2]any{s.Conn(), s.Path(node)}, make(chan struct{})
	if other, there := claims.LoadOrStore(key, own); there {
		return nil, other.(chan struct{})
	}
	return sync.OnceFunc(func() { claims.Delete(key); close(own) }), nil
}
