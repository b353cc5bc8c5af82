package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Persist is the frame of a recipe's verb: it calls attempt under the current session and, if that is lost meanwhile,
// under the next one. Before any I/O it refuses a nil client, a bad path and too much data. It blocks until attempt has
// an outcome, ctx ends or the client is closed, and returns attempt's error as it is, ctx's, [ErrClosed], [ErrTooLarge]
// or [zk.ErrInvalidPath]. It is safe for concurrent use.
func Persist[T any](ctx context.Context, c *Client, path string, data []byte, attempt func(*Session) (T, error)) (T, error) {
	if err := validate(c, path, data); err != nil {
		var zero T
		return zero, err
	}
	v, err := persist(ctx, c, attempt)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // what an attempt died of when ctx had ended
		err = fmt.Errorf("%w: %w", contextError(ctx), err)
	}
	return v, err
}

// Waited tells the client's observer that a wait is over, which began then.
func (c *Client) Waited(recipe, path string, began time.Time, err error) {
	if c != nil {
		c.observe(Event{Kind: Waited, Recipe: recipe, Path: path, Duration: time.Since(began), Err: err})
	}
}

// Finish calls work, which changes something at the servers and must not be left half-way, with a context that lasts
// as long as s does. It blocks until work returns or ctx ends; then work goes on in the background, undo gets what it
// returns without an error, and Finish returns ctx's error. After [Client.Close] it returns [ErrClosed]. It is safe for
// concurrent use.
func Finish[T any](ctx context.Context, s *Session, work func(context.Context) (T, error), undo func(T)) (T, error) {
	return finishing(ctx, s, func(life *detached) (T, error) { return work(life) }, undo)
}

// Sync makes the server that s is connected to catch up with the leader: reads after it see all that had happened
// before it began, at least below path, which is one without the chroot. It returns the errors of [Do].
func (s *Session) Sync(ctx context.Context, path string) error { return s.sync(ctx, s.Path(path)) }

// Remove deletes the node at path, without the chroot, whose name must never be used again. It returns [zk.ErrNoNode] if
// somebody else had done so, and the errors of [Do].
func (s *Session) Remove(ctx context.Context, path string) error { return s.remove(ctx, s.Path(path)) }

// NewOwner returns a name that nobody else has or will have, for a node of a recipe.
func (s *Session) NewOwner() Owner { return s.newOwner() }

// Engage has s look after its connection until disengage is called, as it does while something is held: a server that
// does not answer is left after a sixth of the timeout instead of two thirds.
func (s *Session) Engage() (disengage func()) {
	s.engage()
	return s.disengage
}

