package doublebarrier

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A crowd is what is left of a round, once that is known.
type crowd struct {
	known   bool
	over    bool // and the gate is removed
	members []string
}

// few is how many members there may be left for a leaver to list them, and to wait for each of them.
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

// left returns the members that are left if those are few.
func (g *gate) left(ctx context.Context, s *protocol.Session) (crowd, error) {
	b := g.barrier
	count, err := protocol.Do(ctx, s, func(c *zk.Conn) (int, error) {
		there, stat, err := c.Exists(s.Path(b.process()))
		if !there || err != nil {
			return 0, err
		}
		return int(stat.NumChildren), nil
	})
	switch {
	case err != nil || count-g.foreign > few && len(g.members) > few:
		return crowd{}, err
	case count == 0:
		return crowd{known: true}, nil
	}
	members, err := g.remaining(ctx, s)
	return crowd{known: err == nil, members: members}, err
}

// over blocks until all members of the round have left.
func (g *gate) over(ctx context.Context, s *protocol.Session, left crowd) error {
	if left.over {
		return nil
	}
	defer s.Engage()()
	someone := g.members[rand.IntN(len(g.members))]
	for !left.known {
		if ended, err := g.wait(ctx, s); ended || err != nil {
			return err
		}

		// The member that was to remove the gate may have died, or could not as the opener had.
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

// wait blocks until this gate is removed, a third of a session timeout at most. It reports whether it is.
func (g *gate) wait(ctx context.Context, s *protocol.Session) (ended bool, err error) {
	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)
	defer cancel()
	node := g.barrier.process()
	if g.version == 0 { // the record was lost
		node = g.barrier.ready()
	}
	stat, err := s.Until(soon, node, func(stat *zk.Stat) bool { return stat.Mzxid != g.token })
	if soon.Err() != nil && ctx.Err() == nil && s.Err() == nil && errors.Is(err, soon.Err()) {
		return false, nil
	}
	if err == nil && stat == nil { // perhaps not the whole, but the record with its container
		err = g.close(ctx, s)
	}
	return err == nil, err
}
