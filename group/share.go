package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// Share hands out items among the members of g, and calls work for each item that is me's. All
// members should call Share, with the same items. A member that joins or leaves moves as few items
// as possible: those that are its own.
//
// While work runs, it alone runs for its item, as me holds a lock for the item. Its ctx ends when
// the item is to go to another member, when the lock is lost, or when Share ends. The next member
// waits until work has returned, so work should return soon then. What it returns after that is
// ignored. If it returns nil before, the item stays me's, and work is not called again until the
// item comes back. If it returns an error before, Share ends with that error. A lock that is lost
// with its session is taken again, and work is called again.
//
// Share blocks until ctx ends, me leaves, the client is closed or work fails, and then until all
// calls of work have returned and the locks are given back. Its error is never nil. It wraps ctx's,
// [protocol.ErrReleased] if me has left, [protocol.ErrClosed], [zk.ErrBadArguments] if me is a
// member of another group, [zk.ErrInvalidPath] if an item could not be the name of a member, or is
// work's or the server's own.
//
// The lock of an item is a lock of package lock at <path>-items/<item>, beside the group's path.
// Its data is the member's name.
//
// [zk.ErrBadArguments]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrBadArguments
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func Share(ctx context.Context, g *Group, me *Member, items []string,
	work func(ctx context.Context, item string) error) error {
	switch {
	case work == nil:
		return g.recipe.Wrap(errors.New("nil function"))
	case me == nil:
		return g.recipe.Wrap(errors.New("nil member"))
	}
	s := &share{group: g, me: me, work: work, held: make(map[string]*holding)}
	for _, item := range items {
		if err := g.validate(item, nil); err != nil {
			return g.recipe.Wrap(err)
		}
		s.held[item] = &holding{cancel: func() {}}
	}

	if err := g.checkMember(ctx, me); err != nil {
		return g.recipe.Wrap(err)
	}

	s.ctx, s.cancel = context.WithCancelCause(ctx)
	defer context.AfterFunc(me.leaving, func() { s.end(me.left()) })()

	var ended error
	for peers, err := range g.Watch(s.ctx) {
		if ended = err; err == nil {
			s.assign(peers)
		}
	}
	s.end(ended)
	s.running.Wait()
	return g.recipe.Wrap(cmp.Or(s.why, ended))
}

// checkMember returns an error if me is a member of another group: no item would ever be its own.
func (g *Group) checkMember(ctx context.Context, me *Member) error {
	s, err := g.recipe.Session(ctx)
	if err != nil {
		return err
	}
	grant, _ := me.current()
	if node := grant.Check().Path; node != s.Path(g.node(me.name)) {
		return fmt.Errorf("%w: the member is of another group: %s", zk.ErrBadArguments, node)
	}
	return nil
}

// A share is one call of Share.
type share struct {
	group *Group
	me    *Member
	work  func(context.Context, string) error

	ctx    context.Context // ends with the share
	cancel context.CancelCauseFunc
	ending sync.Once
	why    error // nil if the caller's ctx has ended first; valid after end

	held    map[string]*holding // by item
	running sync.WaitGroup
}

// end ends the share. The first error counts.
func (s *share) end(err error) {
	s.ending.Do(func() {
		if s.ctx.Err() == nil {
			s.why = err
		}
		s.cancel(err)
	})
}

// A holding is the work for an item, which is under way or has ended.
type holding struct {
	mine   bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended; nil before the first one
}

// assign begins and ends work, so that this is done for the items that are me's.
func (s *share) assign(peers []Peer) {
	for item, h := range s.held {
		mine := ownerOf(item, peers) == s.me.name
		if mine == h.mine {
			continue
		}
		h.mine = mine
		h.cancel()
		if !mine {
			continue
		}

		before, done := h.done, make(chan struct{})
		var own context.Context
		own, h.cancel = context.WithCancel(s.ctx)
		h.done = done
		s.running.Go(func() {
			defer close(done)
			if before != nil {
				<-before
			}
			if err := s.hold(own, item); err != nil && own.Err() == nil {
				s.end(err)
			}
		})
	}
}

// hold does the work for an item while it is me's.
func (s *share) hold(ctx context.Context, item string) error {
	r := protocol.NewRecipe(s.group.client, "group", path.Join(s.group.recipe.Path()+"-items", item))
	l := line.New(r, line.Locks...)
	for {
		grant, err := l.Enter(ctx, line.Request{Kind: line.Locks[0].Name, Data: []byte(s.me.name)})
		if err != nil {
			return err
		}
		err = protocol.RunHeld(ctx, grant, func(held context.Context) error {
			if err := s.work(held, item); err != nil && held.Err() == nil {
				s.end(fmt.Errorf("item %q: %w", item, err))
			}
			<-held.Done()
			return nil
		})
		if ctx.Err() != nil || !errors.Is(err, protocol.ErrLost) {
			return err
		}
	}
}

// ownerOf returns the name of the member that an item belongs to, or "". It is the member with the
// highest score for the item. The scores of other members do not change when one joins or leaves.
func ownerOf(item string, peers []Peer) (owner string) {
	var highest uint64
	of := hash(item)
	for _, p := range peers {
		score := mix(mix(of) ^ hash(p.Name))
		if owner == "" || score > highest || score == highest && p.Name < owner {
			owner, highest = p.Name, score
		}
	}
	return owner
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// mix spreads the differences of its argument over all bits, as the last step of MurmurHash3 does.
func mix(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
