package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A contender is one node in line.
type contender struct {
	line     *Line
	session  *recipe.Session
	listings *listings
	request  *Request
	claims   bool // it doesn't wait in line
	came     time.Time
	own      *recipe.Own
	rest     func() // ends the KeepAlive of the session

	alone   bool          // it was the only contender when its node was created
	company bool          // there were other contenders
	said    bool          // its predecessor was logged
	token   int64         // its node's czxid, or 0 before that was read
	watch   *recipe.Watch // on its node; nil before that was read

	// These are for a line with a rule.
	data  []byte        // of the line's node; the request's Blockers obey it
	rules *recipe.Watch // on the line's node, once the contender waits
	ruled bool          // the data have changed, so the line is listed again
}

// contend creates a node in line and waits until it is granted. If it fails, it withdraws the node.
func (l *Line) contend(ctx context.Context, s *recipe.Session, r *Request, claims bool) (*recipe.Grant, error) {
	c := &contender{
		line: l, session: s, listings: l.shared(s),
		request: r, claims: claims, came: time.Now(),
		rest: s.KeepAlive(),
	}
	defer func() { c.rest() }()

	own, err := recipe.Detach(ctx, s, func(ctx context.Context, s *recipe.Session) (*recipe.Own, error) {
		own, err := s.CreateOwn(ctx, recipe.OwnNode{
			Dir:     l.recipe.Path(),
			Prefix:  s.NewOwner().String() + "-" + r.Kind,
			Create:  c.create,
			Missing: c.createDir,
		})
		if err != nil {
			l.parent.forget() // the next contender may meet another node at the line's path
		}
		return own, err
	}, func(late *recipe.Own) { late.Withdraw(context.Background()) })
	if err != nil {
		return nil, err
	}
	c.own = own
	if c.token == 0 {
		c.token = own.Czxid()
	}

	g, err := c.advance(ctx)
	if err != nil {
		own.Withdraw(ctx) // it goes on in the background if ctx ends
	}

	return g, err
}

// create makes one attempt to create the node.
func (c *contender) create(conn *zk.Conn, prefix string) (string, error) {
	l, s := c.line, c.session
	acl, data := s.ACL(l.pathOf(path.Base(prefix))), s.NodeData(c.request.Data)
	k := l.parent.known()

	// A claim has just listed the line. If that is out of date already, another contender was
	// faster.
	if fast := k.own && k.likely() || c.claims && k.fit; fast {
		return c.createFast(conn, prefix, data, acl, k)
	}

	return recipe.Create(conn, prefix, data, zk.FlagEphemeralSequential, acl)
}

// createFast is create for a line that is probably empty. The same transaction sets the data of the
// line's own node to what it was at the known version. So the answer has the number of children and
// the number of the transaction (the token).
func (c *contender) createFast(conn *zk.Conn, prefix string, data []byte, acl []zk.ACL, k known) (string, error) {
	l, s := c.line, c.session
	ops := []any{
		&zk.CreateRequest{Path: prefix, Data: data, Acl: acl, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: s.Path(l.recipe.Path()), Data: k.data, Version: k.version},
	}
	if k.kept {
		ops = append(ops, &zk.CheckVersionRequest{Path: s.Path(l.pathOf(keeper)), Version: -1})
	}

	answers, err := recipe.Multi(conn, ops...)
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		l.parent.forget()
		if c.claims {
			return "", ErrBusy
		}
		return c.create(conn, prefix)
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, protocol.ErrTooLarge):
		l.parent.close()
		return c.create(conn, prefix)
	case err != nil:
		return "", err
	}

	// This transaction was the last to change the line's node, and it created ours.
	stat := answers[1].Stat
	l.parent.set(stat, k.data, k.kept)
	c.alone, c.token = alone(stat, k.kept), stat.Mzxid
	return answers[0].String, nil
}

func (c *contender) createDir(ctx context.Context, s *recipe.Session) error {
	c.line.parent.forget()

	created, err := s.EnsurePath(ctx, c.line.recipe.Path())
	if created {
		c.line.parent.set(&zk.Stat{}, c.line.first, false)
	}
	return err
}

// advance waits until the contender is granted.
func (c *contender) advance(ctx context.Context) (*recipe.Grant, error) {
	s := c.session
	asked := false // whether a quorum has confirmed the session since the last wait
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

		// One confirmation is enough: over a slow network each listing would need another.
		if asked {
			return c.grant(ctx)
		}

		// Contenders that are gone stay gone. So a listing from before the confirmation still holds
		// if our own node is there. (The event of its deletion would have come before the answer.)
		if asked, err = s.Confirm(ctx); err != nil {
			return nil, err
		} else if asked && (c.line.rule != nil || !c.own.Sole() || c.watch == nil || !c.watch.Unchanged()) {
			continue
		}
		return c.grant(ctx)
	}
}

