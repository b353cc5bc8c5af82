package group

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Share divides items among the members of the group and calls work for each of this member's
// items. All members should call Share with the same items. A member that joins or leaves moves
// only its own items. [WithGrace] leaves the items of a member that is gone alone for a while,
// because it may be back soon.
//
// The [Assignment] holds a lock for the item, so one call of work runs for an item at a time. The
// ctx of work ends when the item must go to another member, when the lock is lost, or when Share
// ends. The next member waits until work has returned, so work should then return soon (its result
// is ignored). If work returns nil earlier, this member keeps the item, and Share calls work again
// only when the item has gone and come back. If work returns an error earlier, Share ends with that
// error. If the lock is lost with its session, Share takes it again and calls work again.
//
// Share blocks until ctx ends, the member leaves, the client is closed or work fails, and then
// until all calls of work have returned and the locks are given back. It returns nil if ctx was
// cancelled, and ctx's error if its deadline has passed. Other errors wrap [protocol.ErrReleased]
// if the member has left, [protocol.ErrClosed], [zk.ErrInvalidPath] if an item could not be the
// name of a member, or come from work or the server.
//
// The lock of an item is a lock of package lock at <path>-items/<item>, beside the group's path.
// Its data is the member's name. A session has room for some ten thousand of them (see
// [protocol.ErrSessionFull]). Share leaves other items alone until there is room, and logs a
// warning with their number.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (m *Member) Share(ctx context.Context, items []string, work func(ctx context.Context, a *Assignment) error) error {
	return m.share(ctx, items, nil, work)
}

// ShareAll is [Member.Share] for a set of items that changes. It begins with the first set that it
// receives. Each set replaces the last set: items in both sets stay where they are, and work ends
// for items that are not in the new set. If the channel is closed, the last set stays. All members
// should have the same set. Until they do, an item can be left alone.
func (m *Member) ShareAll(ctx context.Context, sets <-chan []string, work func(ctx context.Context, a *Assignment) error) error {
	return m.share(ctx, nil, sets, work)
}

func (m *Member) share(ctx context.Context, items []string, sets <-chan []string, work func(context.Context, *Assignment) error) error {
	if m == nil {
		return errors.New("group: nil member")
	}
	r := m.group.recipe
	if err := cmp.Or(r.ValidateCall(ctx, nil), r.Wrap(m.group.validateAll(items))); err != nil {
		return err
	} else if work == nil {
		return r.Wrap(errors.New("nil function"))
	}

	s := &share{group: m.group, me: m, work: work, items: items, held: make(map[string]*holding), members: make(map[string]time.Time)}
	s.ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	defer context.AfterFunc(m.leaving, func() { s.end(context.Cause(m.leaving)) })()

	views := make(chan []Peer)
	s.running.Go(func() {
		for peers, err := range m.group.Watch(s.ctx) {
			if err != nil {
				s.end(err)
				return
			}
			select {
			case views <- peers:
			case <-s.ctx.Done():
			}
		}
	})
	s.run(sets, views)
	s.running.Wait()
	if why := context.Cause(s.ctx); ctx.Err() == nil || !errors.Is(why, context.Cause(ctx)) {
		return r.Wrap(why)
	}
	return r.Wrap(stopped(ctx))
}

// validateAll refuses items that could not be the name of a member.
func (g *Group) validateAll(items []string) error {
	for _, item := range items {
		if err := g.validate(item, nil); err != nil {
			return err
		}
	}
	return nil
}

// stopped returns the result of a verb that goes on until ctx ends.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return recipe.Ended(ctx)
}

// An Assignment is one of this member's items, for as long as work has it. It is held and lost as a
// lease of package lock is. It is safe for concurrent use.
type Assignment struct {
	grant *recipe.Grant
	item  string
}

// Item returns the item.
func (a *Assignment) Item() string { return a.item }

// Done returns a channel that is closed when the item is lost or given back. [Assignment.Err] may
// report a loss before Done is closed.
func (a *Assignment) Done() <-chan struct{} { return a.grant.Done() }

// Err returns nil while the item is held. After a loss its error wraps [protocol.ErrLost] and the
// cause, and after work has returned [protocol.ErrReleased]. Err computes the answer from the
// clocks at each call, without I/O. An item that must go to another member is held until work
// returns.
func (a *Assignment) Err() error { return a.grant.Err() }

// Context returns a copy of parent that is also cancelled when the item is lost or given back, with
// [Assignment.Err] as its cause. Call the cancel function when the work is done.
func (a *Assignment) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return a.grant.Context(parent)
}

