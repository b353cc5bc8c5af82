package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A Line is a node whose sequential children stand in line for something: first come, first served. What each of
// them waits for is up to a [Judge]. It is safe for concurrent use.
//
// The algorithm is that of the ZooKeeper documentation's recipe for locks: create an ephemeral sequential node,
// look who is ahead, watch that one node, look again. Where nothing is known to stand in the way, creating the node
// and setting the line's own data, to nothing as it was, in one transaction saves the look: its answer tells how many
// children there are, and the number of the transaction, which is the token. And who is woken need not look again if
// only one was ahead, or if that one was a holder, whose release marker tells that nothing is ahead of it.
type Line struct {
	client *Client
	recipe string
	path   string
	kinds  []string
	sign   sign // the data of the line's own node
}

// NewLine returns the line at path in which contenders of these kinds stand. The recipe's name is for errors and
// events. It does no I/O; what is wrong with its arguments is reported by the first call.
func NewLine(c *Client, recipe, path string, kinds ...string) *Line {
	return &Line{client: c, recipe: recipe, path: path, kinds: kinds}
}

// A Judge says whom the contender at line[self] waits for: the index of one that is ahead of it, or a negative
// number if it may go. The line has everybody who stands in it, in order.
type Judge func(line []Name, self int) (ahead int)

// Exclusive is the judge that lets one through at a time.
func Exclusive(_ []Name, self int) int { return self - 1 }

// ahead is the index of the one that the contender at line[self] waits for, or negative.
func (b Bid) ahead(line []Name, self int) int {
	if b.Judge == nil {
		return Exclusive(line, self)
	}
	return b.Judge(line, self)
}

// first tells whether one of this kind is granted only when nobody is ahead of it.
func (b Bid) first(kind string) bool {
	if b.First != nil {
		return b.First(kind)
	}
	return b.Judge == nil
}

// A Bid is what a contender asks for.
type Bid struct {
	Kind  string // with its separator, as in "lock-"
	Data  []byte // of its node
	Judge Judge  // nil for Exclusive
	Try   bool   // do not wait

	// First tells of the kinds of those that are granted only when nobody is ahead of them. If it is nil all in the line
	// are so if Judge is nil, and none otherwise.
	First func(kind string) bool

	Turns Turns // not nil: those who share it take turns
	claim bool  // do not stand in line
}

// Enter stands in line until the bid is granted. It blocks until then, until ctx ends, which takes the contender out
// of line, or the client is closed. If the session is lost or the contender's node is deleted by somebody, it
// goes to the end of the line again. A bid with Try reads first, and writes nothing if it would have to wait.
//
// It returns ctx's error, also if the grant came at the same moment, [ErrBusy], [ErrClosed], [ErrTooLarge],
// [ErrSequenceExhausted], [zk.ErrInvalidPath], or what else the server said, such as [zk.ErrNoAuth].
func (l *Line) Enter(ctx context.Context, b Bid) (*Grant, error) {
	return l.client.acquire(ctx, l.recipe, l.path, b.Data, func(s *Session) (g *Grant, err error) {
		if err := b.Turns.take(ctx, s, b.Try); err != nil {
			return nil, err
		}
		defer func() { b.Turns.endWith(g) }()
		if b.Try {
			if ahead, err := l.glance(ctx, s, b); err != nil {
				return nil, err
			} else if ahead != "" {
				return nil, ErrBusy
			}
		}
		return l.contend(ctx, s, b)
	})
}

