package line

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// keeper is the name of a persistent child that keeps the line's node, and with it a rule that
// SetRule has set: without children, a container is deleted.
const keeper = layout.Keeper

// Follow has the data of the line's own node say what blocks its contenders, instead of their
// requests. The rule returns the Blockers for data, or the error with which Enter refuses them. Of
// contenders that do not wait, one that the rule refuses has asked a server that does not lag. A
// line whose node has no data is given first by the contender that comes first, which needs the
// permission to write the node. [Line.SetRule] changes the data, and every waiter follows.
//
// The rule must let a contender in that is alone in line. Call Follow before the line is used.
func (l *Line) Follow(first []byte, rule func(data []byte) (Blockers, error)) {
	l.first, l.rule = first, rule
}

// children lists the line's node, and returns the data of a line with a rule, as of the listing or
// later. So of contenders that were ahead then, no more are ahead under the rule that is returned.
func (l *Line) children(ctx context.Context, s *protocol.Session) (children []string, data []byte, err error) {
	children, data, err = l.childrenAlone(ctx, s)
	if l.rule != nil && data == nil && err == nil {
		data, err = l.ruleData(ctx, s)
	}
	return children, data, err
}

// childrenAlone lists the line's node, and returns what is known of its rule.
func (l *Line) childrenAlone(ctx context.Context, s *protocol.Session) (children []string, data []byte, err error) {
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
func (l *Line) ruleData(ctx context.Context, s *protocol.Session) ([]byte, error) {
	for {
		data, stat, err := s.Get(ctx, l.recipe.Path())
		if err != nil {
			return nil, err
		} else if len(data) > 0 {
			_, refused := l.rule(data)
			l.parent.read(stat, data, refused == nil)
			return data, nil
		}
		_, err = s.Set(ctx, l.recipe.Path(), l.first, stat.Version)
		if err != nil && !errors.Is(err, zk.ErrBadVersion) { // another contender was faster, or an attempt of ours
			return nil, err
		}
	}
}

// obey has the request go by the rule that data say.
func (l *Line) obey(r *Request, data []byte) (err error) {
	if l.rule != nil {
		r.Blockers, err = l.rule(data)
	}
	return err
}

// obey has the contender go by the rule that data say.
func (c *contender) obey(data []byte) error {
	if bytes.Equal(data, c.data) {
		return nil
	}
	request := *c.request
	c.request, c.data = &request, data
	return c.line.obey(&request, data)
}

// sameRule reports whether the contender goes by the line's rule, which it watches from then on.
func (c *contender) sameRule(ctx context.Context) (bool, error) {
	if c.line.rule == nil {
		return true, nil
	}
	c.rules = c.session.Watch(c.line.recipe.Path())
	_, err := c.rules.Ready(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return false, protocol.Again(errGone)
	}
	c.ruled = err == nil && !bytes.Equal(c.rules.Data(), c.data)
	return !c.ruled, err
}

// Rule returns the data that say what blocks the contenders, or nil if the line has none yet, as of a
// moment after the call began. It blocks until the server has answered twice or ctx ends. Its errors
// are those of [protocol.Do] and of [protocol.Recipe.Session], with recipe and path.
func (l *Line) Rule(ctx context.Context) ([]byte, error) {
	data, err := protocol.AcrossSessions(ctx, l.made(), func(s *protocol.Session) ([]byte, error) {
		if err := s.Sync(ctx, l.recipe.Path()); err != nil {
			return nil, err
		}
		data, _, err := s.Get(ctx, l.recipe.Path())
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return data, err
	})
	return data, l.made().Wrap(err)
}

// SetRule changes the data that say what blocks the contenders. Holders keep what they have, and
// waiters follow as soon as their servers say so. From then on the line's node stays when the line
// is idle. Of several changes at the same time, one is the last, and no other comes back.
//
// If the node has data that replaceable refuses, SetRule returns its error. It blocks until the
// server has answered, or ctx ends: the rule may have been changed then or not. SetRule goes on in
// the next session if one is lost. Other errors are the server's own, such as [zk.ErrNoAuth].
func (l *Line) SetRule(ctx context.Context, data []byte, replaceable func(data []byte) error) error {
	if err := l.made().ValidateCall(ctx, data); err != nil {
		return err
	}
	path := l.recipe.Path()
	type keeping struct { // of the keeper
		czxid   int64 // 0: there is none
		version int32
	}
	var before *keeping
	_, err := protocol.AcrossSessions(ctx, l.recipe, func(s *protocol.Session) (none struct{}, err error) {
		if _, err := s.EnsurePath(ctx, path); err != nil {
			return none, err
		} else if err := s.Sync(ctx, path); err != nil {
			return none, err
		}
		there, _, err := s.Get(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return none, protocol.Again(err)
		} else if err != nil {
			return none, err
		} else if len(there) > 0 && replaceable(there) != nil {
			return none, replaceable(there)
		}
		stat, err := s.Exists(ctx, path+"/"+keeper)
		if err != nil {
			return none, err
		}
		var now keeping
		if stat != nil {
			now = keeping{stat.Czxid, stat.Version}
		}

		// Each change is one of the keeper, too. If that has changed since the call began, it was
		// this call, or another one, which counts as the later one of the two.
		if before == nil || now.czxid == 0 {
			before = &now
		} else if now != *before {
			return none, nil
		}
		if stat != nil && bytes.Equal(there, data) {
			return none, nil
		}
		ops := []any{&zk.SetDataRequest{Path: path, Data: data, Version: -1}}
		if stat == nil {
			ops = append(ops, &zk.CreateRequest{Path: path + "/" + keeper})
		} else {
			ops = append(ops, &zk.SetDataRequest{Path: path + "/" + keeper, Version: now.version})
		}
		_, err = s.Multi(ctx, ops...)
		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) {
			return none, protocol.Again(err) // the next look shows whose change that was
		}
		return none, err
	})
	return l.recipe.Wrap(err)
}
