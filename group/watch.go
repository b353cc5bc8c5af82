package group

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Watch yields the members, as [Group.Members] returns them, and then again after every change:
// when a member has joined, left or died. A member that has left and joined again is another one.
// Changes that come in quick succession may be yielded as one. The members yielded last are those
// that last.
//
// Each member is read once, when it appears. [Member.Set] is no change: Watch costs no request for
// it, and later yields have the data that the member was read with. [Group.Members] reads anew.
//
// Watch blocks between changes, also while the session is suspended, and goes on in the next
// session if that is lost. Members that died meanwhile are yielded as gone then. It ends when the
// loop does, or with an error, which is yielded last. The error is ctx's, wraps
// [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's own.
//
// The caller may keep and change the slices, but not change the data. The sequence may be ranged
// over several times, and concurrently: all loops of a client share one watch at the server.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (g *Group) Watch(ctx context.Context) iter.Seq2[[]Peer, error] {
	return func(yield func([]Peer, error) bool) {
		o := &observation{roster: roster{group: g}, yield: yield}
		var err error
		for err == nil && !o.enough {
			_, err = protocol.AcrossSessions(ctx, g.recipe, func(s *protocol.Session) (struct{}, error) {
				before := o.looks
				err := o.follow(ctx, s)
				if o.looks > before && ctx.Err() == nil && s.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
					err = nil // a session that was of use: the back-off begins anew
				}
				return struct{}{}, err
			})
		}
		if !o.enough {
			yield(nil, g.recipe.Wrap(err))
		}
	}
}

// An observation is one use of [Group.Watch].
type observation struct {
	roster roster
	yield  func([]Peer, error) bool
	last   []Peer
	looks  int  // how often there was something to show
	enough bool // the loop has ended
}

// follow shows the members for as long as the loop goes on and s lasts.
func (o *observation) follow(ctx context.Context, s *protocol.Session) error {
	path := o.roster.group.recipe.Path()
	if err := s.Sync(ctx, path); err != nil {
		return err
	}

	for {
		w := s.WatchChildren(path)
		if current, err := w.Current(ctx); err != nil {
			return err
		} else if !current {
			continue
		}
		dir, err := w.Ready(ctx)
		if err != nil {
			return err
		}
		if err := o.roster.update(ctx, s, w.Children(), dir); err != nil {
			return err
		}

		o.show(o.roster.peers())
		if o.enough {
			return nil
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

func (o *observation) show(peers []Peer) {
	changed := o.looks == 0 || !slices.EqualFunc(o.last, peers, func(a, b Peer) bool {
		return a.Name == b.Name && a.czxid == b.czxid
	})
	o.looks++
	if changed {
		o.last = slices.Clone(peers)
		o.enough = !o.yield(peers, nil)
	}
}

// Await blocks until the group has at least n members, and returns them. It costs what
// [Group.Watch] does, and returns the same errors. Await promises nothing about later: a member may
// have left by the time that Await returns.
func (g *Group) Await(ctx context.Context, n int) (peers []Peer, err error) {
	if err := g.recipe.ValidateCall(ctx, nil); err != nil {
		return nil, err
	}
	r, began := g.recipe.Mode("await"), time.Now()
	r.Waiting(ctx)
	defer func() { r.Waited(ctx, began, nil, 0, err) }()
	for peers, err := range g.Watch(ctx) {
		if err != nil || len(peers) >= n {
			return peers, err
		}
	}
	panic("unreachable") // Watch ends with an error
}
