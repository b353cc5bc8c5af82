package line

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A contender is one node in line.
type contender struct {
	line    *Line
	session *protocol.Session
	request Request
	claims  bool // it does not wait in line
	own     *protocol.Own

	alone   bool  // it was the only one when its node was created
	token   int64 // if it was alone
	company bool  // others have been in line, too
	version int32 // of its node, which others change to make it look again
}

// contend creates a node in line, waits until it is granted, and withdraws the node if it does not
// come to that.
func (l *Line) contend(ctx context.Context, s *protocol.Session, r Request, claims bool) (*protocol.Grant, error) {
	defer s.KeepAlive()()

	c := &contender{line: l, session: s, request: r, claims: claims}
	own, err := protocol.Detach(ctx, s, func(ctx context.Context) (*protocol.Own, error) {
		own, err := s.CreateOwn(ctx, protocol.OwnNode{
			Dir:     l.recipe.Path(),
			Prefix:  s.NewOwner().String() + "-" + r.Kind,
			Create:  c.create,
			Missing: c.createDir,
		})
		if err != nil {
			l.parent.forget() // if the node is ours, it may be another one when the next contender comes
		}
		return own, err
	}, func(late *protocol.Own) { late.Withdraw(context.Background()) })
	if err != nil {
		return nil, err
	}
	c.own = own

	g, failed := c.advance(ctx)
	if failed == nil {
		return g, nil
	}
	if err := own.Withdraw(ctx); ctx.Err() != nil && err != nil {
		return nil, err
	}
	return nil, failed
}

// create makes one attempt to create the node. Where no other contender is likely to be in line, it
// sets the data of the line's own node in the same transaction, to nothing as they were. The answer
// then tells how many children there are, and the number of the transaction, which is the token.
func (c *contender) create(conn *zk.Conn, prefix string) (string, error) {
	l, s := c.line, c.session
	version, empty, own, likely := l.parent.known()
	// A claim has looked right now. If that is out of date already, another one was faster.
	if fast := own && likely || c.claims && empty; !fast {
		return protocol.Create(conn, prefix, c.request.Data, zk.FlagEphemeralSequential, s.ACL())
	}

	answers, err := protocol.Multi(conn,
		&zk.CreateRequest{Path: prefix, Data: c.request.Data, Acl: s.ACL(), Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: s.Path(l.recipe.Path()), Version: version})
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		l.parent.forget()
		if c.claims {
			return "", ErrBusy
		}
		return c.create(conn, prefix)
	case errors.Is(err, zk.ErrNoAuth):
		l.parent.close()
		return c.create(conn, prefix)
	case err != nil:
		return "", err
	}

	// The node of the line was changed last by this transaction, which created ours.
	stat := answers[1].Stat
	l.parent.set(stat)
	c.alone, c.token = stat.NumChildren == 1, stat.Mzxid
	return answers[0].String, nil
}

func (c *contender) createDir(ctx context.Context) error {
	c.line.parent.forget()
	created, err := c.session.EnsurePath(ctx, c.line.recipe.Path())
	if created {
		c.line.parent.set(&zk.Stat{})
	}
	return err
}

