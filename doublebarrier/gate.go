package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A gate is what lets a round in: the node "ready", whose data are its members. It has a child with a name that is never
// used again, so that a removal can say which gate it means.
type gate struct {
	barrier *Barrier
	id      string // the child's name
	token   int64  // its czxid
	members []string
}

func (b *Barrier) process() string              { return b.path + "/process" }
func (b *Barrier) member(name string) string    { return b.process() + "/" + name }
func (b *Barrier) ready() string                { return b.path + "/ready" }
func (g *gate) data() []byte                    { return []byte(g.id + "\n" + strings.Join(g.members, "\n")) }
func isMember(name string) bool                 { _, ok := protocol.ParseName(name, kind); return ok }
func (g *gate) path(s *protocol.Session) string { return s.Path(g.barrier.ready()) }

// gate reads the gate that is open, if any.
func (b *Barrier) gate(ctx context.Context, s *protocol.Session) (*gate, error) {
	return protocol.Do(ctx, s, func(c *zk.Conn) (*gate, error) {
		data, stat, err := c.Get(s.Path(b.ready()))
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		words := strings.Split(string(data), "\n")
		if len(words) < 2 || !slices.ContainsFunc(words[1:], isMember) {
			return nil, fmt.Errorf("%w: %s is not a gate of ours", zk.ErrNodeExists, b.ready())
		}
		return &gate{b, words[0], stat.Czxid, words[1:]}, nil
	})
}

// line lists the members, first come first. There are none if the node above them does not exist.
func (b *Barrier) line(ctx context.Context, s *protocol.Session) ([]string, error) {
	children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
		children, _, err := c.Children(s.Path(b.process()))
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	children = slices.DeleteFunc(children, func(child string) bool { return !isMember(child) })
	slices.SortFunc(children, func(x, y string) int {
		a, _ := protocol.ParseName(x, kind)
		b, _ := protocol.ParseName(y, kind)
		return a.Compare(b)
	})
	return children, err
}

// children is how many nodes there are where the members are, strangers included; none if that does not exist.
func (b *Barrier) children(ctx context.Context, s *protocol.Session) (int, error) {
	return protocol.Do(ctx, s, func(c *zk.Conn) (int, error) {
		there, stat, err := c.Exists(s.Path(b.process()))
		if !there || err != nil {
			return 0, err
		}
		return int(stat.NumChildren), nil
	})
}

// open opens the gate for the first n in line. It reports whether there are enough of them; if it returns no gate
// nevertheless, somebody was faster or has just gone.
func (a *arrival) open(ctx context.Context) (g *gate, enough bool, err error) {
	b, s := a.barrier, a.session
	if count, err := b.children(ctx, s); err != nil || count < b.n {
		return nil, false, err
	}
	line, err := b.line(ctx, s)
	if err != nil {
		return nil, false, err
	}
	g = &gate{barrier: b, id: s.NewOwner().String(), members: a.first(line)}
	if len(g.members) < b.n {
		return nil, false, nil
	}
	var ops []any
	for _, m := range g.members {
		ops = append(ops, &zk.SetDataRequest{Path: s.Path(b.member(m)), Data: []byte{}, Version: 0})
	}
	ops = append(ops,
		&zk.CreateRequest{Path: g.path(s), Data: g.data(), Acl: b.client.ACL()},
		&zk.CreateRequest{Path: g.path(s) + "/" + g.id, Acl: b.client.ACL()})
	answers, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	switch {
	case err == nil:
		g.token = answers[0].Stat.Mzxid
		return g, true, nil
	case errors.Is(err, zk.ErrNodeExists):
		return nil, true, nil
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		a.pass(g.members, answers)
		return nil, true, nil
	}
	return nil, false, err
}

