package election

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

var (
	// ErrNotInLine is returned by [Term.ResignTo] if the chosen candidate is not in line (any
	// more).
	ErrNotInLine = errors.New("not in line")

	// ErrForeignContender is returned by [Term.ResignTo] if a contender of another library would
	// have to be passed over.
	ErrForeignContender = errors.New("a contender of another library is ahead")
)

// ResignTo resigns in favour of a candidate that need not be next in line, given its name in
// [Election.Candidates]. The vacancy lasts until the candidate is notified, as after [Term.Resign].
// At no moment do two candidates believe that they lead.
//
// Earlier candidates are passed over. The transaction that ends the term deletes their nodes, and
// they join again at the end of the line by themselves. They cannot keep their places, because
// later leaders must have greater tokens. No other candidate is affected.
//
// ResignTo blocks until the server has answered three times, ctx ends or the session ends. The term
// lasts during the first two requests. If the error wraps one of these, nothing was done and the
// term goes on (its Err says so):
//
//   - [ErrNotInLine]: there is no such candidate;
//   - [ErrForeignContender]: a contender of another library would have to be passed over, and
//     would not find its way to the end of the line;
//   - [protocol.ErrTooLarge]: thousands of candidates would have to be passed over;
//   - ctx's error, if ctx ended early enough.
//
// There is one exception. ResignTo also returns ErrNotInLine if the candidate leaves at the last
// moment. Then the term has ended and the next in line leads. It also returns the errors of Resign.
func (t *Term) ResignTo(ctx context.Context, node string) error {
	g, r := t.grant, t.election.recipe
	if err := r.ValidateCall(ctx, nil); err != nil {
		return err
	}

	h := &handover{term: t, session: g.Session(), to: node}
	if err := h.prepare(ctx); err != nil {
		if over := g.Err(); over != nil && ctx.Err() == nil {
			return over
		}
		return r.Wrap(err)
	}

	begun, err := g.ReleaseWith(ctx, h.remove)
	if err == nil && begun && h.missed {
		return r.Wrap(fmt.Errorf("%w (any more): %q", ErrNotInLine, h.to))
	}
	return err
}

// A handover is the end of a term in favour of a candidate that need not be next in line.
type handover struct {
	term    *Term
	session *recipe.Session
	to      string
	over    []string // the paths of the candidates that are passed over
	missed  bool     // to has left; valid once the grant is removed
}

func (h *handover) pathOf(node string) string { return h.term.election.recipe.Path() + "/" + node }

// prepare finds out which candidates are passed over. No candidate can come later and be one of
// them, because numbers only grow.
func (h *handover) prepare(ctx context.Context) error {
	g, s, e := h.term.grant, h.session, h.term.election
	if err := g.Err(); err != nil {
		return err
	}
	if err := s.Sync(ctx, e.recipe.Path()); err != nil {
		return err
	}
	names, err := e.line.Names(ctx, s)
	if err != nil {
		return err
	}

	at := func(node string) int {
		return slices.IndexFunc(names, func(n line.Name) bool { return n.Node == node })
	}
	self, to := at(g.Node()), at(h.to)
	if self < 0 {
		if err := g.Verify(ctx); err != nil {
			return err
		}
	}
	if to <= self {
		return fmt.Errorf("%w: %q", ErrNotInLine, h.to)
	}
	for _, n := range names[self+1 : to] {
		if n.Owner == (recipe.Owner{}) {
			return fmt.Errorf("%w: %s", ErrForeignContender, n.Node)
		}
		h.over = append(h.over, h.pathOf(n.Node))
	}
	if recipe.MultiSize(h.ops(true)...) > s.RequestLimit() {
		return fmt.Errorf("%w: %d contenders would be passed over", protocol.ErrTooLarge, len(h.over))
	}
	return nil
}

// ops deletes the nodes of the leader and of the candidates that are passed over, all at once. Only
// the node just before the chosen candidate leaves its marker, because no node is ahead after that.
// The others leave no marker: a candidate that is passed over may not know yet that its own node is
// gone.
//
// The last goes first: the candidate behind the leader needs no marker, and must see the event of
// its own node before it sees that no node is ahead.
func (h *handover) ops(marker bool) []any {
	ops := []any{&zk.CheckVersionRequest{Path: h.session.Path(h.pathOf(h.to)), Version: -1}}
	for i, path := range slices.Backward(append([]string{h.pathOf(h.term.Node())}, h.over...)) {
		removal := line.ReleaseOps(h.session, path)
		if !marker || i < len(h.over) {
			removal = removal[len(removal)-1:]
		}
		ops = append(ops, removal...)
	}
	return ops
}

func (h *handover) remove(ctx context.Context, s *recipe.Session) error {
	h.session = s
	defer s.KeepAlive()()

	leader := h.pathOf(h.term.Node())
	for marker := true; ; {
		ops := h.ops(marker)
		answers, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			return recipe.Multi(c, ops...)
		}, h.find)
		missing := errors.Is(err, zk.ErrNoNode)
		switch {
		case err == nil, s.Err() != nil:
			return err
		case !missing && marker && !recipe.OutcomeUnknown(err):
			marker = false // we may not create it, or another client has
			continue
		case !missing:
			// The caller gets the error. The grant is given back, so its own node must go.
			line.Release(ctx, s, leader)
			return err
		}

		// One operation for each candidate that is passed over comes before the leader's. All
		// others before that belong to the last candidate.
		failed := slices.IndexFunc(answers, func(a zk.MultiResponse) bool { return errors.Is(a.Error, zk.ErrNoNode) })
		if left := min(len(ops)-2-failed, len(h.over)-1); failed > 0 && left >= 0 {
			h.over = slices.Delete(h.over, left, left+1) // it has left by itself
			continue
		}
		h.missed = true
		return line.Release(ctx, s, leader)
	}
}

// find reports whether the leader's node is gone, and with it all the others.
func (h *handover) find(ctx context.Context) (_ []zk.MultiResponse, gone bool, err error) {
	stat, err := h.session.Exists(ctx, h.pathOf(h.term.Node()))
	return nil, err == nil && stat == nil, err
}
