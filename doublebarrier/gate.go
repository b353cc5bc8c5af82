package doublebarrier

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A gate lets a round in. The round has ended when none of its members has a node any more.
//
// The transaction that counts the members writes the record to two places. Members read it from
// process, which lasts as long as any member. The node ready is for other clients, as in the
// documentation's recipe. Beside ready is an ID node, whose name is never used again, so that a
// removal of this gate cannot hit a later gate. Ready and the ID node are ephemeral nodes of the
// opener.
//
// If the opener's session ends before the round does, only the record is left. Members that leave
// do not remove it, because without an ID node they could hit a later gate. The next member to come
// removes it (see clearOver). If none comes, the server removes process, which is a container.
type gate struct {
	site
	id      string // of the ID node
	token   int64  // the number of the transaction
	round   int64  // its number
	members []string

	version int32  // of the record; 0 if the gate was read from ready
	closed  []byte // data of process when the gate is removed
}

func (g *gate) idNode() string { return g.ready() + "-" + g.id }

// has reports whether the gate has counted this node. No gate has.
func (g *gate) has(node string) bool { return g != nil && slices.Contains(g.members, node) }

// hasOwner reports whether the gate has counted a node of this owner. No gate has.
func (g *gate) hasOwner(owner string) bool {
	return g != nil && slices.ContainsFunc(g.members, func(m string) bool { return strings.HasPrefix(m, owner) })
}

// left returns the members of the round that have not left.
func (g *gate) left(ctx context.Context, s *recipe.Session) ([]string, error) {
	children, _, err := s.Children(ctx, g.process())
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return slices.DeleteFunc(children, func(child string) bool { return !g.has(child) }), err
}

// awaitEnd blocks until all members of the round have left or died. It makes no requests while it
// waits. After a while it watches a member that has not left, because the member that should close
// the gate may have died (or could not close it, because the opener had died).
func (g *gate) awaitEnd(ctx context.Context, s *recipe.Session, long bool) error {
	node, left := g.process(), g.members
	if g.version == 0 { // the record was lost
		node = g.ready()
	}

	for {
		end := s.Watch(node)
		stat, err := end.Fresh(ctx)
		if errors.Is(err, zk.ErrNoNode) { // perhaps not the whole path, but the record with its container
			return g.close(ctx, s)
		} else if err != nil || stat.Mzxid != g.token {
			return err
		}

		long, err = waitFor(ctx, s, end, long, g.member(left[rand.IntN(len(left))]))
		if errors.Is(err, zk.ErrNoNode) {
			if left, err = g.left(ctx, s); err == nil && len(left) == 0 {
				return g.close(ctx, s)
			}
		}
		if err != nil {
			return err
		}
	}
}

// gone notes that another client has removed the gate, perhaps of s.
func (g *gate) gone(s *recipe.Session) {
	s.Gone(g.idNode())
	s.Gone(g.ready())
}

// close removes this gate and no other, after its round has ended. It does nothing if the ID node
// is gone: then the gate was removed, or its opener's session has ended.
func (g *gate) close(ctx context.Context, s *recipe.Session) error {
	ops := []any{
		&zk.DeleteRequest{Path: g.idNode(), Version: -1},
		&zk.DeleteRequest{Path: g.ready(), Version: -1},
	}
	if g.version > 0 {
		ops = append(ops, &zk.SetDataRequest{Path: g.process(), Data: g.closed, Version: g.version})
	}

	_, err := multiOf(ctx, s, 1, ops)
	if errors.Is(err, zk.ErrNoNode) {
		g.gone(s)
		err = nil
	}
	return err
}

// multiOf does the operations in one transaction. It leaves out those whose node is not there or
// has changed, but for the first few, which must succeed.
func multiOf(ctx context.Context, s *recipe.Session, must int, ops []any) ([]zk.MultiResponse, error) {
	for {
		answers, err := s.Multi(ctx, ops...)
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return answers, err
		}

		failed := slices.IndexFunc(answers, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < must {
			return answers, err
		}
		ops = slices.Delete(ops, failed, failed+1)
	}
}