// Until blocks while the node at path, without the chroot, exists and enough has not said yes to its Stat. It returns
// the Stat that was enough, or nil once the node is gone. It reads the node and, whenever that has changed, reads it
// again; changes in quick succession may be seen as one. All who wait for one node share a watch, and a node that does
// not exist gets none. What may have been missed while there was no connection is made up for.
//
// It returns ctx's error, one that wraps [ErrLost] or [ErrClosed] if the session ends, or what the server said. It is
// safe for concurrent use.
func (s *Session) Until(ctx context.Context, path string, enough func(*zk.Stat) bool) (*zk.Stat, error) {
	node := s.Path(path)
	for {
		v := view{session: s, key: node, watch: s.watches.on(s, node)}
		v.holds = func() (bool, error) {
			return Do(ctx, s, func(c *zk.Conn) (bool, error) {
				there, stat, err := c.Exists(node)
				read := v.watch.stat
				return there && stat.Czxid == read.Czxid && stat.Version == read.Version, err
			})
		}
		holds, err := v.read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case err != nil:
			return nil, err
		case !holds:
			continue
		case enough(v.watch.stat):
			return v.watch.stat, nil
		}
		if err := v.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Hold makes the node at path, an ephemeral one of s that was created by the transaction with the number token,
// something that is held on behalf of a recipe. What [Release] does to give it back is up to remove, which should
// delete the node and gets a context that lasts as long as s. Hold blocks while s has to be confirmed first. It returns
// ctx's error or one that wraps [ErrLost] or [ErrClosed].
func (s *Session) Hold(ctx context.Context, c *Client, recipe, path, node string, token int64, remove func(context.Context) error) (*Grant, error) {
	s.engage()
	for {
		g, err := c.grant(s, recipe, path, s.Path(node), token, remove)
		if errors.Is(err, errStale) {
			if err = s.confirm(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			s.disengage()
		}
		return g, err
	}
}

// ACL is what the nodes that c creates get.
func (c *Client) ACL() []zk.ACL { return c.acl }

// Logger returns the logger of c, for recipes to report what no caller is told. It is never nil.
func (c *Client) Logger() *slog.Logger { return c.log }

// Go runs work in a goroutine that [Client.Close] waits for, with a context that lasts as long as s does. After Close it
// does nothing and returns false.
func (s *Session) Go(work func(life context.Context)) (started bool) {
	return s.client.spawn(func() { work(s.life) })
}

// Unknown tells whether err, which a call of zk.Conn has returned, leaves open if the server has executed the request
// or may yet do so.
func Unknown(err error) bool { return outcomeOf(err) == unknown }

// A Sight is a node that was seen and is watched since. It is not safe for concurrent use, but for Changed.
type Sight struct {
	Stat    *zk.Stat // as of the first look
	session *Session
	node    string
	watch   *watch
	doubt   <-chan struct{}
}

// Look reads the node at path, without the chroot, and watches it. It blocks until the server has answered, unless the
// node is being watched anyway, and returns [zk.ErrNoNode] or the errors of [Do].
func (s *Session) Look(ctx context.Context, path string) (*Sight, error) {
	v := &Sight{session: s, node: s.Path(path)}
	if err := v.look(ctx); err != nil {
		return nil, err
	}
	v.Stat = v.watch.stat
	return v, nil
}

func (v *Sight) look(ctx context.Context) error {
	v.watch = v.session.watches.on(v.session, v.node)
	if _, err := v.watch.stand(ctx); err != nil {
		return err
	}
	v.doubt = v.watch.doubt
	return nil
}

// Changed is closed when the node has changed or is gone since it was last looked at.
func (v *Sight) Changed() <-chan struct{} { return v.watch.fired }

// Same tells whether the node is the one that was seen first, and was so without a break up to the latest answer that
// this session has got before the call. It asks the server only if there was an event, or another connection.
func (v *Sight) Same(ctx context.Context) (bool, error) {
	select {
	case <-v.watch.fired:
	case <-v.doubt:
		v.session.watches.outdated(v.node, v.watch)
	default:
		return true, nil
	}
	err := v.look(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil && v.watch.stat.Czxid == v.Stat.Czxid, err
}

// SameAt is [Sight.Same] for a moment that is past: when the transaction with this number was executed, which this session
// has had an answer to. What happened to the node later does not count, as a server tells of events and answers in the
// order in which things have happened.
func (v *Sight) SameAt(ctx context.Context, zxid int64) (bool, error) {
	select {
	case <-v.watch.fired:
		if v.watch.after >= zxid {
			return true, nil
		}
	default:
	}
	return v.Same(ctx)
}

// UntilBelow blocks until the node at path, without the chroot, has children of which enough says yes. It asks enough
// about every listing, of which there is one whenever the children have changed; a node that does not exist is waited
// for. All who wait at one node share a watch. What may have been missed while there was no connection is made up for.
//
// It returns ctx's error, one that wraps [ErrLost] or [ErrClosed] if the session ends, or what the server said. It is
// safe for concurrent use.
func (s *Session) UntilBelow(ctx context.Context, path string, enough func(children []string) bool) error {
	node := s.Path(path)
	for {
		v := view{session: s, key: node + childrenMark, watch: s.watches.below(s, node)}
		v.holds = func() (bool, error) {
			children, err := Do(ctx, s, func(c *zk.Conn) ([]string, error) {
				children, _, err := c.Children(node)
				if errors.Is(err, zk.ErrNoNode) {
					err = nil
				}
				return children, err
			})
			return !enough(children), err
		}
		holds, err := v.read(ctx)
		if err != nil || !holds || enough(v.watch.children) {
			return err
		}
		if err := v.wait(ctx); err != nil {
			return err
		}
	}
}
