package group

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Watch yields the members (as [Group.Members] returns them) and then again after every change:
// when a member has joined, left or died. A member that has left and joined again counts as new.
// Changes in quick succession can be yielded together, but the last state is never skipped.
//
// Each member is read once, when it appears. [Member.Set] is not a change: it costs Watch no
// request, and Watch goes on yielding the data that it has read. [Group.Members] reads again, and
// [Group.WatchData] watches the data as well.
//
// Watch blocks between changes and while the session is suspended. If a session is lost, it goes on
// in the next session (without members that died meanwhile). It ends with the loop or when ctx is
// cancelled. If it ends with an error, it yields the error last: ctx's error (because its deadline
// has passed), an error that wraps [protocol.ErrClosed] or [zk.ErrInvalidPath], or the server's
// own.
//
// The caller may keep and change the slices, but must not change the data. The sequence can be
// ranged over several times and concurrently: all loops of a client share one watch at the server.
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
		r, more := roster{group: g}, true
		var last []Peer
		show := func() bool {
			if now := r.peers(); last == nil || !slices.EqualFunc(last, now, Peer.equal) {
				last = slices.Clone(now) // the caller may change its own
				more = yield(now, nil)
			}
			return more
		}

		_, err := recipe.AcrossSessions(ctx, g.recipe, func(s *recipe.Session) (struct{}, error) {
			return struct{}{}, r.follow(ctx, s, data, show)
		})

		if ctx != nil && ctx.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
			err = recipe.Cancelled(ctx)
		}
		if more && err != nil {
			yield(nil, g.recipe.Wrap(err))
		}
	}
}

// follow keeps the roster up to date and shows it after each change, for as long as the loop goes
// on and s lasts. With data, it follows the members' data as well.
func (r *roster) follow(ctx context.Context, s *recipe.Session, data bool, show func() bool) error {
	path := r.group.recipe.Path()
	if err := s.Sync(ctx, path); err != nil {
		return err
	}

	// One goroutine for each member sends its new data.
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	news, watched := make(chan Peer), make(map[string]int64) // by name: the czxid

	for {
		w := s.WatchChildren(path)
		dir, err := w.Fresh(ctx)
		if err == nil {
			err = r.update(ctx, s, w.Children(), dir)
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(watched, func(name string, _ int64) bool { return r.known[name] == nil })

		// Show the members, and their new data until the listing is out of date.
		changed := make(chan error, 1)
		watching.Go(func() { changed <- w.Wait(ctx) })

		for listed := true; listed; {
			if !show() {
				return nil
			}
			for _, p := range r.known {
				if data && p != nil && p.czxid != 0 && watched[p.Name] != p.czxid {
					watched[p.Name] = p.czxid
					watching.Go(func() { r.group.watchPeer(ctx, s, *p, news) })
				}
			}

			select {
			case err := <-changed:
				if err != nil {
					return err
				}
				listed = false
			case p := <-news:
				if known := r.known[p.Name]; known != nil && known.czxid == p.czxid {
					known.Data = p.Data
				}
			}
		}
	}
}

// watchPeer sends the member's data after each change, until it is gone.
func (g *Group) watchPeer(ctx context.Context, s *recipe.Session, p Peer, news chan<- Peer) {
	for ctx.Err() == nil {
		w := s.Watch(g.node(p.Name))
		stat, err := w.Fresh(ctx)
		if errors.Is(err, zk.ErrNoNode) || err == nil && stat.Czxid != p.czxid {
			return // the next listing shows that
		} else if err != nil {
			rest(ctx, pause) // the member may not be read, but its ACL can change
			continue
		}

		p.Data = w.Data()
		select {
		case news <- p:
		case <-ctx.Done():
		}
		w.Wait(ctx)
	}
}

// Await blocks until the group has at least n members and returns them. It costs what [Group.Watch]
// does and returns the same errors. A member can have left by the time that Await returns.
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
	return nil, r.Wrap(recipe.Ended(ctx))
}
