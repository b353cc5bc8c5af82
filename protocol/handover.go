package protocol

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// SetData replaces the data of g's node, which others see in the line, and does so once. It blocks until the server has
// answered twice, or four times if an answer was lost. Once g's node is gone it has no effect any more, and it never
// undoes a later SetData that has returned. It is safe for concurrent use; one of several at the same time is the last.
//
// It returns g's own error if g is over before, [ErrTooLarge], or what the server said. If it returns ctx's error, or
// that of a back-off that has ended, the data may have been replaced or not. Likewise [ErrUncertain], where an answer
// was lost and the ACL of g's node does not allow to read it.
func (l *Line) SetData(ctx context.Context, g *Grant, data []byte) error {
	if err := validate(l.client, l.path, data); err != nil {
		return Wrap(l.recipe, l.path, err)
	}
	g.session.engage()
	defer g.session.disengage()
	err := g.setData(ctx, data)
	for errors.Is(err, zk.ErrNoNode) {
		if gone, failed := g.missing(ctx); gone {
			return g.Err()
		} else if err = failed; err == nil {
			err = g.setData(ctx, data)
		}
	}
	if over := g.Err(); err != nil && over != nil && ctx.Err() == nil {
		return over
	}
	return Wrap(l.recipe, l.path, err)
}

func (g *Grant) setData(ctx context.Context, data []byte) error {
	for {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		if err := g.Err(); err != nil {
			return err
		}
		stat, err := g.stat(ctx)
		if err != nil {
			return err
		}
		// A write to the version that was read fails, and is tried anew, if an earlier one comes in between that was
		// on its way still when its caller had given up; and once it has succeeded, that other one fails.
		_, err = Settle(ctx, g.session, func(c *zk.Conn) (struct{}, error) {
			_, err := Set(c, g.node, data, stat.Version)
			return struct{}{}, err
		}, func(ctx context.Context) (_ struct{}, done bool, err error) {
			done, err = g.wasSet(ctx, data, stat.Version)
			return struct{}{}, done, err
		})
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}

// wasSet reports whether a write of this data to this version was executed. It returns [zk.ErrBadVersion] if it never
// will be, because another came first.
func (g *Grant) wasSet(ctx context.Context, data []byte, version int32) (bool, error) {
	if err := g.session.sync(ctx, g.node); err != nil {
		return false, err
	}
	now, err := g.session.standing(ctx, g.node, Name{})
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return false, fmt.Errorf("%w: %w", ErrUncertain, err)
	case err != nil || now.version == version:
		return false, err
	case now.version == version+1 && !bytes.Equal(now.Data, data):
		return false, zk.ErrBadVersion
	}
	// With more than one version in between it may have been another's, and ours not executed. Then ours counts as
	// executed just before the last of those, which came while our call lasted: nothing tells the two apart.
	return true, nil
}

// ReleaseTo gives g back so that the contender whose node is called to is granted next, and not the one that has
// waited longest. In one transaction it deletes g's node and those of the contenders ahead of to, who find that out
// and go to the end of the line. They have to: the token of whoever is granted later has to be greater than to's,
// and it is the number of the transaction that created the node. Nothing else is different from [Release]; at no
// moment do two contenders see nobody ahead.
//
// It blocks until the server has answered three times, the first two of them while g still lasts, ctx ends or the
// session is over. It returns an error that wraps [ErrNotInLine] if to does not stand in line behind g, [ErrStranger]
// if a contender of another library would have to be passed over (those know no way to the end of the line),
// [ErrTooLarge] if there are too many to be passed over, ctx's error or what the server said; g goes on then, unless
// its Err says otherwise. Once g is over it returns the errors of Release, and ErrNotInLine if to was faster and has
// left: then the line goes on as after a Release. If ctx ends meanwhile the rest happens in the background. It must not be
// called while g is converted.
func (l *Line) ReleaseTo(ctx context.Context, g *Grant, to string) error {
	h := &handover{line: l, grant: g, to: to}
	if err := h.prepare(ctx); err != nil {
		if over := g.Err(); over != nil && ctx.Err() == nil {
			return over
		}
		return Wrap(l.recipe, l.path, err)
	}
	g.mu.Lock()
	if g.life.Err() == nil {
		g.remove = h.remove
	}
	g.mu.Unlock()
	err := Release(ctx, g)
	switch {
	case err == nil && !h.begun.Load():
		return g.Err() // somebody else had given it back
	case err == nil && h.missed:
		return Wrap(l.recipe, l.path, fmt.Errorf("%w (any more): %q", ErrNotInLine, h.to))
	}
	return err
}

