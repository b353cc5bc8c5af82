package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Member is a membership that lasts until [Member.Leave]. If its session is lost or its node is
// deleted, the member is no longer joined. It then joins again by itself. It is safe for concurrent
// use.
type Member struct {
	group *Group
	name  string

	leaving context.Context // ends with Leave, or with the client
	leave   context.CancelCauseFunc
	over    chan struct{} // closed when the member has left, or its client is closed
	outcome error         // the result of Leave, valid once over is closed
	changes chan struct{}
	setting chan struct{} // has room for one Set at a time

	sessions map[int64]bool // sessions that may have a node of this member

	mu      sync.Mutex // protects the fields below
	data    []byte
	grant   *recipe.Grant // from the last time that the member joined
	renewed chan struct{} // closed when there is another grant
}

// Join makes the caller a member with this name and data, across sessions and until [Member.Leave]
// or [protocol.Client.Close]. The context is for the call alone.
//
// The name becomes the name of a node. If it is empty, "." or "..", or has a slash or characters
// that ZooKeeper forbids, Join returns an error that wraps [zk.ErrInvalidPath]. The caller must not
// change data afterwards.
//
// If another member has the name, Join waits until the name is free. So a process that is started
// again after a crash waits for its former session to expire (or not at all, with [WithIdentity]).
// If a node that is not a member's has the name, Join returns [ErrNameTaken].
//
// The ACL should allow the member to read its own node. Otherwise ZooKeeper 3.8.4, 3.9.2 and later
// hide from the member whether the node is still its own. So Join then deletes the node again and
// returns an error that wraps [zk.ErrNoAuth]. If the answer to the create was lost, the error wraps
// [ErrNameTaken] as well and the node stays until the session ends. A member that loses this
// permission later is no longer joined.
//
// Join blocks until the name is the caller's. If ctx ends first, it returns an error that wraps
// ctx's error, and no node stays. Other errors wrap [protocol.ErrClosed] or [protocol.ErrTooLarge],
// or are the server's own (for example [zk.ErrNoAuth]).
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (g *Group) Join(ctx context.Context, name string, data []byte) (*Member, error) {
	return g.enter(ctx, name, data, false)
}

// TryJoin is [Group.Join] for a caller that doesn't wait: if another member has the name, it
// returns an error that wraps [ErrNameTaken]. It blocks until the server has answered. (If a
// session is lost while TryJoin is at work, it waits for the end of that session.)
func (g *Group) TryJoin(ctx context.Context, name string, data []byte) (*Member, error) {
	return g.enter(ctx, name, data, true)
}

// enter is Join, or TryJoin with try.
func (g *Group) enter(ctx context.Context, name string, data []byte, try bool) (*Member, error) {
	if err := g.validate(data, name); err != nil {
		return nil, g.recipe.Wrap(err)
	}
	m := &Member{
		group: g, name: name, data: data,
		over:     make(chan struct{}),
		changes:  make(chan struct{}, 1),
		setting:  make(chan struct{}, 1),
		sessions: make(map[int64]bool),
		renewed:  make(chan struct{}),
	}

	grant, err := g.recipe.Acquire(ctx, data, func(s *recipe.Session) (*recipe.Grant, error) {
		for {
			p, err := m.claim(ctx, s)
			if err != nil || p.grant != nil {
				return p.grant, err
			}

			gone, err := m.meet(ctx, s, p, try)
			if err == nil && !gone {
				err = m.awaitEnd(ctx, s, p)
			}
			if err != nil {
				return nil, err
			}
		}
	})
	if err != nil {
		return nil, err
	}

	m.grant = grant
	m.leaving, m.leave = context.WithCancelCause(context.Background())
	if !grant.Session().Go(func(context.Context, *recipe.Session) { m.run() }) {
		return nil, g.recipe.Wrap(protocol.ErrClosed)
	}
	return m, nil
}