// An ahead says which contenders block another. A waiter keeps nothing else of the listing.
type ahead struct {
	blockers    []string // their nodes
	replaceable bool     // a change of a blocker's data can announce another node

	// single means that there is one blocker, and that the contenders behind it don't block. (None
	// can come between, because numbers only grow.) The other fields are about that blocker.
	single bool
	first  bool // it is the first in line
	marker bool // its release marker says that nothing is before it
	final  bool // no other node takes its place
}

// look lists the line. If the contender has just joined, any listing that has its node will do.
func (c *contender) look(ctx context.Context, joined bool) (ahead, error) {
	l, s := c.line, c.session
	for {
		// Our own node is read while the listing is on its way, unless the answer to the create was
		// enough.
		reads := c.token == 0 || !c.certain()
		if reads {
			c.watch = nil
			c.watchNode()
		}

		var list *listing
		var err error
		if joined && !reads {
			list, err = l.listWith(ctx, s, c.listings, c.own, nil)
		} else if c.ruled {
			list, err = l.listWith(ctx, s, c.listings, c.own, c.rules.Data())
		} else {
			list, err = l.list(ctx, s, c.listings)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return ahead{}, recipe.Again(errGone)
		} else if err != nil {
			return ahead{}, err
		}

		// Several attempts may have created a node. The first of them in line counts.
		if name := c.own.Name(); !c.own.Sole() && c.own.Among(list.children) && c.own.Name() != name {
			continue
		}
		self := list.find(c.own)
		if self < 0 {
			return ahead{}, recipe.Again(errGone)
		}

		if reads {
			if _, err := c.read(ctx); err != nil {
				return ahead{}, err
			}
		}

		c.ruled = false
		if err := c.obey(list.data); err != nil {
			return ahead{}, err
		}
		c.company = c.company || len(list.names) > 1
		return c.ahead(list.names, self)
	}
}

// watchNode begins to watch the contender's own node.
func (c *contender) watchNode() {
	if c.watch == nil {
		c.watch = c.own.Watch()
	}
}

// read waits until the contender's own node was read and is watched.
func (c *contender) read(ctx context.Context) (*zk.Stat, error) {
	c.watchNode()
	stat, err := c.watch.Ready(ctx)
	if errors.Is(err, zk.ErrNoNode) || err == nil && stat.EphemeralOwner != c.session.ID() {
		return nil, recipe.Again(errGone)
	} else if err != nil {
		return nil, err
	}
	c.token = stat.Czxid
	return stat, nil
}

// ahead returns the blockers of the contender at self.
func (c *contender) ahead(names []Name, self int) (a ahead, err error) {
	blockers := c.request.blockers(names, self)
	if len(blockers) > 0 && c.request.Try {
		return a, ErrBusy
	} else if n, ok := c.request.overlooks(names, self); ok && len(blockers) == 0 {
		return a, fmt.Errorf("%w: %q would not wait for it", protocol.ErrMixed, n.Node)
	}

	for i := range blockers {
		a.blockers = append(a.blockers, blockers[i].Node)
		a.replaceable = a.replaceable || blockers[i].Replaceable()
	}
	if len(blockers) == 1 {
		b := &blockers[0]
		i := find(names, b.Node, b.Sequence)
		a.single = b.respects(c.request.Kind) && len(c.request.blockers(names[i+1:], self-i-1)) == 0 &&
			(c.line.rule == nil || self == i+1) // a rule may change, and let others in before
		a.first = i == 0
		a.final = c.line.allExclusive() && !b.Replaceable()
		a.marker = a.single && !a.first && b.Owner != (recipe.Owner{}) && c.line.exclusive(b.Kind)
	}

	return a, nil
}

