package group

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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
// only its own items. [WithGrace] leaves the items of a member that is gone alone for a while
// (because it may be back soon).
//
// The [Assignment] holds a lock for the item, so one call of work runs for an item at a time. The
// ctx of work ends when the item must go to another member, when the lock is lost, or when Share
// ends. The next member waits until work has returned, so work should then return soon (its result
// is ignored). If work returns nil earlier, this member keeps the item, and Share calls work again
// only when the item has gone and come back. If work returns an error earlier, Share ends with that
// error. If the lock is lost with its session, Share takes it again and calls work again.
//
// Share blocks until ctx ends, the member leaves, the client is closed or work fails. Then it waits
// until all calls of work have returned and the locks are given back. It returns nil if ctx was
// cancelled and ctx's error if its deadline has passed. Other errors wrap [protocol.ErrReleased]
// (the member has left), [protocol.ErrClosed] or [zk.ErrInvalidPath] (an item could not be the name
// of a member). All others come from work or the server.
//
// The lock of an item is a lock of package lock at <path>-items/<item>, beside the group's path.
// Its data is the member's name. A session has room for some ten thousand of these locks (see
// [protocol.ErrSessionFull]). Share leaves other items alone until there is room. It logs a warning
// with their number.
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

// share is Share if sets is nil, and otherwise ShareAll.
func (m *Member) share(ctx context.Context, items []string, sets <-chan []string, work func(context.Context, *Assignment) error) error {
	if m == nil {
		return errors.New("group: nil member")
	}
	r := m.group.recipe
	if err := cmp.Or(r.ValidateCall(ctx, nil), r.Wrap(m.group.validate(nil, items...))); err != nil {
		return err
	} else if work == nil {
		return r.Wrap(errors.New("nil function"))
	}

	s := &share{
		group: m.group, me: m, work: work, items: items, ended: make(chan string), over: make(chan struct{}, 1),
		members: make(map[string]time.Time), mine: make(map[string]bool), working: make(map[string]context.CancelFunc),
	}

	// The share ends with ctx, with the membership, or with an error.
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
	return r.Wrap(recipe.Cancelled(ctx))
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

	// Only the caller's goroutine uses these.
	items   []string
	members map[string]time.Time          // by name: when the member has gone (zero if it is there)
	mine    map[string]bool               // which items me should work on
	working map[string]context.CancelFunc // by item; entries stay until work has returned

	ended   chan string   // items whose work has returned
	over    chan struct{} // gets a value when a grace has ended
	running sync.WaitGroup
	left    atomic.Int64 // how many of me's items have no room in the session
	warned  sync.Once
}

// run assigns the items whenever they or the members have changed.
func (s *share) run(sets <-chan []string, views <-chan []Peer) {
	for {
		select {
		case items, more := <-sets:
			if !more {
				sets = nil
				continue
			}
			if err := s.group.validate(nil, items...); err != nil {
				s.end(err)
				return
			}
			s.items = items
		case peers := <-views:
			s.see(peers)
		case <-s.over:
		case item := <-s.ended:
			delete(s.working, item)
			if s.mine[item] {
				s.begin(item)
			}
			continue
		case <-s.ctx.Done():
			return
		}

		s.assign()
	}
}

// see notes which members are there and since when the others have gone. When the grace of the
// latter ends, the items are assigned again.
func (s *share) see(peers []Peer) {
	for name, gone := range s.members {
		if gone.IsZero() {
			s.members[name] = time.Now()
		}
	}
	for _, p := range peers {
		s.members[p.Name] = time.Time{}
	}

	if s.group.grace > 0 {
		time.AfterFunc(s.group.grace, func() { signal(s.over) })
	}
}

// assign begins and ends work, so that me works on its items.
func (s *share) assign() {
	maps.DeleteFunc(s.members, func(_ string, gone time.Time) bool {
		return !gone.IsZero() && time.Since(gone) >= s.group.grace
	})

	clear(s.mine)
	for _, item := range s.items {
		s.mine[item] = s.ownerOf(item) == s.me.name
	}

	for item, cancel := range s.working {
		if !s.mine[item] {
			cancel()
		}
	}
	for item, mine := range s.mine {
		if mine && s.working[item] == nil {
			s.begin(item)
		}
	}
}

// begin begins to work on an item, whose former work has returned.
func (s *share) begin(item string) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.working[item] = cancel
	s.running.Go(func() {
		exits := true
		defer func() {
			if exits { // with Goexit, and perhaps again and again
				rest(ctx, time.Second)
			}
			cancel()
			select {
			case s.ended <- item:
			case <-s.ctx.Done():
			}
		}()
		if err := s.hold(ctx, item); err != nil && ctx.Err() == nil {
			s.end(err)
		}
		exits = false
	})
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
			<-held.Done() // this member keeps the item, even if its work is done
			return nil
		})
		if !errors.Is(err, protocol.ErrLost) {
			return err
		}
	}
	return nil
}

// leave waits until there can be room for an item that has no room now.
func (s *share) leave(ctx context.Context) {
	s.left.Add(1)
	defer s.left.Add(-1)

	rest(ctx, pause)
	if ctx.Err() == nil {
		// By now, the other items have met the same, so that they are counted.
		s.warned.Do(func() {
			s.group.recipe.Logger().Warn("items left alone: the session has no room for their locks",
				"path", s.group.recipe.Path(), "member", s.me.name, "items", s.left.Load())
		})
	}
}

// ownerOf returns the name of the member that an item belongs to, or "" if there are no members. It
// is the member with the highest score for the item. If a member joins or leaves, the scores of the
// other members stay the same.
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