// meet deals with the node or member that has the name. It reports whether m has taken over the
// name, so that the node is gone. It returns [ErrNameTaken] if m must not wait for the name. With
// try, m only waits for the end of its own lost sessions.
func (m *Member) meet(ctx context.Context, s *recipe.Session, p place, try bool) (gone bool, err error) {
	switch {
	case p.other == nil && try:
		return false, fmt.Errorf("%w: %q by a member of this client", ErrNameTaken, m.name)
	case p.other == nil:
		return false, nil
	case p.other.EphemeralOwner == 0:
		return false, fmt.Errorf("%w: %q by a node that is not a member's", ErrNameTaken, m.name)
	}

	gone, err = m.takeOver(ctx, s, p.other)
	if owner := p.other.EphemeralOwner; err == nil && !gone && try && !m.sessions[owner] {
		err = fmt.Errorf("%w: %q by session %#x", ErrNameTaken, m.name, uint64(owner))
	}
	return gone, err
}

// rejoin blocks until the member is joined again, leaves, or the client is closed. It waits for a
// name that is taken.
func (m *Member) rejoin() (*recipe.Grant, error) {
	r, began := m.group.recipe, time.Now()
	r.Waiting(m.leaving)

	p, err := recipe.AcrossSessions(m.leaving, r, func(s *recipe.Session) (p place, err error) {
		for err == nil && p.grant == nil {
			// Finish this attempt even if the member leaves, so that no request is on its way when
			// Leave returns.
			p, err = m.claim(context.Background(), s)
			if err == nil && p.grant == nil {
				err = m.awaitEnd(m.leaving, s, p)
			}
		}

		if err != nil && s.Err() == nil && m.leaving.Err() == nil {
			err = recipe.Again(err) // the ACL can change
		}
		return p, err
	})

	if err != nil {
		r.Waited(m.leaving, began, nil, 0, err)
	} else {
		r.Waited(m.leaving, began, p.grant.Session(), p.grant.Token(), nil)
	}
	return p.grant, err
}

// awaitEnd waits until the node or member that claim has met no longer has the name.
func (m *Member) awaitEnd(ctx context.Context, s *recipe.Session, p place) error {
	if p.other == nil {
		select {
		case <-p.taken:
			return nil
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return recipe.Ended(ctx)
		}
	}

	_, err := s.WaitNode(ctx, m.group.node(m.name), func(stat *zk.Stat) bool { return stat.Czxid != p.other.Czxid })
	return err
}

// run joins again and again until the member leaves or the client is closed.
func (m *Member) run() {
	defer close(m.over)
	defer close(m.changes)

	for {
		select {
		case <-m.grant.Done():
			signal(m.changes)
		case <-m.leaving.Done():
			m.outcome = m.grant.Release(context.Background())
			if errors.Is(m.outcome, protocol.ErrLost) {
				m.outcome = m.gone()
			}
			return
		}

		// Join again, for as long as the member doesn't leave.
		grant, err := m.rejoin()
		for ; err != nil; grant, err = m.rejoin() {
			if m.leaving.Err() != nil || errors.Is(err, protocol.ErrClosed) {
				m.leave(err)
				m.outcome = m.gone()
				return
			}

			// The user's back-off has stopped, but the member must come back.
			m.group.recipe.Logger().Warn("not joined again", "path", m.group.recipe.Path(), "member", m.name, "error", err)
			rest(m.leaving, pause)
		}

		// Wake the calls of Set that wait for the grant.
		m.mu.Lock()
		m.grant = grant
		close(m.renewed)
		m.renewed = make(chan struct{})
		m.mu.Unlock()
		signal(m.changes)
	}
}

// pause is the time before an attempt that only others can help: to join after the user's back-off
// has stopped, to read a member in spite of its ACL, or to lock an item in a full session.
const pause = 10 * time.Second

// rest blocks for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// gone blocks until no lost session has a node of the member.
func (m *Member) gone() error {
	ctx, node := context.Background(), m.group.node(m.name)
	_, err := recipe.AcrossSessions(ctx, m.group.recipe, func(s *recipe.Session) (*zk.Stat, error) {
		// Sync first, because a server that lags can hide a node.
		if err := s.Sync(ctx, node); err != nil {
			return nil, err
		}
		return s.WaitNode(ctx, node, func(stat *zk.Stat) bool {
			return !m.sessions[stat.EphemeralOwner] || stat.EphemeralOwner == s.ID()
		})
	})
	return m.group.recipe.Wrap(err)
}

