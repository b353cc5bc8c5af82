package group

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Watch yields the members, as [Group.Members] returns them, and then again after every change:
// when a member has joined, left or died. A member that has left and joined again counts as new.
// Changes in quick succession can be yielded together, but the last state is never skipped.
//
// Each member is read once, when it appears. [Member.Set] is not a change: it costs Watch no
// request, and Watch goes on yielding the data that it has read. [Group.Members] reads again, and
// [Group.WatchData] watches the data as well.
//
// Watch blocks between changes, and while the session is suspended. If a session is lost, it goes
// on in the next session, without members that died meanwhile. It ends with the loop, when ctx is
// cancelled, or with an error, which it yields last. The error is ctx's if its deadline has passed,
// wraps [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's own.
//
// The caller may keep and change the slices, but not change the data. The sequence can be ranged
// over several times and concurrently: all loops of a client share one watch at the server.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (g *Group) Watch(ctx context.Context) iter.Seq2[[]Peer, error] { return g.watch(ctx, false) }

// WatchData is [Group.Watch] and also yields the members after every change of their data. It can
// skip all but the last of several quick changes. In addition to Watch, each member costs a watch
// at the server (shared by the loops of a session) and a goroutine for each loop. A change of data
// costs each session one read.
func (g *Group) WatchData(ctx context.Context) iter.Seq2[[]Peer, error] { return g.watch(ctx, true) }

func (g *Group) watch(ctx context.Context, data bool) iter.Seq2[[]Peer, error] {
	return func(yield func([]Peer, error) bool) {
		o := &observation{roster: roster{group: g, watched: data}, yield: yield}
		err := g.recipe.ValidateCall(ctx, nil)
		if err == nil {
			_, err = protocol.AcrossSessions(ctx, g.recipe, func(s *protocol.Session) (struct{}, error) {
				return struct{}{}, o.follow(ctx, s)
			})
		}
		if ctx != nil && ctx.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
			err = stopped(ctx)
		}
		if !o.enough && err != nil {
			yield(nil, g.recipe.Wrap(err))
		}
	}
}

// An observation is one use of [Group.Watch] or [Group.WatchData].
type observation struct {
	roster roster
	yield  func([]Peer, error) bool
	last   []Peer // nil: it was shown nothing yet
	enough bool   // the loop has ended
}

// follow shows the members for as long as the loop goes on and s lasts.
func (o *observation) follow(ctx context.Context, s *protocol.Session) error {
	path := o.roster.group.recipe.Path()
	if err := s.Sync(ctx, path); err != nil {
		return err
	}

	// News of the members' data come from one goroutine for each.
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	news, watched := make(chan Peer), make(map[int64]bool)

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
		for _, p := range o.last {
			if o.roster.watched && p.czxid != 0 && !watched[p.czxid] {
				watched[p.czxid] = true
				watching.Go(func() { o.roster.group.watchPeer(ctx, s, p, news) })
			}
		}

		changed := make(chan error, 1)
		watching.Go(func() { changed <- w.Wait(ctx) })
		for more := true; more; {
			select {
			case err := <-changed:
				if err != nil {
					return err
				}
				more = false
			case p := <-news:
				o.roster.renew(p)
				if o.show(o.roster.peers()); o.enough {
					return nil
				}
			}
		}
	}
}

// watchPeer sends the member's data after each change, until it is gone.
func (g *Group) watchPeer(ctx context.Context, s *protocol.Session, p Peer, news chan<- Peer) {
	for version := int32(-1); ; {
		w := s.Watch(g.node(p.Name))
		same, err := w.Current(ctx)
		stat, _ := w.Ready(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && stat.Czxid != p.czxid: // another listing will show it
			return
		case err != nil: // it may not be read, now
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
				return
			case <-s.Done():
				return
			}
		case !same:
			continue
		case stat.Version != version:
			version, p.Data = stat.Version, w.Data()
			select {
			case news <- p:
			case <-ctx.Done():
				return
			}
		}
		if w.Wait(ctx) != nil {
			return
		}
	}
}

func (o *observation) show(peers []Peer) {
	if o.last != nil && slices.EqualFunc(o.last, peers, func(a, b Peer) bool {
		return a.Name == b.Name && a.czxid == b.czxid && bytes.Equal(a.Data, b.Data)
	}) {
		return
	}
	o.last = slices.Clone(peers)
	o.enough = !o.yield(peers, nil)
}

// Await blocks until the group has at least n members and returns them. It costs what
// [Group.Watch] does and returns the same errors. A member can have left by the time that Await
// returns.
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
	return nil, r.Wrap(protocol.Ended(ctx))
}
