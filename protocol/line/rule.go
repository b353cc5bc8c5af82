package line

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// keeper is the name of a persistent child that keeps the line's node, and so a rule that a recipe
// has set. (Servers delete a container without children.)
const keeper = layout.Keeper

// Follow makes contenders obey the data of the line's own node instead of their requests' Blockers.
// The rule returns the Blockers for the data, or the error with which Enter refuses contenders. (A
// request with Try is refused only after a Sync.) If the node has no data, the next contender sets
// it to first, for which it needs the permission to write the node. When the recipe changes the
// data, every waiter follows.
//
// The rule must grant a contender that is alone in line. Call Follow before the line is used.
func (l *Line) Follow(first []byte, rule func(data []byte) (Blockers, error)) {
	l.first, l.rule = first, rule
}

// children lists the line's node. If the line has a rule, it also returns the node's data, as of
// the listing or later. (So the listing has every contender that the rule must consider.)
func (l *Line) children(ctx context.Context, s *recipe.Session) (children []string, data []byte, err error) {
	children, data, err = l.childrenAlone(ctx, s)
	if l.rule != nil && data == nil && err == nil {
		data, err = l.ruleData(ctx, s)
	}
	return children, data, err
}

// childrenAlone lists the line's node, and returns its data if that is known.
func (l *Line) childrenAlone(ctx context.Context, s *recipe.Session) (children []string, data []byte, err error) {
	children, stat, err := s.Children(ctx, l.recipe.Path())
	switch {
	case err == nil:
		data = l.parent.look(stat, l.rule == nil && stat.DataLength == 0, l.rule != nil && slices.Contains(children, keeper))
	case errors.Is(err, zk.ErrNoNode):
		l.parent.forget()
	}

	return children, data, err
}

// ruleData reads the rule, and sets it if there is none.
func (l *Line) ruleData(ctx context.Context, s *recipe.Session) ([]byte, error) {
	for {
		data, stat, err := s.Get(ctx, l.recipe.Path())
		if err != nil {
			return nil, err
		} else if len(data) > 0 {
			_, refused := l.rule(data)
			l.parent.read(stat, data, refused == nil)
			return data, nil
		}

		// On a bad version another contender was faster (or an earlier attempt of ours).
		_, err = s.Set(ctx, l.recipe.Path(), l.first, stat.Version)
		if err != nil && !errors.Is(err, zk.ErrBadVersion) {
			return nil, err
		}
	}
}

// obey gives the request the Blockers for data, if the line has a rule.
func (l *Line) obey(r *Request, data []byte) (err error) {
	if l.rule != nil {
		r.Blockers, err = l.rule(data)
	}
	return err
}

// obey makes the contender obey data.
func (c *contender) obey(data []byte) error {
	if bytes.Equal(data, c.data) {
		return nil
	}
	request := *c.request
	c.request, c.data = &request, data
	return c.line.obey(&request, data)
}

// sameRule begins to watch the line's rule, and reports whether the contender obeys it already.
func (c *contender) sameRule(ctx context.Context) (bool, error) {
	if c.line.rule == nil {
		return true, nil
	}

	c.rules = c.session.Watch(c.line.recipe.Path())
	_, err := c.rules.Ready(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return false, recipe.Again(errGone)
	}
	c.ruled = err == nil && !bytes.Equal(c.rules.Data(), c.data)
	return !c.ruled, err
}
