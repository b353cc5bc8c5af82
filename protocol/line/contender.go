package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A contender is one node in line.
type contender struct {
	line     *Line
	session  *protocol.Session
	listings *listings
	request  *Request
	claims   bool // it does not wait in line
	own      *protocol.Own
	rest     func() // ends the KeepAlive of the session

	alone   bool  // it was the only one when its node was created
	company bool  // others have been in line, too
	token   int64 // the czxid of its node, or 0 as long as it is not known

	watch   *protocol.Watch // on its node, once that was read
	version int32           // of its node, which others change to make it look again
}

// contend creates a node in line, waits until it is granted, and withdraws the node if it does not
// come to that.
func (l *Line) contend(ctx context.Context, s *protocol.Session, r *Request, claims bool) (*protocol.Grant, error) {
	c := &contender{
		line: l, session: s, listings: l.shared(s),
		request: r, claims: claims,
		rest: s.KeepAlive(),
	}
	defer func() { c.rest() }()

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
	if c.token == 0 {
		c.token = own.Czxid()
	}

	g, err := c.advance(ctx)
	if err != nil {
		own.Withdraw(ctx) // which goes on in the background if ctx ends
	}
	return g, err
}

// create makes one attempt to create the node.
func (c *contender) create(conn *zk.Conn, prefix string) (string, error) {
	l, s := c.line, c.session
	acl, data := s.ACL(l.pathOf(path.Base(prefix))), s.NodeData(c.request.Data)
	version, empty, own, likely := l.parent.known()
	// A claim has looked right now. If that is out of date already, another one was faster.
	if fast := own && likely || c.claims && empty; fast {
		return c.createFast(conn, prefix, data, acl, version)
	}
	return protocol.Create(conn, prefix, data, zk.FlagEphemeralSequential, acl)
}