// Claim is Enter for those who would rather not stand in line: it waits without a node of its own until the bid can be
// granted at once, which any other may get first. All who wait are woken by the node that they wait for. It blocks,
// and returns errors, as Enter does.
func (l *Line) Claim(ctx context.Context, b Bid) (*Grant, error) {
	wait := !b.Try
	b.Try, b.claim = true, true
	return l.client.acquire(ctx, l.recipe, l.path, b.Data, func(s *Session) (g *Grant, err error) {
		if err := b.Turns.take(ctx, s, !wait); err != nil {
			return nil, err
		}
		defer func() { b.Turns.endWith(g) }()
		_, _, own, quiet := l.sign.known()
		free := own && quiet
		for {
			ahead := ""
			if !free || !wait {
				var err error
				if ahead, err = l.glance(ctx, s, b); err != nil {
					return nil, err
				}
			}
			if ahead == "" {
				if g, err := l.contend(ctx, s, b); !wait || !errors.Is(err, ErrBusy) {
					return g, err
				}
				free = false
				continue
			}
			if !wait {
				return nil, ErrBusy
			}
			next := s.watches.on(s, s.Path(l.path)+"/"+ahead)
			if _, err := next.stand(ctx); errors.Is(err, zk.ErrNoNode) {
				continue
			} else if err != nil {
				return nil, err
			}
			if err := next.wait(ctx, s, nil); err != nil {
				return nil, err
			}
		}
	})
}

// glance returns the node that somebody who came now would have to wait for, if any. It only reads.
func (l *Line) glance(ctx context.Context, s *Session, b Bid) (ahead string, err error) {
	children, err := l.children(ctx, s)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	line := append(parseLine(children, l.kinds), Name{Kind: b.Kind})
	if i := b.ahead(line, len(line)-1); i >= 0 {
		return line[i].Node, nil
	}
	return "", nil
}

func (l *Line) children(ctx context.Context, s *Session) ([]string, error) {
	dir := s.Path(l.path)
	return Do(ctx, s, func(c *zk.Conn) ([]string, error) {
		children, stat, err := c.Children(dir)
		switch {
		case err == nil:
			l.sign.look(stat)
		case errors.Is(err, zk.ErrNoNode):
			l.sign.forget()
		}
		return children, err
	})
}

// A contender is one node in line.
type contender struct {
	line    *Line
	session *Session
	bid     Bid
	owner   Owner
	company bool // others have been in line, too
	unsure  bool // there may be more than one node of ours
}

// A place is where a contender stands.
type place struct {
	node  string // absolute path
	token int64  // if alone
	alone bool   // there was nobody else when it was taken
}

func (l *Line) contend(ctx context.Context, s *Session, b Bid) (*Grant, error) {
	c := &contender{line: l, session: s, bid: b, owner: s.newOwner()}
	c.session.engage()
	p, err := finishing(ctx, c.session, func(life *detached) (place, error) {
		p, err := c.stepIn(life)
		if err != nil {
			c.session.disengage()
		}
		return p, err
	}, func(p place) { c.leave(s.life, p) })
	if err != nil {
		return nil, err
	}
	g, failed := c.advance(ctx, &p)
	if failed == nil {
		return g, nil
	}
	_, err = finishing(ctx, c.session, func(life *detached) (struct{}, error) {
		c.leave(life, p)
		return struct{}{}, nil
	}, nil)
	if ctx.Err() != nil && err != nil {
		return nil, err
	}
	return nil, failed
}

// stepIn takes a place at the end of the line. Once that is unwanted it creates nothing any more, but finds out what
// became of what it had created.
func (c *contender) stepIn(life *detached) (place, error) {
	l, s := c.line, c.session
	for {
		p, err := Settle(life, s, func(conn *zk.Conn) (place, error) {
			if err := life.unwanted(); err != nil {
				return place{}, err
			}
			return c.create(conn)
		}, c.settle)
		switch {
		case err == nil:
			return p, c.checkSequence(life, p)
		case errors.Is(err, zk.ErrNoNode):
			l.sign.forget()
			created, err := s.ensure(life, s.Path(l.path), l.client.acl)
			if err != nil {
				return p, err
			}
			if created {
				l.sign.set(&zk.Stat{})
			}
		default:
			l.sign.forget() // if the node is ours, it may be another one when the next contender comes
			return p, err
		}
	}
}

