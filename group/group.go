package group

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// ErrNameTaken is returned by [Group.Join] if another member has the name.
var ErrNameTaken = errors.New("name taken")

// A Group is a set of members with names. It is safe for concurrent use.
//
// A member is an ephemeral node with the member's name, and its data. Children of the path that are
// not ephemeral are no members.
type Group struct {
	client *protocol.Client
	recipe *protocol.Recipe
}

// A Peer is a member as the others see it.
type Peer struct {
	Name    string
	Data    []byte    // what it joined with, or has set; nil if the ACL of its node forbids to read it
	Session int64     // its session's ID; ZooKeeper 3.8.4 and 3.9.2 hide it, too, and then it is 0
	Since   time.Time // when it joined, by the server's clock; zero if that is hidden

	czxid int64 // of its node; it orders members by when they joined
}

// An Option shapes a group; give it to [New]. There are none yet.
type Option func(*Group) error

// New returns the group at path, a node of its own that is created as needed. New does no I/O and
// cannot fail: the first call reports a nil client or a bad path.
func New(c *protocol.Client, path string, opts ...Option) *Group {
	g := &Group{c, protocol.NewRecipe(c, "group", path)}
	protocol.Configure(g.recipe, g, opts)
	return g
}

// Members returns the members in order of joining, as of a moment after the call began. A member
// that has died is there until its session ends. A server whose leader was deposed may answer as of
// then; see [protocol.Session.Sync].
//
// Members blocks until the server has answered, with two requests and one for each member, or ctx
// ends. It goes on in the next session if one is lost. Its error wraps ctx's, [protocol.ErrClosed]
// or [zk.ErrInvalidPath], or is the server's own. The caller may keep and change what is returned.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (g *Group) Members(ctx context.Context) ([]Peer, error) {
	peers, err := protocol.AcrossSessions(ctx, g.recipe, func(s *protocol.Session) ([]Peer, error) {
		if err := s.Sync(ctx, g.recipe.Path()); err != nil {
			return nil, err
		}
		children, dir, err := s.Children(ctx, g.recipe.Path())
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}

		r := roster{group: g}
		if err := r.update(ctx, s, children, dir); err != nil {
			return nil, err
		}
		return r.peers(), nil
	})
	return peers, g.recipe.Wrap(err)
}

// node returns the path of a member.
func (g *Group) node(name string) string { return g.recipe.Path() + "/" + name }

// validate refuses what cannot be the name of a node.
func (g *Group) validate(name string, data []byte) error {
	if err := g.recipe.Validate(data); err != nil {
		return err
	}
	if name == "" || path.Base(name) != name {
		return fmt.Errorf("%w: %q cannot be the name of a member", zk.ErrInvalidPath, name)
	}
	return protocol.ValidatePath(g.node(name))
}