// createFast is create where no other contender is likely to be in line. In the same transaction it
// sets the data of the line's own node, to nothing as they were at this version. The answer then
// tells how many children there are, and the number of the transaction, which is the token.
func (c *contender) createFast(conn *zk.Conn, prefix string, data []byte, acl []zk.ACL, version int32) (string, error) {
	l, s := c.line, c.session
	answers, err := protocol.Multi(conn,
		&zk.CreateRequest{Path: prefix, Data: data, Acl: acl, Flags: zk.FlagEphemeralSequential},
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
	s := c.session
	asked := false // to confirm the session, since the contender last waited
	if c.alone {
		var err error
		if asked, err = s.Confirm(ctx); err != nil {
			return nil, err
		} else if !asked {
			return c.grant(ctx)
		}
	}

	for joined := !asked; ; joined = false {
		a, err := c.look(ctx, joined)
		if err != nil {
			return nil, err
		}
		if len(a.blockers) > 0 {
			asked = false
			if free, err := c.await(ctx, a); err != nil {
				return nil, err
			} else if !free {
				continue
			}
		}

		// Over a slow network the session would have to be confirmed again after each listing.
		if asked {
			return c.grant(ctx)
		}

		// Contenders that are gone stay gone. So what was read before the session was confirmed
		// still holds if our own node is there, of which the server tells before it answers.
		if asked, err = s.Confirm(ctx); err != nil {
			return nil, err
		} else if asked && !(c.own.Sole() && c.watch != nil && c.watch.Unchanged()) {
			continue
		}
		return c.grant(ctx)
	}
}

// An ahead is what a contender has found before it in line. It keeps nothing else of the listing.
type ahead struct {
	blockers []string // their nodes

	// With one blocker: once everything up to that is gone, the contenders behind it do not block.
	// None can come between those, as numbers only grow.
	single bool
	first  bool // nothing is before the blocker
	marker bool // a release marker of the blocker says that nothing is before it
	final  bool // no other node takes the blocker's place
}

// look lists the line. A contender that has just joined needs no listing that is newer than its
// node.
func (c *contender) look(ctx context.Context, joined bool) (ahead, error) {
	l, s := c.line, c.session
	for {
		// Our own node is read while the listing is on its way, if what the create's answer has
		// said of it is not enough.
		reads := c.request.Check != nil || c.token == 0 || !c.certain()
		if reads {
			c.watch = nil
			c.watchNode()
		}

		var list *listing
		var err error
		if joined && !reads {
			list, err = l.listWith(ctx, s, c.listings, c.own)
		} else {
			list, err = l.list(ctx, s, c.listings)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return ahead{}, protocol.Again(errGone)
		} else if err != nil {
			return ahead{}, err
		}
		if name := c.own.Name(); !c.own.Sole() && c.own.Among(list.children) && c.own.Name() != name {
			continue
		}
		self := list.find(c.own)
		if self < 0 {
			return ahead{}, protocol.Again(errGone)
		}

		if reads {
			if valid, err := c.check(ctx, list.names); err != nil {
				return ahead{}, err
			} else if !valid {
				continue
			}
		}
		c.company = c.company || len(list.names) > 1
		return c.ahead(list.names, self)
	}
}

// check asks the request's Check about a listing, and reports whether the listing is valid. It may
// be older than a change of the contender's own node.
func (c *contender) check(ctx context.Context, names []Name) (valid bool, err error) {
	stat, err := c.read(ctx)
	if err != nil {
		return false, err
	} else if stat.Version != c.version {
		c.version = stat.Version
		return false, nil
	}
	refused := c.request.check(names)
	if refused == nil {
		return true, nil
	}
	if same, err := c.watch.Recheck(ctx); err != nil || !same {
		return false, err
	}
	return false, refused
}

// watchNode begins to watch the contender's own node.
func (c *contender) watchNode() {
	if c.watch == nil {
		c.watch = c.own.Watch()
	}
}

// read waits until the contender's own node was read, which is watched since.
func (c *contender) read(ctx context.Context) (*zk.Stat, error) {
	c.watchNode()
	stat, err := c.watch.Ready(ctx)
	if errors.Is(err, zk.ErrNoNode) || err == nil && stat.EphemeralOwner != c.session.ID() {
		return nil, protocol.Again(errGone)
	} else if err != nil {
		return nil, err
	}
	c.token = stat.Czxid
	return stat, nil
}

// ahead returns what blocks the contender at self.
func (c *contender) ahead(names []Name, self int) (a ahead, err error) {
	blockers := c.request.blockers(names, self)
	if len(blockers) > 0 && c.request.Try {
		return a, ErrBusy
	} else if n, ok := c.request.overlooks(names, self); ok && len(blockers) == 0 {
		return a, fmt.Errorf("%w: %q would not wait for it", protocol.ErrMixed, n.Node)
	}
	for i := range blockers {
		a.blockers = append(a.blockers, blockers[i].Node)
	}
	if len(blockers) == 1 {
		b := &blockers[0]
		i := find(names, b.Node, b.Sequence)
		a.single = b.respects(c.request.Kind) && len(c.request.blockers(names[i+1:], self-i-1)) == 0
		a.first = i == 0
		a.final = c.line.allExclusive() && !b.Replaceable()
		a.marker = a.single && !a.first && b.Owner != (protocol.Owner{}) && c.line.exclusive(b.Kind)
	}
	return a, nil
}

// await waits until one of the blockers goes, or our own node changes. It reports whether it is
// certain that nothing blocks the contender any more. Otherwise the line has to be listed again.
func (c *contender) await(ctx context.Context, a ahead) (free bool, err error) {
	if a.first { // the end of the blocker is proof without a marker, and our own node may end with it
		c.watchNode()
	}
	watches := make([]*protocol.Watch, 0, len(a.blockers)+1)
	for _, node := range a.blockers {
		watches = append(watches, c.session.Watch(c.line.pathOf(node)))
	}
	if c.watch != nil {
		if _, err := c.read(ctx); err != nil {
			return false, err
		}
	}
	for _, w := range watches {
		_, err := w.Ready(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return a.single && a.first && a.final && c.certain(), nil
		} else if err != nil {
			return false, err
		}
	}

	blocker := watches[0]
	if a.marker {
		blocker.ExpectMarker()
	}
	if err := c.wait(ctx, watches); err != nil {
		return false, err
	}
	return a.single && (a.first && blocker.Deleted() || blocker.Marked()) && c.certain(), nil
}

// certain reports whether the contender has one node, which was untouched when the last event came.
// If its node is not watched yet, it was there a moment ago.
func (c *contender) certain() bool {
	return c.own.Sole() && (c.watch == nil || c.watch.Unchanged())
}

// wait blocks until one of the watches, or that on the contender's own node, has told of a change.
// A contender that waits needs no trust, so its session makes no requests meanwhile. The session is
// confirmed before a grant.
func (c *contender) wait(ctx context.Context, watches []*protocol.Watch) error {
	c.rest()
	defer c.resume()
	if c.watch == nil && len(watches) == 1 && c.waitAMoment(ctx, watches[0]) {
		return c.session.WaitAny(ctx, watches...)
	}
	if _, err := c.read(ctx); err != nil {
		return err
	}
	return c.session.WaitAny(ctx, append(watches, c.watch)...)
}

func (c *contender) resume() { c.rest = c.session.KeepAlive() }

// moment is how long a contender waits before it watches its own node, which costs a request. If
// another client deletes the node earlier, the contender may be granted nevertheless. Its grant
// finds that out as it does if its node is deleted just after it was granted.
const moment = 100 * time.Millisecond

// waitAMoment reports whether there is no need to wait any longer.
func (c *contender) waitAMoment(ctx context.Context, w *protocol.Watch) bool {
	soon, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	err := c.session.WaitAny(soon, w)
	return err == nil || soon.Err() == nil || ctx.Err() != nil
}

func (c *contender) grant(ctx context.Context) (*protocol.Grant, error) {
	l, s, path := c.line, c.session, c.line.pathOf(c.own.Name())
	remove := func(ctx context.Context) error { // which is kept, and c is not
		if version, empty, own, likely := l.parent.known(); empty && likely && !own {
			return s.DeleteWith(ctx, path, func(conn *zk.Conn) error { return l.adopt(conn, s, path, version) })
		}
		return s.Delete(ctx, path, -1)
	}
	if c.company && l.exclusive(c.request.Kind) {
		remove = func(ctx context.Context) error { return Release(ctx, s, path) }
	}
	g, err := cmp.Or(c.request.Recipe, l.recipe).NewGrant(ctx, s, path, c.token, remove)
	if err == nil && c.watch != nil {
		// Our own node may have been deleted with the last blocker: that event may be on its way.
		g.Guard()
	}
	return g, err
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
