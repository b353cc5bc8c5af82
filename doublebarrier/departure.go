package doublebarrier

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// few is how many of the members that leave last look whether all others have left or died.
const few = 4

// depart deletes the member, and closes the gate if it was the last.
//
// The opener goes on in the background until the round ends (also if another client has deleted its
// member). Its Leave may end earlier, and then the nodes of the gate would stay for as long as its
// session lives.
func (e *Entry) depart(ctx context.Context, s *recipe.Session, node string) error {
	g := e.gate
	number, err := g.leave(ctx, s, node)
	if err != nil {
		return err
	}

	// The node is gone. Leave finds out the rest.
	e.orphaned = number == 0
	rest := len(g.members) - number
	if e.orphaned || rest > 0 && rest < few {
		if left, err := g.left(ctx, s); err == nil {
			rest = len(left)
		}
	}

	// The last member closes the gate.
	e.over = rest == 0 && g.close(ctx, s) == nil
	if !e.over {
		e.outlast(s)
	}
	return nil
}

// outlast closes the gate in the background when the round ends, if the session has opened it.
func (e *Entry) outlast(s *recipe.Session) {
	if opener, _, _ := recipe.ParseOwner(e.gate.id + "-"); opener.Session == s.ID() {
		e.gate.attend(s, e.orphaned)
	}
}

// attend closes the gate in the background when the round ends, or notes that a member has.
func (g *gate) attend(s *recipe.Session, long bool) {
	s.Go(func(ctx context.Context, s *recipe.Session) {
		if g.awaitEnd(ctx, s, long) == nil {
			g.gone(s)
		}
	})
}

// leave deletes the member and counts that at the ID node. It returns how many have left so, or 0
// if that is not known: the ID node has gone with the opener, or an answer was lost.
//
// A member can be deleted once. So the last of n has the number n, if none has died.
func (g *gate) leave(ctx context.Context, s *recipe.Session, node string) (number int, err error) {
	err = s.DeleteWith(ctx, node, func(c *zk.Conn) error {
		answers, err := recipe.Multi(c,
			&zk.DeleteRequest{Path: s.Path(node), Version: -1},
			&zk.SetDataRequest{Path: s.Path(g.idNode()), Version: -1})
		switch {
		case err == nil:
			number = int(answers[1].Stat.Version)
		case errors.Is(err, zk.ErrNoNode) && len(answers) > 0 && answers[0].Error == nil:
			err = errors.New("no ID node") // which makes DeleteWith delete the member alone
		}
		return err
	})
	return number, err
}
