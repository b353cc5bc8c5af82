package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// Convert changes the kind of what is held: it puts a node of another kind, with this data, into the very place in
// line that g's node has. Both happen in one transaction, so that there is no moment at which others see neither, and
// those who wait behind g wait behind the new grant, unless their judges let them pass now. A kind that it has had before
// it must not get again, as names are never used twice.
//
// Convert blocks until the server has answered. Then g is over, as if given back (its Err wraps [ErrReleased]), and
// the new grant has g's token: it is the same holder in the same place, and whoever comes next has a greater one. If
// Convert fails g goes on, with these exceptions. If ctx ends while Convert is at work, nobody can tell at that
// moment of which kind the node is: the whole is given back, g ends, and the node is deleted in the background (a ctx
// that has ended before the call changes nothing). If the outcome is unknown for good because the client's back-off
// came to its end, it is likewise. And g is lost if its session ends, or if it turns out that somebody had deleted
// its node.
//
// [Line.Firsts] does not expect anybody in the place of one who has left, so it is not for lines with conversions.
//
// Other values of g may be used meanwhile. [Release] wins over a conversion that is under way: all is given back, and
// Convert returns an error that wraps ErrReleased. Of two conversions one fails that way too.
//
// It returns errors that carry the recipe and the path: ctx's, g's own if g is over, [ErrTooLarge], or what the server
// said, such as [zk.ErrNoAuth] if the ACL of g's node does not allow to write.
func (l *Line) Convert(ctx context.Context, g *Grant, kind string, data []byte) (*Grant, error) {
	next, err := l.tryConvert(ctx, g, kind, data)
	switch over := g.Err(); {
	case err == nil:
		return next, nil
	case errors.Is(over, ErrLost), errors.Is(err, over):
		return nil, over // which has recipe and path already
	}
	return nil, Wrap(g.recipe, g.path, err)
}

func (l *Line) tryConvert(ctx context.Context, g *Grant, kind string, data []byte) (*Grant, error) {
	if err := validate(l.client, l.path, data); err != nil {
		return nil, err
	}
	old, ok := ParseName(g.Node(), l.kinds...)
	if !ok || old.Owner == (Owner{}) {
		return nil, fmt.Errorf("%s has no place in line", g.Node())
	}
	name := old.Owner.String() + "-" + kind + fmt.Sprintf(sequenceFormat, old.Sequence)
	c := &conversion{line: l, from: g, node: path.Dir(g.node) + "/" + name, data: data}
	if err := g.reserve(ctx, c.node); err != nil {
		return nil, err
	}
	began := time.Now()
	next, err := finishing(ctx, g.session, c.run, func(late *Grant) { c.end(ctx, late) })
	switch {
	case err == nil:
		next, err = c.end(ctx, next)
	case ctx.Err() != nil, errors.Is(err, errGivenUp):
		Release(ctx, g)
	}
	g.client.observe(Event{Waited, g.recipe, g.path, g.session.ID(), g.token, time.Since(began), err})
	return next, err
}

// A conversion is one attempt to put a node in another one's place.
type conversion struct {
	line *Line
	from *Grant
	node string // absolute
	data []byte

	unsure bool // whether the transaction was executed
}

// run puts the node there and makes a grant of it. Only if it fails is the conversion over.
func (c *conversion) run(life *detached) (next *Grant, err error) {
	l, g, s := c.line, c.from, c.from.session
	defer func() {
		if err != nil {
			g.unreserve()
		}
	}()
	_, err = Settle(life, s, func(conn *zk.Conn) (struct{}, error) {
		if err := life.unwanted(); err != nil {
			return struct{}{}, err
		}
		_, err := Multi(conn,
			// Who waits for the node's end hears of this instead, and looks again.
			&zk.SetDataRequest{Path: g.node, Version: -1},
			&zk.CreateRequest{Path: c.node, Data: c.data, Acl: l.client.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: g.node, Version: -1})
		c.unsure = outcomeOf(err) == unknown
		return struct{}{}, err
	}, c.find)
	switch {
	case errors.Is(err, zk.ErrNoNode): // ours, or the line's with it
		g.lose(fmt.Errorf("%w: node %s was deleted", ErrLost, g.Node()))
		return nil, g.Err()
	case err != nil:
		if c.unsure {
			Release(life, g)
		}
		return nil, err
	}
	s.engage()
	next, err = l.client.grant(s, l.recipe, l.path, c.node, g.token, func(ctx context.Context) error {
		return s.remove(ctx, c.node)
	})
	if err != nil {
		s.disengage()
		// Without trust in the session g is lost; given back, it is deleted with both its nodes.
		return nil, cmp.Or(g.Err(), err)
	}
	return next, nil
}

// end hands the place over from the old grant to the new one, if the old one is still held and somebody still waits
// for the new one. Otherwise all is given back: whoever releases the old one deletes both nodes.
//
// Until then ctx may be one that ends with the old grant.
func (c *conversion) end(ctx context.Context, next *Grant) (*Grant, error) {
	g := c.from
	defer g.unreserve()
	released := Wrap(g.recipe, g.path, ErrReleased)
	ended := contextError(ctx)
	if ended == nil && g.finish(released) {
		g.client.observe(g.event(Held, nil))
		close(g.removed)
		return next, nil
	}
	Release(ctx, g)
	next.finish(released)
	return nil, cmp.Or(ended, g.Err())
}

// find tells whether the new node is there, which nobody else creates.
func (c *conversion) find(ctx context.Context) (_ struct{}, found bool, err error) {
	s := c.from.session
	if err := s.sync(ctx, c.node); err != nil {
		return struct{}{}, false, err
	}
	_, err = s.standing(ctx, c.node, Name{})
	if errors.Is(err, zk.ErrNoNode) {
		// The next attempt says whether our node is still there.
		err, c.unsure = nil, false
		return struct{}{}, false, nil
	}
	return struct{}{}, err == nil, err
}

// reserve waits for other conversions of g and begins one. From then on, and for as long as g lasts, whoever gives it
// back deletes both nodes.
func (g *Grant) reserve(ctx context.Context, node string) error {
	for {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		if err := g.Err(); err != nil {
			return err
		}
		g.mu.Lock()
		other, over := g.converting, g.life.Err() != nil
		if other == nil && !over {
			g.converting = make(chan struct{})
			g.remove = func(ctx context.Context) error { return g.session.removeEither(ctx, g.node, node) }
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		if !over {
			select {
			case <-other:
			case <-g.Done():
			case <-ctx.Done():
			}
		}
	}
}

func (g *Grant) unreserve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.converting)
	g.converting = nil
}

// unconverted blocks while g is being converted, which deletes its node too.
func (g *Grant) unconverted() {
	g.mu.Lock()
	converting := g.converting
	g.mu.Unlock()
	if converting != nil {
		select {
		case <-converting:
		case <-g.Done():
		}
	}
}

// removeEither deletes a node and the one that may be about to take its place. Once the first one is gone for sure,
// no transaction that replaces it can succeed any more.
func (s *Session) removeEither(ctx context.Context, node, next string) error {
	first := s.remove(ctx, node)
	if first != nil && !errors.Is(first, zk.ErrNoNode) {
		return first
	}
	second := s.remove(ctx, next)
	if errors.Is(second, zk.ErrNoNode) {
		return first
	}
	return second
}