// advance waits until the contender is granted.
func (c *contender) advance(ctx context.Context) (*protocol.Grant, error) {
	l, s := c.line, c.session
	if c.alone {
		if asked, err := s.Confirm(ctx); err != nil {
			return nil, err
		} else if !asked {
			return c.grant(ctx, c.token)
		}
	}

	for {
		// Our own node is read, and watched, while the listing is on its way.
		own := s.Watch(l.pathOf(c.own.Name()))
		children, names, err := l.list(ctx, s)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, protocol.Again(errGone)
		} else if err != nil {
			return nil, err
		}
		name := c.own.Name()
		if !c.own.Among(children) {
			return nil, protocol.Again(errGone)
		} else if c.own.Name() != name {
			continue
		}

		stat, err := own.Ready(ctx)
		if errors.Is(err, zk.ErrNoNode) || err == nil && stat.EphemeralOwner != s.ID() {
			return nil, protocol.Again(errGone)
		} else if err != nil {
			return nil, err
		}

		// The listing may be older than a change of our own node.
		if stat.Version != c.version {
			c.version = stat.Version
			continue
		}
		if refused := c.request.check(names); refused != nil {
			if same, err := own.Recheck(ctx); err != nil {
				return nil, err
			} else if same {
				return nil, refused
			}
			continue
		}
		self := slices.IndexFunc(names, func(n Name) bool { return n.Node == name })
		c.company = c.company || len(names) > 1
		blockers := c.request.blockers(names, self)
		if len(blockers) > 0 {
			if c.request.Try {
				return nil, ErrBusy
			}
			free, err := c.await(ctx, names, self, blockers, own)
			if err != nil {
				return nil, err
			} else if !free || !c.own.Sole() || !own.Unchanged() {
				continue
			}
		}

		// What was read before the session was confirmed may be out of date.
		if asked, err := s.Confirm(ctx); err != nil {
			return nil, err
		} else if asked {
			continue
		}
		return c.grant(ctx, stat.Czxid)
	}
}

// await waits until one of the blockers goes, or our own node changes. It reports whether it is
// certain that nothing blocks the contender any more. Otherwise the line has to be listed again.
func (c *contender) await(ctx context.Context, names []Name, self int, blockers []Name, own *protocol.Watch) (free bool, err error) {
	s, l := c.session, c.line
	watches := make([]*protocol.Watch, 0, len(blockers)+1)
	for _, b := range blockers {
		watches = append(watches, s.Watch(l.pathOf(b.Node)))
	}

	// Once everything up to a single blocker is gone, the contenders behind that one may block or
	// not. None can have come between those, as numbers only grow. Either there is nothing before
	// the blocker, or its marker says so.
	single, first := false, false
	if len(blockers) == 1 {
		i := slices.Index(names, blockers[0])
		single = len(c.request.blockers(names[i+1:], self-i-1)) == 0
		first = i == 0
	}
	for _, w := range watches {
		_, err := w.Ready(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return single && first && l.allExclusive(), nil // or another node may have taken its place
		} else if err != nil {
			return false, err
		}
	}
	if b := blockers[0]; single && !first && b.Owner != (protocol.Owner{}) && l.exclusive(b.Kind) {
		watches[0].ExpectMarker()
	}

	if len(blockers) > 1 {
		return false, s.WaitAny(ctx, append(watches, own)...) // nothing else is kept meanwhile
	}
	if err := s.WaitAny(ctx, watches[0], own); err != nil {
		return false, err
	}
	return single && (first && watches[0].Deleted() || watches[0].Marked()), nil
}

func (c *contender) grant(ctx context.Context, token int64) (*protocol.Grant, error) {
	l, s, path := c.line, c.session, c.line.pathOf(c.own.Name())
	return l.recipe.NewGrant(ctx, s, path, token, func(ctx context.Context) error {
		if c.company && l.exclusive(c.request.Kind) {
			return Release(ctx, s, path)
		}
		if version, empty, own, likely := l.parent.known(); empty && likely && !own {
			return s.DeleteWith(ctx, path, func(conn *zk.Conn) error { return l.adopt(conn, s, path, version) })
		}
		return s.Delete(ctx, path, -1)
	})
}

// adopt deletes a node and sets the data of the line's own node, which is empty at this version, so
// that the next contender can be fast. While the released node is there, so is the line's node that
// was looked at.
func (l *Line) adopt(conn *zk.Conn, s *protocol.Session, path string, version int32) error {
	answers, err := protocol.Multi(conn,
		&zk.DeleteRequest{Path: s.Path(path), Version: -1},
		&zk.SetDataRequest{Path: s.Path(l.recipe.Path()), Version: version})
	switch {
	case err == nil:
		l.parent.set(answers[1].Stat)
	case errors.Is(err, zk.ErrNoAuth):
		l.parent.close()
	}
	return err
}
