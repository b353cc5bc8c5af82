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
	claims   bool // it does not wait in line
	came     time.Time
	own      *recipe.Own
	rest     func() // ends the KeepAlive of the session

	alone   bool  // it was the only one when its node was created
	company bool  // others have been in line, too
	said    bool  // the log has whom it waits for
	token   int64 // the czxid of its node, or 0 as long as it is not known

	watch *recipe.Watch // on its node, once that was read

	data  []byte        // of the line's node, which the request's Blockers obey; nil without a rule
	rules *recipe.Watch // on the line's node, once the contender waits under a rule
	ruled bool          // those data have changed, and that is why it looks
}

// contend creates a node in line, waits until it is granted, and withdraws the node if it does not
// come to that.
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
			l.parent.forget() // if the node is ours, it may be another one when the next contender comes
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
		own.Withdraw(ctx) // which goes on in the background if ctx ends
	}
	return g, err
}

// create makes one attempt to create the node.
func (c *contender) create(conn *zk.Conn, prefix string) (string, error) {
	l, s := c.line, c.session
	acl, data := s.ACL(l.pathOf(path.Base(prefix))), s.NodeData(c.request.Data)
	k := l.parent.known()
	// A claim has looked right now. If that is out of date already, another one was faster.
	if fast := k.own && k.likely() || c.claims && k.fit; fast {
		return c.createFast(conn, prefix, data, acl, k)
	}
	return recipe.Create(conn, prefix, data, zk.FlagEphemeralSequential, acl)
}

// createFast is create where no other contender is likely to be in line. In the same transaction it
// sets the data of the line's own node to what they were at the known version. The answer then
// tells how many children there are, and the number of the transaction, which is the token.
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
	case errors.Is(err, zk.ErrNoAuth):
		l.parent.close()
		return c.create(conn, prefix)
	case err != nil:
		return "", err
	}

	// The node of the line was changed last by this transaction, which created ours.
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
		} else if asked && (c.line.rule != nil || !c.own.Sole() || c.watch == nil || !c.watch.Unchanged()) {
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

	replaceable bool // a change of a blocker's data may announce another node
}

// look lists the line. A contender that has just joined needs no listing that is newer than its
// node.
func (c *contender) look(ctx context.Context, joined bool) (ahead, error) {
	l, s := c.line, c.session
	for {
		// Our own node is read while the listing is on its way, if what the create's answer has
		// said of it is not enough.
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

// read waits until the contender's own node was read, which is watched since.
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
		a.replaceable = a.replaceable || blockers[i].Replaceable()
	}
	if len(blockers) == 1 {
		b := &blockers[0]
		i := find(names, b.Node, b.Sequence)
		a.single = b.respects(c.request.Kind) && len(c.request.blockers(names[i+1:], self-i-1)) == 0 &&
			(c.line.rule == nil || self == i+1) // or else the rule may change meanwhile
		a.first = i == 0
		a.final = c.line.allExclusive() && !b.Replaceable()
		a.marker = a.single && !a.first && b.Owner != (recipe.Owner{}) && c.line.exclusive(b.Kind)
	}
	return a, nil
}

// await waits until one of the blockers goes, or our own node changes. It reports whether it is
// certain that nothing blocks the contender any more. Otherwise the line has to be listed again.
func (c *contender) await(ctx context.Context, a ahead) (free bool, err error) {
	if a.first { // the end of the blocker is proof without a marker, and our own node may end with it
		c.watchNode()
	}
	watches := make([]*recipe.Watch, len(a.blockers), len(a.blockers)+2)
	for {
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

		// Somebody's data have changed, which moves nobody in line.
		if c.watch != nil && !c.watch.Unchanged() {
			c.watch = nil
			c.watchNode()
		}
	}
}

// certain reports whether the contender has one node, which was untouched when the last event came.
// If its node is not watched yet, it was there a moment ago.
func (c *contender) certain() bool {
	return c.own.Sole() && (c.watch == nil || c.watch.Unchanged())
}

// wait blocks until one of the watches, or that on the contender's own node, has told of a change.
// A contender that waits needs no trust, so its session makes no requests meanwhile. The session is
// confirmed before a grant.
func (c *contender) wait(ctx context.Context, a ahead, watches []*recipe.Watch) error {
	c.rest()
	defer c.resume()
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

func (c *contender) resume() { c.rest = c.session.KeepAlive() }

// moment is how long after it came a contender watches its own node, which costs a request. If
// another client deletes the node earlier, the contender may be granted nevertheless. Its grant
// finds that out as it does if its node is deleted just after it was granted.
const moment = 100 * time.Millisecond

// unwatched is how long after it came a contender may be granted and not be watched at once. A
// contended cycle of a few milliseconds then costs no request for that.
const unwatched = 20 * time.Millisecond

// Notice is after how long the log has whom a contender waits for, once.
const Notice = 5 * time.Second

// waitUntil waits until one of the watches has told of a change, or that time. It reports whether
// there is no need to wait any longer.
func (c *contender) waitUntil(ctx context.Context, end time.Time, watches []*recipe.Watch) (over bool, err error) {
	if !time.Now().Before(end) {
		return false, nil
	}
	soon, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	err = c.session.WaitAny(soon, watches...)
	return err == nil || soon.Err() == nil || ctx.Err() != nil, err
}

// say logs whom the contender waits for.
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
	remove := func(ctx context.Context, s *recipe.Session) error { // which is kept, and c is not
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
		// Our own node may have been deleted with the last blocker: that event may be on its way. If
		// there is no watch yet, it may have been deleted since it was created.
		g.Guard()
	}
	return g, err
}

// adopt deletes a node and sets the data of the line's own node to what they are at the known
// version, so that the next contender can be fast. While the released node is there, so is the line's node that
// was looked at.
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