func (c *contender) create(conn *zk.Conn) (place, error) {
	l := c.line
	dir := c.session.Path(l.path)
	prefix := dir + "/" + c.owner.String() + "-" + c.bid.Kind
	version, empty, own, quiet := l.sign.known()
	// A claim has looked right now. If that is out of date already, another one was faster.
	if short := own && quiet || c.bid.claim && empty; !short {
		node, err := Create(conn, prefix, c.bid.Data, zk.FlagEphemeralSequential, l.client.acl)
		return place{node: node}, err
	}
	answers, err := Multi(conn,
		&zk.CreateRequest{Path: prefix, Data: c.bid.Data, Acl: l.client.acl, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: dir, Version: version})
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		l.sign.forget()
		if c.bid.claim {
			return place{}, ErrBusy
		}
		return c.create(conn)
	case errors.Is(err, zk.ErrNoAuth):
		l.sign.close()
		return c.create(conn)
	case err != nil:
		return place{}, err
	}
	stat := answers[1].Stat
	l.sign.set(stat)
	// The node of the line was changed last by this transaction, which created ours.
	return place{node: answers[0].String, token: stat.Mzxid, alone: stat.NumChildren == 1}, nil
}

// settle is find until there is an answer: what may stand in line must not be left there.
func (c *contender) settle(ctx context.Context) (p place, found bool, err error) {
	err = c.session.insist(ctx, c.session.Path(c.line.path), func() (err error) {
		p, found, err = c.find(ctx)
		return err
	})
	return p, found, err
}

// find looks for what an attempt to create may have left: the lowest of the nodes that bear our name.
func (c *contender) find(ctx context.Context) (p place, found bool, err error) {
	c.unsure = true
	// Without the sync, a server that lags behind the one that took the first attempt would hide its node.
	if err := c.session.sync(ctx, c.session.Path(c.line.path)); err != nil {
		return p, false, err
	}
	line, err := c.look(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return p, false, nil
	} else if err != nil {
		return p, false, err
	}
	self := c.self(line)
	if self < 0 {
		return p, false, nil
	}
	return place{node: c.pathOf(line[self])}, true, nil
}

// checkSequence refuses a place whose number is too close to the counter's end.
func (c *contender) checkSequence(ctx context.Context, p place) error {
	n, ok := ParseName(p.node[strings.LastIndexByte(p.node, '/')+1:], c.line.kinds...)
	if ok && n.Sequence >= 0 && n.Sequence < maxSequence {
		return nil
	}
	c.drop(ctx, p.node)
	return fmt.Errorf("%w: number %d, and %d is the end; delete the path while nobody uses it", ErrSequenceExhausted,
		n.Sequence, maxSequence)
}

// look lists the line.
func (c *contender) look(ctx context.Context) ([]Name, error) {
	children, err := c.line.children(ctx, c.session)
	return parseLine(children, c.line.kinds), err
}

// self is where we stand, or negative. Should a node of ours have been hidden from find, there are two: then the
// first is ours, and the others are deleted, or we would stand behind ourselves.
func (c *contender) self(line []Name) int {
	isOurs := func(n Name) bool { return n.Owner == c.owner }
	self := slices.IndexFunc(line, isOurs)
	for i := self + 1; self >= 0 && i < len(line); i++ {
		if isOurs(line[i]) {
			c.session.client.spawn(func() { c.drop(c.session.life, c.pathOf(line[i])) })
		}
	}
	return self
}

func (c *contender) pathOf(n Name) string { return c.session.Path(c.line.path) + "/" + n.Node }