// Token returns the fencing token, which is greater than every earlier holder's token for the item.
func (a *Assignment) Token() int64 { return a.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the item is lost. The path in it is absolute.
//
// [zk.Conn]: https://pkg.go.dev/github.com/go-zookeeper/zk#Conn
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (a *Assignment) Check() *zk.CheckVersionRequest { return a.grant.Check() }

// Multi does all of the operations if the item is still held, or none: it is the fenced write to
// ZooKeeper. It behaves as [lock.Lease.Multi] does and returns the same errors.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
//
// [zk.Conn]: https://pkg.go.dev/github.com/go-zookeeper/zk#Conn
func (a *Assignment) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return a.grant.Multi(ctx, ops...)
}

// Node returns the name of the lock's node below <path>-items/<item>.
func (a *Assignment) Node() string { return a.grant.Node() }

// A share is one call of Share or ShareAll.
type share struct {
	group *Group
	me    *Member
	work  func(context.Context, *Assignment) error

	ctx context.Context // ends with the share
	end context.CancelCauseFunc

	// These belong to the goroutine of the caller.
	items   []string
	members map[string]time.Time // by name, and when they have gone: zero if they are there
	held    map[string]*holding  // by item

	running sync.WaitGroup
	left    atomic.Int64 // how many items are me's, and have no room
	warned  sync.Once
}

// run assigns the items whenever they or the members have changed.
func (s *share) run(sets <-chan []string, views <-chan []Peer) {
	for {
		var over <-chan time.Time // when the first grace ends
		var next time.Duration
		for name, since := range s.members {
			if since.IsZero() {
				continue
			}
			wait := time.Until(since.Add(s.group.grace))
			if wait <= 0 {
				delete(s.members, name)
			} else if over == nil || wait < next {
				next, over = wait, time.After(wait)
			}
		}
		s.assign()

		select {
		case items, more := <-sets:
			if !more {
				sets = nil
				continue
			}
			if err := s.group.validateAll(items); err != nil {
				s.end(err)
				return
			}
			s.items = items
		case peers := <-views:
			for name, since := range s.members {
				if since.IsZero() {
					s.members[name] = time.Now()
				}
			}
			for _, p := range peers {
				s.members[p.Name] = time.Time{}
			}
		case <-over:
		case <-s.ctx.Done():
			return
		}
	}
}

// A holding is the work for an item, which is under way or has ended.
type holding struct {
	mine   bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// assign begins and ends work, so that this is done for the items that are me's.
func (s *share) assign() {
	mine := make(map[string]bool)
	for _, item := range s.items {
		mine[item] = s.ownerOf(item) == s.me.name
	}

	for item, h := range s.held {
		if h.mine && !mine[item] {
			h.mine = false
			h.cancel()
		}
		if !mine[item] && isClosed(h.done) {
			delete(s.held, item)
		}
	}
	for item := range mine {
		before := s.held[item]
		if !mine[item] || before != nil && before.mine {
			continue
		}
		own, cancel := context.WithCancel(s.ctx)
		h := &holding{mine: true, cancel: cancel, done: make(chan struct{})}
		s.held[item] = h
		s.running.Go(func() {
			defer close(h.done)
			defer cancel()
			if before != nil {
				<-before.done
			}
			if err := s.hold(own, item); err != nil && own.Err() == nil {
				s.end(err)
			}
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hold does the work for an item while this member has it.
func (s *share) hold(ctx context.Context, item string) error {
	r := recipe.New(s.group.client, "group", path.Join(s.group.recipe.Path()+"-items", item))
	l := line.New(r, line.Locks...)
	for ctx.Err() == nil {
		grant, err := l.Enter(ctx, line.Request{Kind: line.Locks[0].Name, Data: []byte(s.me.name)})
		if errors.Is(err, protocol.ErrSessionFull) {
			s.leave(ctx)
			continue
		} else if err != nil {
			return err
		}
		err = recipe.RunHeld(ctx, grant, func(held context.Context) error {
			if err := s.work(held, &Assignment{grant, item}); err != nil && held.Err() == nil {
				s.end(fmt.Errorf("item %q: %w", item, err))
			}
			<-held.Done()
			return nil
		})
		if !errors.Is(err, protocol.ErrLost) {
			return err
		}
	}
	return nil
}

// leave waits until there may be room for an item that has none.
func (s *share) leave(ctx context.Context) {
	s.left.Add(1)
	defer s.left.Add(-1)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return
	}
	s.warned.Do(func() { // by now the other items have met the same
		s.group.recipe.Logger().Warn("items left alone: the session has no room for their locks",
			"path", s.group.recipe.Path(), "member", s.me.name, "items", s.left.Load())
	})
}

// ownerOf returns the name of the member that an item belongs to, or "". It is the member with the
// highest score for the item. The scores of other members do not change when one joins or leaves.
func (s *share) ownerOf(item string) (owner string) {
	var highest [sha256.Size]byte
	for name := range s.members {
		score := sha256.Sum256([]byte(item + "/" + name)) // no name has a slash
		if owner == "" || bytes.Compare(score[:], highest[:]) > 0 {
			owner, highest = name, score
		}
	}
	return owner
}
