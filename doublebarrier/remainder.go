package doublebarrier

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A remainder is what is left of a round, once that is known.
type remainder struct {
	known   bool
	over    bool // and the gate is removed
	members []string
}

// few is how many members there may be left for a leaver to list them, and to wait for each of
// them.
const few = 4

// remainder returns the members that are left if those are few.
func (g *gate) remainder(ctx context.Context, s *protocol.Session) (remainder, error) {
	stat, err := s.Exists(ctx, g.barrier.process())
	switch {
	case err != nil:
		return remainder{}, err
	case stat == nil || stat.NumChildren == 0:
		return remainder{known: true}, nil
	case int(stat.NumChildren)-g.foreign > few && len(g.members) > few:
		return remainder{}, nil
	}

	members, err := g.membersLeft(ctx, s)
	return remainder{known: err == nil, members: members}, err
}

// awaitEnd blocks until all members of the round have left.
func (g *gate) awaitEnd(ctx context.Context, s *protocol.Session, left remainder) error {
	if left.over {
		return nil
	}
	defer s.KeepAlive()()

	// While many are left, wait for the gate to go, and look at one of the members now and then.
	watched := g.members[rand.IntN(len(g.members))]
	for !left.known {
		if ended, err := g.awaitRemoval(ctx, s); ended || err != nil {
			return err
		}

		// The member that was to remove the gate may have died, or could not as the opener had.
		stat, err := s.Exists(ctx, g.barrier.member(watched))
		if err != nil {
			return err
		} else if stat != nil {
			continue
		}

		members, err := g.membersLeft(ctx, s)
		if err != nil {
			return err
		}
		if left = (remainder{known: len(members) <= few, members: members}); !left.known {
			watched = members[rand.IntN(len(members))]
		}
	}

	// When few are left, wait for each of them.
	for _, m := range left.members {
		if _, err := s.WaitNode(ctx, g.barrier.member(m), func(*zk.Stat) bool { return false }); err != nil {
			return err
		}
	}
	return g.close(ctx, s)
}

// awaitRemoval blocks until this gate is removed, or for a third of a session timeout. It reports
// whether the gate is removed.
func (g *gate) awaitRemoval(ctx context.Context, s *protocol.Session) (removed bool, err error) {
	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)
	defer cancel()

	node := g.barrier.process()
	if g.version == 0 { // the record was lost
		node = g.barrier.ready()
	}

	stat, err := s.WaitNode(soon, node, func(stat *zk.Stat) bool { return stat.Mzxid != g.token })
	if soon.Err() != nil && ctx.Err() == nil && s.Err() == nil && errors.Is(err, soon.Err()) {
		return false, nil
	}
	if err == nil && stat == nil { // perhaps not the whole, but the record with its container
		err = g.close(ctx, s)
	}
	return err == nil, err
}
