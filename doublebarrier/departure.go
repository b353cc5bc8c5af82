package doublebarrier

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// few is how many of the members that leave last look whether all others have left or died.
const few = 4

// depart deletes the member, and closes the gate if it was the last.
//
// The opener goes on in the background until the round is over: its Leave may end before that, and
// the nodes of the gate would stay for as long as its session does.
func (e *Entry) depart(ctx context.Context, node string) error {
	g, s := e.gate, e.session
	number, err := g.leave(ctx, s, node)
	if err != nil {
		return err
	}

	// The node is gone. What is not known here, Leave finds out.
	e.orphaned = number == 0
	e.over = g.closeAfter(ctx, s, number)
	if !e.over && g.openedBy(s) {
		s.Go(func(ctx context.Context) { g.awaitEnd(ctx, s, e.orphaned) })
	}
	return nil
}

// openedBy reports whether the nodes of the gate are those of this session.
func (g *gate) openedBy(s *protocol.Session) bool {
	opener, _, _ := protocol.ParseOwner(g.id + "-")
	return opener.Session == s.ID()
}

// closeAfter closes the gate if no member is left after the departure with this number, as leave
// returns it. It reports whether it has.
func (g *gate) closeAfter(ctx context.Context, s *protocol.Session, number int) (closed bool) {
	rest := len(g.members) - number
	if number == 0 || rest > 0 && rest < few {
		left, err := g.membersLeft(ctx, s)
		if err != nil {
			return false
		}
		rest = len(left)
	}
	return rest == 0 && g.close(ctx, s) == nil
}

// leave deletes the member and counts that at the ID node. It returns how many have left so, or 0
// if that is not known: the ID node has gone with the opener, or an answer was lost.
//
// A member can be deleted once. So the last of n has the number n, if none has died.
func (g *gate) leave(ctx context.Context, s *protocol.Session, node string) (number int, err error) {
	err = s.DeleteWith(ctx, node, func(c *zk.Conn) error {
		answers, err := protocol.Multi(c,
			&zk.DeleteRequest{Path: s.Path(node), Version: -1},
			&zk.SetDataRequest{Path: s.Path(g.idNode()), Version: -1})
		switch {
		case err == nil:
			number = int(answers[1].Stat.Version)
		case errors.Is(err, zk.ErrNoNode) && answers[0].Error == nil:
			err = errNoID // which makes DeleteWith delete the member alone
		}
		return err
	})
	return number, err
}

var errNoID = errors.New("no ID node")

// awaitEnd blocks until all members of the round have left or died. It makes no requests while it
// waits. Once the wait is long, it watches one of the members that have not left: the one that was
// to close the gate may have died, or could not as the opener had.
func (g *gate) awaitEnd(ctx context.Context, s *protocol.Session, long bool) error {
	node, left := g.barrier.process(), g.members
	if g.version == 0 { // the record was lost
		node = g.barrier.ready()
	}

	for {
		end := s.Watch(node)
		same, err := end.Current(ctx)
		if errors.Is(err, zk.ErrNoNode) { // perhaps not the whole, but the record with its container
			return g.close(ctx, s)
		} else if err != nil {
			return err
		} else if !same {
			continue
		}
		if stat, err := end.Ready(ctx); err != nil || stat.Mzxid != g.token {
			return err
		}

		if !long {
			if long, err = waitBriefly(ctx, s, end); err != nil {
				return err
			}
			continue
		}

		one := s.Watch(g.barrier.member(left[rand.IntN(len(left))]))
		_, err = one.Ready(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if left, err = g.membersLeft(ctx, s); err == nil && len(left) == 0 {
				return g.close(ctx, s)
			}
		case err == nil:
			err = s.WaitAny(ctx, end, one)
		}
		if err != nil {
			return err
		}
	}
}