// await waits until a blocker is gone or our own node changes. It reports whether certainly nothing
// blocks the contender any more. If it isn't certain, the line must be listed again.
func (c *contender) await(ctx context.Context, a ahead) (free bool, err error) {
	// The end of the first in line needs no marker as proof. But our own node may end with it.
	if a.first {
		c.watchNode()
	}

	watches := make([]*recipe.Watch, len(a.blockers), len(a.blockers)+2)
	for {
		// Watch whatever isn't watched yet.
		for i, node := range a.blockers {
			if watches[i] == nil || !watches[i].Unchanged() {
				watches[i] = c.session.Watch(c.line.pathOf(node))
			}
		}
		if c.watch != nil {
			if _, err := c.read(ctx); err != nil {
				return false, err
			}
			if same, err := c.sameRule(ctx); err != nil || !same {
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

		// Wait for a change.
		blocker := watches[0]
		if a.marker {
			blocker.ExpectMarker()
		}
		if err := c.wait(ctx, a, watches); err != nil {
			return false, err
		}
		if a.replaceable || slices.ContainsFunc(watches, (*recipe.Watch).Deleted) {
			return a.single && (a.first && blocker.Deleted() || blocker.Marked()) && c.certain(), nil
		}

		// A change of data moves no contender.
		if c.watch != nil && !c.watch.Unchanged() {
			c.watch = nil
			c.watchNode()
		}
	}
}

// certain reports whether the contender has one node that was untouched at the last event. (If the
// node isn't watched yet, it was there a moment ago.)
func (c *contender) certain() bool {
	return c.own.Sole() && (c.watch == nil || c.watch.Unchanged())
}

// wait blocks until one of the watches fires, or the watch on the contender's own node. A waiter
// needs no trust, so its session makes no requests meanwhile. (It is confirmed before a grant.)
func (c *contender) wait(ctx context.Context, a ahead, watches []*recipe.Watch) error {
	c.rest()
	defer func() { c.rest = c.session.KeepAlive() }()

	// Only a contender that waits for longer watches its own node.
	if c.watch == nil && len(watches) == 1 {
		if over, err := c.waitUntil(ctx, c.came.Add(moment), watches); over {
			return err
		}
	}
	if _, err := c.read(ctx); err != nil {
		return err
	}

	all := append(watches, c.watch)
	if c.line.rule != nil {
		if same, err := c.sameRule(ctx); err != nil || !same {
			return err
		}
		all = append(all, c.rules)
	}

	if log := c.line.recipe.Logger(); !c.said && log.Enabled(ctx, slog.LevelInfo) {
		if over, err := c.waitUntil(ctx, c.came.Add(Notice), all); over {
			return err
		}
		c.said = true
		c.say(log, a.blockers[0], watches[0])
	}

	return c.session.WaitAny(ctx, all...)
}

const (
	// moment is how long a contender waits before it watches its own node (which costs a request).
	// If another client deletes the node earlier, the contender can still be granted. Its grant
	// then ends as if the node was deleted just after it was granted.
	moment = 100 * time.Millisecond

	// unwatched is how long after it came a contender can be granted without a watch on its node.
	// So a contended cycle of a few milliseconds costs no request for that.
	unwatched = 20 * time.Millisecond
)

// Notice is how long a contender waits before its predecessor is logged (once).
const Notice = 5 * time.Second

// waitUntil waits until one of the watches fires, or until end. It reports whether the wait has
// ended.
func (c *contender) waitUntil(ctx context.Context, end time.Time, watches []*recipe.Watch) (over bool, err error) {
	if !time.Now().Before(end) {
		return false, nil
	}
	soon, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	err = c.session.WaitAny(soon, watches...)
	return err == nil || soon.Err() == nil || ctx.Err() != nil, err
}

// say logs which contender blocks this one.
func (c *contender) say(log *slog.Logger, node string, blocker *recipe.Watch) {
	n, _ := c.line.name(node)
	args := []any{"path", c.line.recipe.Path(), "for", Notice, "behind", node}
	if n.Owner.Session == c.session.ID() {
		log.Warn("waits for a contender of this client", append(args, "held by this client", true)...)
		return
	}
	data := blocker.Data()
	log.Info("waits", append(args, "of", string(data[:min(len(data), 200)]))...)
}

func (c *contender) grant(ctx context.Context) (*recipe.Grant, error) {
	l, s, path := c.line, c.session, c.line.pathOf(c.own.Name())

	// The grant keeps remove, so remove must not keep c.
	remove := func(ctx context.Context, s *recipe.Session) error {
		if k := l.parent.known(); k.likely() && !k.own {
			return s.DeleteWith(ctx, path, func(conn *zk.Conn) error { return l.adopt(conn, s, path, k) })
		}
		return s.Delete(ctx, path, -1)
	}
	if c.company && l.exclusive(c.request.Kind) {
		remove = func(ctx context.Context, s *recipe.Session) error { return Release(ctx, s, path) }
	}
	if c.request.Keep != nil {
		remove = c.request.Keep(remove)
	}

	g, err := cmp.Or(c.request.Recipe, l.recipe).NewGrant(ctx, s, path, c.token, remove)
	if err == nil && (c.watch != nil || time.Since(c.came) > unwatched) {
		// Our own node may have been deleted with the last blocker (that event may be on its way).
		// Or it isn't watched yet, and was deleted since it was created.
		g.Guard()
	}

	return g, err
}

// adopt deletes a node and sets the data of the line's own node to what it is at the known version.
// So the next contender can be fast. (As long as the released node exists, the line's node is still
// the node that was listed.)
func (l *Line) adopt(conn *zk.Conn, s *recipe.Session, path string, k known) error {
	answers, err := recipe.Multi(conn,
		&zk.DeleteRequest{Path: s.Path(path), Version: -1},
		&zk.SetDataRequest{Path: s.Path(l.recipe.Path()), Data: k.data, Version: k.version})

	switch {
	case err == nil:
		l.parent.set(answers[1].Stat, k.data, k.kept)
	case errors.Is(err, zk.ErrNoAuth):
		l.parent.close()
	}

	return err
}
