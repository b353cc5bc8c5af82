package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrNameTaken is returned by [Group.TryJoin] if another member has the name, and by [Group.Join]
// if a node of that name is not a member's or may not be read.
var ErrNameTaken = errors.New("name taken")

// A Group is a set of members with names. It is safe for concurrent use.
//
// A member is an ephemeral node with the member's name and data. Other children of the path are not
// members.
type Group struct {
	client   *protocol.Client
	recipe   *recipe.Recipe
	identity string        // empty if there is none
	grace    time.Duration // how long the items of a member that has gone are left alone
}

// A Peer is a member as the others see it.
type Peer struct {
	Name    string
	Data    []byte    // from Join or the last Set; nil if the ACL forbids to read it
	Session int64     // its session's ID; 0 if that is hidden, too (from ZooKeeper 3.8.4 and 3.9.2 on)
	Since   time.Time // when it joined, by the server's clock; zero if that is hidden

	czxid int64 // its node's; members are ordered by it
}

// equal reports whether p and other are one member with the same data.
func (p Peer) equal(other Peer) bool {
	return p.Name == other.Name && p.czxid == other.czxid && bytes.Equal(p.Data, other.Data)
}

// An Option shapes a group; give it to [New].
type Option func(*Group) error

// WithIdentity says who the caller is (the pod of a stateful set, say), for [Group.Join] and
// [Group.TryJoin]. A member with the same identity must be an earlier life of the same process, so
// the caller takes over its name at once, instead of waiting for its session to expire. If the
// earlier member is alive after all, it loses the name and waits for it.
//
// The identity is the data of a node beside the group, at <path>-identities. Any client that may
// read and delete nodes there can take over a name.
func WithIdentity(id string) Option {
	return func(g *Group) error {
		if id == "" {
			return errors.New("empty identity")
		}
		g.identity = id
		return nil
	}
}

// WithGrace says for how long [Member.Share] leaves the items of a member alone after the member
// has left or lost its session. Choose the time that a restart takes. The default is none. All
// members should have the same grace.
func WithGrace(d time.Duration) Option {
	return func(g *Group) error {
		if d < 0 {
			return errors.New("negative grace")
		}
		g.grace = d
		return nil
	}
}

// New returns the group at path, which needs a node of its own. (The node is created when it is
// needed.) New does no I/O and cannot fail: the first call reports a nil client or a bad path.
func New(c *protocol.Client, path string, opts ...Option) *Group {
	g := &Group{client: c, recipe: recipe.New(c, "group", path)}
	recipe.Configure(g.recipe, g, opts)
	return g
}

// Members returns the members in order of joining (as of a moment after the call began). A dead
// member is there until its session expires. (The answer can be older if the server follows a
// deposed leader: see [recipe.Session.Sync].)
//
// Members blocks until the server has answered (two requests and one for each member) or ctx ends.
// If a session is lost, it goes on in the next session. Its error wraps ctx's error,
// [protocol.ErrClosed] or [zk.ErrInvalidPath]. Other errors are the server's own. The caller may
// keep and change the slice.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (g *Group) Members(ctx context.Context) ([]Peer, error) {
	peers, err := recipe.AcrossSessions(ctx, g.recipe, func(s *recipe.Session) ([]Peer, error) {
		if err := s.Sync(ctx, g.recipe.Path()); err != nil {
			return nil, err
		}

		children, dir, err := s.Children(ctx, g.recipe.Path())
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}

		r := roster{group: g}
		err = r.update(ctx, s, children, dir)
		return r.peers(), err
	})
	return peers, g.recipe.Wrap(err)
}

// node returns the path of a member.
func (g *Group) node(name string) string { return g.recipe.Path() + "/" + name }

// validate refuses names that a node cannot have.
func (g *Group) validate(data []byte, names ...string) error {
	if err := g.recipe.Validate(data); err != nil {
		return err
	}
	for _, name := range names {
		if name == "" || path.Base(name) != name {
			return fmt.Errorf("%w: %q cannot be the name of a member", zk.ErrInvalidPath, name)
		}
		if err := recipe.ValidatePath(g.node(name)); err != nil {
			return err
		}
	}
	return nil
}