// A handover is a release to one that is not next in line.
type handover struct {
	line   *Line
	grant  *Grant
	to     string
	over   []string    // absolute paths of those who are passed over
	begun  atomic.Bool // or else the grant was given back otherwise
	missed bool        // to has left; valid once the grant is removed
}

// prepare looks who is passed over. Nobody can come later who would have to be, as numbers only grow.
func (h *handover) prepare(ctx context.Context) error {
	g, s := h.grant, h.grant.session
	if err := validate(h.line.client, h.line.path, nil); err != nil {
		return err
	}
	if err := g.Err(); err != nil {
		return err
	}
	dir := path.Dir(g.node)
	if err := s.sync(ctx, dir); err != nil {
		return err
	}
	line, err := h.line.names(ctx, s)
	if err != nil {
		return err
	}
	at := func(node string) int {
		return slices.IndexFunc(line, func(n Name) bool { return n.Node == node })
	}
	self, to := at(g.Node()), at(h.to)
	if self < 0 {
		g.lose(fmt.Errorf("%w: node %s was deleted", ErrLost, g.Node()))
		return g.Err()
	}
	if to <= self {
		return fmt.Errorf("%w: %q", ErrNotInLine, h.to)
	}
	size := len(dir) + len(h.to) + passingSize(g.node, h.line.client.acl)
	for _, n := range line[self+1 : to] {
		if n.Owner == (Owner{}) {
			return fmt.Errorf("%w: %s", ErrStranger, n.Node)
		}
		h.over = append(h.over, dir+"/"+n.Node)
		size += passingSize(dir+"/"+n.Node, h.line.client.acl)
	}
	if size > MaxData {
		return fmt.Errorf("%w: %d contenders would be passed over", ErrTooLarge, len(h.over))
	}
	return nil
}

// remove deletes the nodes of the holder and of those who are passed over, all at once, and each with its mark, as
// after that nobody is left. The last goes first: everybody has to hear of the end of its own node before it hears that
// nobody is ahead.
func (h *handover) remove(ctx context.Context) error {
	h.begun.Store(true)
	g, s := h.grant, h.grant.session
	s.engage()
	defer s.disengage()
	removal := func(node string) []any { return passing(node, h.line.client.acl) }
	for marked := true; ; {
		ops := []any{&zk.CheckVersionRequest{Path: path.Dir(g.node) + "/" + h.to, Version: -1}}
		for _, node := range slices.Backward(h.over) {
			ops = append(ops, removal(node)...)
		}
		ops = append(ops, removal(g.node)...)
		answers, err := Settle(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return Multi(c, ops...) }, h.find)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && outcomeOf(err) == definite && marked {
			// We may not create the marks, or somebody has.
			removal, marked = func(node string) []any { return []any{&zk.DeleteRequest{Path: node, Version: -1}} }, false
			continue
		}
		if err == nil || s.Err() != nil {
			return err
		}
		if !errors.Is(err, zk.ErrNoNode) {
			// The caller hears of it, and the grant has been given back: its own node has to go.
			detachedFrom(ctx).giveUp(err)
			if failed := h.line.pass(ctx, s, g.node); failed != nil {
				return failed
			}
			return err
		}
		missing := slices.IndexFunc(answers, func(a zk.MultiResponse) bool { return errors.Is(a.Error, zk.ErrNoNode) })
		if each := len(removal(g.node)); missing > 0 && missing <= len(h.over)*each {
			left := len(h.over) - (missing-1)/each - 1
			h.over = slices.Delete(h.over, left, left+1) // it has left by itself
			continue
		}
		h.missed = true
		return h.line.pass(ctx, s, g.node)
	}
}

// find tells whether the holder's node is gone, and with it all the others.
func (h *handover) find(ctx context.Context) (_ []zk.MultiResponse, gone bool, err error) {
	g := h.grant
	if err := g.session.sync(ctx, g.node); err != nil {
		return nil, false, err
	}
	gone, err = Do(ctx, g.session, func(c *zk.Conn) (bool, error) {
		there, _, err := c.Exists(g.node)
		return !there, err
	})
	return nil, gone, err
}