// advance waits until nobody is ahead.
func (c *contender) advance(ctx context.Context, p *place) (*Grant, error) {
	s := c.session
	for {
		if p.alone {
			if g, err := c.granted(p, p.token); !errors.Is(err, errStale) {
				return g, err
			}
			p.alone = false // look again, after the confirmation
		}
		// Our own node is read, and watched, while the listing is on its way.
		own := s.watches.on(s, p.node)
		line, err := c.look(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, errGone
		} else if err != nil {
			return nil, err
		}
		self := c.self(line)
		if self < 0 {
			return nil, errGone
		}
		if node := c.pathOf(line[self]); node != p.node {
			p.node = node
			continue
		}
		stat, err := own.stand(ctx)
		if errors.Is(err, zk.ErrNoNode) || err == nil && stat.EphemeralOwner != s.ID() {
			return nil, errGone
		} else if err != nil {
			return nil, err
		}
		c.company = c.company || len(line) > 1
		ahead := c.bid.ahead(line, self)
		switch {
		case ahead < 0:
			g, err := c.granted(p, stat.Czxid)
			if !errors.Is(err, errStale) {
				return g, err
			}
			if err := s.confirm(ctx); err != nil {
				return nil, err
			}
			continue
		case c.bid.Try:
			return nil, ErrBusy
		}
		passed, err := c.await(ctx, line[:ahead+1], own)
		if err != nil {
			return nil, err
		}
		// Nobody can have come between those who are left, as numbers only grow.
		if !passed || c.unsure || !own.stands() || c.bid.ahead(line[ahead+1:], self-ahead-1) >= 0 {
			continue
		}
		if g, err := c.granted(p, stat.Czxid); !errors.Is(err, errStale) {
			return g, err
		}
	}
}

// await waits for the last of those who are ahead, or until our own node has changed. It tells whether all of them are
// known to be gone: because there was one only, or because its release marker said so.
func (c *contender) await(ctx context.Context, ahead []Name, own *watch) (passed bool, err error) {
	s, last := c.session, ahead[len(ahead)-1]
	node := c.pathOf(last)
	next := s.watches.on(s, node)
	if _, err := next.stand(ctx); errors.Is(err, zk.ErrNoNode) {
		return len(ahead) == 1 && c.bid.Judge == nil, nil // others may have been converted
	} else if err != nil {
		return false, err
	}
	if len(ahead) > 1 && last.Owner != (Owner{}) && c.bid.first(last.Kind) {
		s.watches.expect(node, next)
	}
	if err := next.wait(ctx, s, own.fired); err != nil {
		return false, err
	}
	// After a reconnect an end that is heard of may be made up, for a node that was converted.
	known := next.hasFired() && next.deleted && next.certain()
	return known && (len(ahead) == 1 || next.passed), nil
}

func (c *contender) granted(p *place, token int64) (*Grant, error) {
	l, s, node := c.line, c.session, p.node
	return l.client.grant(s, l.recipe, l.path, node, token, func(ctx context.Context) error {
		if c.company && c.bid.first(c.bid.Kind) {
			return l.pass(ctx, s, node)
		}
		if version, empty, own, quiet := l.sign.known(); empty && quiet && !own {
			return s.removeWith(ctx, node, func(conn *zk.Conn) error { return l.adopt(conn, node, version) })
		}
		return s.remove(ctx, node)
	})
}

// adopt deletes a node and sets the data of the line's own node, which is empty at this version, so that the next
// contender can be fast. While the released node is there, so is the line's node that was looked at.
func (l *Line) adopt(conn *zk.Conn, node string, version int32) error {
	answers, err := Multi(conn,
		&zk.DeleteRequest{Path: node, Version: -1},
		&zk.SetDataRequest{Path: parentOf(node), Version: version})
	switch {
	case err == nil:
		l.sign.set(answers[1].Stat)
	case errors.Is(err, zk.ErrNoAuth):
		l.sign.close()
	}
	return err
}

// leave takes the contender out of line. It blocks until that is done, or the session over.
func (c *contender) leave(ctx context.Context, p place) {
	defer c.session.disengage()
	c.drop(ctx, p.node)
}

func (c *contender) drop(ctx context.Context, node string) {
	err := c.session.remove(ctx, node)
	if err != nil && !errors.Is(err, zk.ErrNoNode) && c.session.Err() == nil {
		c.line.client.log.Error("node not deleted", "node", node, "error", err)
	}
}