// signal puts a value into a channel that has room for one, unless there is a value already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Name returns the name that the member joined with.
func (m *Member) Name() string { return m.name }

// Joined reports whether the member is joined: it has its node and its session is trusted, so that
// no other member has its name. Joined computes that from the clocks at each call (without I/O). So
// it reports a loss at once, even after a pause of the process.
//
// If another client deletes the member's node, Joined is false once the server's event has arrived.
func (m *Member) Joined() bool {
	grant, _, _ := m.current()
	return m.leaving.Err() == nil && grant.Err() == nil
}

// Changes returns a channel that gets a value after [Member.Joined] has changed. Several changes
// can be one value, so ask Joined. The channel is closed when the member has left or the client is
// closed.
func (m *Member) Changes() <-chan struct{} { return m.changes }

// current returns the grant, a channel that is closed when there is another grant, and the data
// that were set last.
func (m *Member) current() (grant *recipe.Grant, renewed <-chan struct{}, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.grant, m.renewed, m.data
}

// Set replaces the member's data, now and whenever it joins again. It blocks until the server has
// answered two requests (four if an answer was lost). If the member is not joined, Set waits until
// it is. Concurrent calls are served one after the other. The caller must not change data
// afterwards.
//
// If ctx ends first, Set returns an error that wraps ctx's error. If ctx ended before this call's
// turn, nothing has changed. Otherwise the node may have the new data, and the member joins again
// with them.
//
// After other errors the member keeps the data that it had. These errors wrap
// [protocol.ErrReleased] (after [Member.Leave]), [protocol.ErrClosed] or [protocol.ErrTooLarge], or
// are the server's own. If a back-off has stopped, the member has joined again during the call, or
// the error wraps [protocol.ErrUncertain], the node may have the new data until the next join.
// (ErrUncertain means that an answer was lost and the ACL forbids to read the node.)
func (m *Member) Set(ctx context.Context, data []byte) error {
	r := m.group.recipe
	if err := r.ValidateCall(ctx, data); err != nil {
		return err
	}

	// Calls take turns, so that the data here and the data of the node are of the same call.
	select {
	case m.setting <- struct{}{}:
		defer func() { <-m.setting }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return r.Wrap(recipe.Ended(ctx))
	}

	before := m.replaceData(data)
	err := m.set(ctx, data)

	// If ctx has ended, the node may have the new data, so the member joins again with them.
	if err != nil && ctx.Err() == nil {
		m.replaceData(before)
	}
	return r.Wrap(err)
}

// set replaces the data of the present node, or of the next node if the present node is lost.
func (m *Member) set(ctx context.Context, data []byte) error {
	for {
		grant, renewed, _ := m.current()
		if m.leaving.Err() == nil {
			err := grant.SetData(ctx, data)
			if !errors.Is(err, protocol.ErrLost) {
				return err
			}
		}

		select {
		case <-renewed:
		case <-ctx.Done():
			return recipe.Ended(ctx)
		case <-m.leaving.Done():
			return context.Cause(m.leaving)
		}
	}
}

func (m *Member) replaceData(data []byte) (before []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, m.data = m.data, data
	return before
}

// Leave ends the membership. [Member.Joined] is false at once, and the node is deleted in any case.
// Leave blocks until the name is free (one request) or ctx ends. If ctx ends first, it returns
// ctx's error and the client completes the work in the background.
//
// If the member is not joined because its session was lost, Leave waits until the servers have
// ended that session. Its error wraps [protocol.ErrClosed] if the client was closed. If the server
// refuses to delete the node, Leave returns that error (for example [zk.ErrNoAuth]) and the client
// tries again in the background. Leave can be called again and concurrently: each call waits for
// the same end.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (m *Member) Leave(ctx context.Context) error {
	if err := m.group.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	m.leave(protocol.ErrReleased)
	if ctx.Err() == nil {
		select {
		case <-m.over:
			return m.outcome
		case <-ctx.Done():
		}
	}
	return m.group.recipe.Wrap(recipe.Ended(ctx))
}