// first returns the first n in line that may be counted, or fewer. Of an owner who has lost a session there may be two.
func (a *arrival) first(line []string) (members []string) {
	owners := make(map[string]bool)
	for _, m := range line {
		owner := m[:strings.LastIndex(m, kind)]
		if len(members) < a.barrier.n && !a.strange[m] && !owners[owner] {
			owners[owner] = true
			members = append(members, m)
		}
	}
	return members
}

// pass notes who could not be counted: one that is gone, or that was counted by a gate which somebody has deleted.
func (a *arrival) pass(members []string, answers []zk.MultiResponse) {
	for i, m := range members {
		if i < len(answers) && (errors.Is(answers[i].Error, zk.ErrNoNode) || errors.Is(answers[i].Error, zk.ErrBadVersion)) {
			if a.strange == nil {
				a.strange = make(map[string]bool)
			}
			a.strange[m] = true
		}
	}
}

// remaining returns the members of the round that have not left.
func (g *gate) remaining(ctx context.Context, s *protocol.Session) ([]string, error) {
	line, err := g.barrier.line(ctx, s)
	return slices.DeleteFunc(line, func(m string) bool { return !slices.Contains(g.members, m) }), err
}

// close removes this gate and no other.
func (g *gate) close(ctx context.Context, s *protocol.Session) error {
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.DeleteRequest{Path: g.path(s) + "/" + g.id, Version: -1},
			&zk.DeleteRequest{Path: g.path(s), Version: -1})
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// A crowd is who is left of a round, once that is known.
type crowd struct {
	known   bool
	over    bool // and the gate is removed
	members []string
}

// few is how many children there may be for a leaver to list them, and to wait for each of them.
const few = 4

// depart deletes the member, and the gate if it was the last.
func (e *Entry) depart(life context.Context, node string) error {
	s := e.session
	err := s.Remove(life, node)
	if err != nil {
		return err
	}
	e.left, err = e.gate.left(life, s)
	if err == nil && e.left.known && len(e.left.members) == 0 {
		e.left.over = e.gate.close(life, s) == nil
	}
	return nil
}

// left tells who is left if those are few.
func (g *gate) left(ctx context.Context, s *protocol.Session) (crowd, error) {
	count, err := g.barrier.children(ctx, s)
	switch {
	case err != nil || count > few:
		return crowd{}, err
	case count == 0:
		return crowd{known: true}, nil
	}
	members, err := g.remaining(ctx, s)
	return crowd{known: err == nil, members: members}, err
}

// over waits until nobody is left of the round.
func (g *gate) over(ctx context.Context, s *protocol.Session, left crowd) error {
	if left.over {
		return nil
	}
	defer s.Engage()()
	someone := g.members[rand.IntN(len(g.members))]
	for !left.known {
		ended, err := g.wait(ctx, s)
		if ended || err != nil {
			return err
		}
		// Whoever was to remove the gate may have died.
		there, err := protocol.Do(ctx, s, func(c *zk.Conn) (bool, error) {
			there, _, err := c.Exists(s.Path(g.barrier.member(someone)))
			return there, err
		})
		if err != nil {
			return err
		} else if there {
			continue
		}
		members, err := g.remaining(ctx, s)
		if err != nil {
			return err
		}
		if left = (crowd{known: len(members) <= few, members: members}); !left.known {
			someone = members[rand.IntN(len(members))]
		}
	}
	for _, m := range left.members {
		if _, err := s.Until(ctx, g.barrier.member(m), func(*zk.Stat) bool { return false }); err != nil {
			return err
		}
	}
	return g.close(ctx, s)
}

// wait waits until this gate is not there any more, a third of a session timeout at most.
func (g *gate) wait(ctx context.Context, s *protocol.Session) (ended bool, err error) {
	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)
	defer cancel()
	_, err = s.Until(soon, g.barrier.ready(), func(stat *zk.Stat) bool { return stat.Czxid != g.token })
	if soon.Err() != nil && ctx.Err() == nil && s.Err() == nil && errors.Is(err, soon.Err()) {
		return false, nil
	}
	return err == nil, err
}
