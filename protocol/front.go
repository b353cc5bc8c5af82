package protocol

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"
)

// First returns who stood first in line at a moment after the call began, which is who holds what the line is for, or
// will as soon as it has noticed. found is false if nobody was there. It blocks until the server has answered three
// times, and waits for the next session if it has to. It returns ctx's error, [ErrClosed], or what the server said.
func (l *Line) First(ctx context.Context) (first Standing, found bool, err error) {
	if err := validate(l.client, l.path, nil); err != nil {
		return first, false, err
	}
	found, err = persist(ctx, l.client, func(s *Session) (bool, error) {
		if err := s.sync(ctx, s.Path(l.path)); err != nil {
			return false, err
		}
		for {
			line, err := l.names(ctx, s)
			if err != nil || len(line) == 0 {
				return false, err
			}
			for _, n := range line {
				first, err = s.standing(ctx, s.Path(l.path)+"/"+n.Node, n)
				if !errors.Is(err, zk.ErrNoNode) {
					return err == nil, err
				}
			}
		}
	})
	return first, found, err
}

// names lists who stands in line. A path that does not exist has nobody.
func (l *Line) names(ctx context.Context, s *Session) ([]Name, error) {
	children, err := l.children(ctx, s)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return parseLine(children, l.kinds), err
}

// Firsts yields who stands first in line, as [Line.First] returns it, and then every change of that: another node, other
// data, or nobody, which is the zero Standing. What lasts for less than a message takes, or comes and goes while the
// session has no connection, is passed over; what is yielded last is what lasts. Firsts goes on from session to
// session. It ends with an error, which is yielded last: ctx's, [ErrClosed], or what the server said.
//
// It costs one watch on the node of the first, which is shared with everybody else of this client who waits for that.
// When that node goes, the next is known from the last listing: as numbers only grow, nobody can have come in
// between. So it is read and watched in one request, and the line is listed again only when all who were listed are
// gone. While nobody is in line there is a watch on the line. As the server may forget events of some kinds when a
// connection is lost, what was read is read again after that, and once in a long while.
func (l *Line) Firsts(ctx context.Context) iter.Seq2[Standing, error] {
	return func(yield func(Standing, error) bool) {
		f := &firsts{line: l, yield: yield}
		err := validate(l.client, l.path, nil)
		for err == nil && !f.enough {
			_, err = persist(ctx, l.client, func(s *Session) (struct{}, error) {
				before := f.shown
				err := f.follow(ctx, s)
				if f.shown > before && ctx.Err() == nil && s.Err() != nil && !errors.Is(err, ErrClosed) {
					err = nil // a session that was of use: persist's back-off begins anew
				}
				return struct{}{}, err
			})
		}
		if !f.enough {
			yield(Standing{}, err)
		}
	}
}

// firsts is one use of [Line.Firsts].
type firsts struct {
	line   *Line
	yield  func(Standing, error) bool
	last   Standing
	shown  int  // how often there was something to show
	enough bool // nothing more is wanted
}

func (f *firsts) show(first Standing) {
	changed := f.shown == 0 || f.last.Token != first.Token || !bytes.Equal(f.last.Data, first.Data)
	f.last = first
	f.shown++
	if changed {
		f.enough = !f.yield(first, nil)
	}
}

// follow shows who is first for as long as that is wanted and s lasts.
func (f *firsts) follow(ctx context.Context, s *Session) error {
	if err := s.sync(ctx, s.Path(f.line.path)); err != nil {
		return err
	}
	var line []Name // those who may be there still
	for !f.enough {
		if len(line) == 0 {
			var err error
			if line, err = f.line.names(ctx, s); err != nil {
				return err
			}
		}
		if len(line) == 0 {
			if err := f.vacancy(ctx, s); err != nil {
				return err
			}
		} else if err := f.incumbent(ctx, s, line[0]); errors.Is(err, zk.ErrNoNode) {
			line = line[1:]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// incumbent shows the one who is first, until that may have changed. It returns [zk.ErrNoNode] once it is gone.
func (f *firsts) incumbent(ctx context.Context, s *Session, name Name) error {
	node := s.Path(f.line.path) + "/" + name.Node
	v := view{session: s, key: node, watch: s.watches.on(s, node)}
	v.holds = func() (bool, error) {
		return Do(ctx, s, func(c *zk.Conn) (bool, error) {
			there, stat, err := c.Exists(node)
			return there && stat.Version == v.watch.stat.Version, err
		})
	}
	if holds, err := v.read(ctx); err != nil || !holds {
		return err
	}
	f.show(standingOf(name, v.watch.data, v.watch.stat))
	if f.enough {
		return nil
	}
	if err := v.wait(ctx); err != nil {
		return err
	}
	select {
	case <-v.watch.fired:
		if v.watch.deleted {
			return zk.ErrNoNode
		}
	default:
	}
	return nil
}

// vacancy shows that nobody is there, until there may be somebody.
func (f *firsts) vacancy(ctx context.Context, s *Session) error {
	dir := s.Path(f.line.path)
	v := view{session: s, key: dir + childrenMark, watch: s.watches.below(s, dir)}
	v.holds = func() (bool, error) {
		line, err := f.line.names(ctx, s)
		return len(line) == 0, err
	}
	holds, err := v.read(ctx)
	if holds && len(parseLine(v.watch.children, f.line.kinds)) > 0 { // somebody has come since the line was listed
		holds, err = v.ask()
	}
	if err != nil || !holds {
		return err
	}
	f.show(Standing{})
	if f.enough {
		return nil
	}
	return v.wait(ctx)
}

// recheckAfter is how often something is read again that is watched.
const recheckAfter = time.Minute

// A view is something that was read and is watched. The watch may have missed its event.
type view struct {
	session *Session
	key     string // in the session's table
	watch   *watch
	doubt   <-chan struct{}
	holds   func() (bool, error) // asks the server whether what was read is still so
}

// read blocks until there is an answer, and tells whether that holds still. It asks only if there is reason to doubt.
func (v *view) read(ctx context.Context) (holds bool, err error) {
	if _, err := v.watch.stand(ctx); err != nil {
		return false, err
	}
	v.doubt = v.watch.doubt
	select {
	case <-v.doubt:
		return v.ask()
	default:
		return true, nil
	}
}

func (v *view) ask() (holds bool, err error) {
	v.doubt = v.session.resumption()
	holds, err = v.holds()
	if err == nil && !holds {
		v.session.watches.outdated(v.key, v.watch)
	}
	return holds, err
}

// wait blocks until what was read holds no more.
func (v *view) wait(ctx context.Context) error {
	timer := time.NewTimer(recheckAfter)
	defer timer.Stop()
	for {
		select {
		case <-v.watch.fired:
			return nil
		case <-v.doubt:
		case <-timer.C:
			timer.Reset(recheckAfter)
		case <-v.session.Done():
			return v.session.ended(ctx)
		case <-ctx.Done():
			return v.session.ended(ctx)
		}
		if holds, err := v.ask(); err != nil || !holds {
			return err
		}
	}
}
