package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Watch is a node, or the children of one, that was read and is watched since. All watches of a
// session on one node share one watch at the server, and one that is no longer of interest costs
// nothing to drop. A Watch is not safe for concurrent use, but for Changed once it is Ready.
//
// After a reconnect watches are set again, and the server tells what it has to tell since (see the
// package documentation). Methods that wait for a change do not rely on that: they ask the server
// themselves, then and once a minute. [Session.WaitAny] is the exception.
type Watch struct {
	session *Session
	key     string // in the session's table
	node    string // absolute
	shared  *conn.Watched
	joined  bool // another Watch had begun to read the node

	reconnected <-chan struct{} // closed once there was a reconnect since the server was asked last
}

// recheckAfter is how often something that is watched is read again.
const recheckAfter = time.Minute

// Watch begins to watch the data of a node, which is read unless another Watch has read it already.
// It does not block: [Watch.Ready] does.
func (s *Session) Watch(path string) *Watch { return s.watch(s.Path(path)) }

func (s *Session) watch(node string) *Watch {
	return s.share(&Watch{session: s, key: node, node: node})
}

// WatchChildren begins to watch the children of a node, or its creation if it does not exist. It
// does not block: [Watch.Ready] does.
func (s *Session) WatchChildren(path string) *Watch {
	node := s.Path(path)
	return s.share(&Watch{session: s, key: node + conn.ChildrenKey, node: node})
}

// background makes a request until its outcome is definite, whoever waits for that.
func (s *Session) background(request func(*zk.Conn) error) error {
	_, err := Do(s.bound.Life, s.Background(), func(c *zk.Conn) (struct{}, error) { return struct{}{}, request(c) })
	return err
}

// share returns w with what it shares with other watches.
func (s *Session) share(w *Watch) *Watch {
	if w.key == w.node {
		w.shared, w.joined = s.bound.Conn.Watches.On(s.background, w.node)
	} else {
		w.shared, w.joined = s.bound.Conn.Watches.Below(s.background, w.node)
	}
	return w
}

// Ready blocks until the node was read, and returns its Stat. It returns [zk.ErrNoNode] if there is
// no node; a watch on children returns a nil Stat then. Its other errors are those of [Do].
func (w *Watch) Ready(ctx context.Context) (*zk.Stat, error) {
	began := time.Now()
	for {
		select {
		case <-w.session.bound.Conn.Watches.Ready(w.shared):
		case <-ctx.Done():
			return nil, w.session.bound.Conn.Why(ctx)
		case <-w.session.bound.Silence(began):
			if err := w.session.bound.Silent(began); err != nil {
				return nil, err
			}
			continue
		}
		if w.shared.Err == nil || !w.joined {
			break
		}
		// The node may have been created after that read and before this watch was made. The next
		// read begins later than that, also if it is shared again.
		w.session.share(w)
		w.joined = false
	}

	if w.reconnected == nil { // or else Recheck has asked since
		w.reconnected = w.shared.Reconnected
	}
	return w.shared.Stat, w.shared.Err
}

// Data returns what was read. Call it after Ready. The caller must not change it.
func (w *Watch) Data() []byte { return w.shared.Data }

// Children returns what was read, in no order. Call it after Ready. The caller must not change it.
func (w *Watch) Children() []string { return w.shared.Children }

// Changed returns a channel that is closed when the server has told of a change, or [Watch.Recheck]
// has found one.
func (w *Watch) Changed() <-chan struct{} { return w.session.bound.Conn.Watches.Changed(w.shared) }

// AfterChange calls f, which must not block, once Changed is closed, unless life has ended before. It
// takes no goroutine. Unlike [Watch.Wait] it does not ask the server again. Call it after Ready.
func (w *Watch) AfterChange(life context.Context, f func()) {
	w.session.bound.Conn.Watches.Call(w.shared, life, f)
}

// Unchanged reports whether the node was as it was read when the last event came: no change was
// told of, and there was no reconnect. Call it after Ready.
func (w *Watch) Unchanged() bool { return !w.hasChanged() && w.sameConnection() }

// Deleted reports whether the server has told that the node was deleted, over the connection over
// which it was read. After a reconnect that is not known: the event may be made up, for a node that
// was only replaced. Call it after Ready.
func (w *Watch) Deleted() bool { return w.hasChanged() && w.shared.Deleted && w.sameConnection() }

func (w *Watch) hasChanged() bool { return w.shared.Fired() }

func (w *Watch) sameConnection() bool { return !conn.IsClosed(w.shared.Reconnected) }

// Recheck asks the server whether the node, or its children, are still as they were read, and
// reports that. If they are not, all who share the watch are told of a change.
func (w *Watch) Recheck(ctx context.Context) (same bool, err error) {
	w.reconnected = w.session.bound.Conn.Resumption()
	now, err := w.session.bound.Exists(ctx, w.node)
	if err != nil {
		return false, err
	}

	read := w.shared.Stat
	switch {
	case now == nil || read == nil:
		same = now == nil && read == nil
	case w.key == w.node:
		same = now.Czxid == read.Czxid && now.Version == read.Version
	default:
		same = now.Czxid == read.Czxid && now.Pzxid == read.Pzxid && now.NumChildren == read.NumChildren
	}
	if !same {
		w.session.bound.Conn.Watches.Outdated(w.key, w.shared)
	}
	return same, nil
}

// Current is [Watch.Ready] for a watch that may have been shared for long: if there was a reconnect
// since the node was read, it asks the server again. It reports whether the node is as it was read.
// If the watch began after a [Session.Sync], what it says is as new as a read would be.
func (w *Watch) Current(ctx context.Context) (same bool, err error) {
	if _, err := w.Ready(ctx); err != nil {
		return false, err
	}
	if conn.IsClosed(w.reconnected) {
		return w.Recheck(ctx)
	}
	return true, nil
}

// Wait blocks until the node, or its children, have changed. After a reconnect, and once a minute,
// one of those who share the watch asks the server again. Call it after Ready. It returns ctx's
// error, or one that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the session ends.
func (w *Watch) Wait(ctx context.Context) error {
	timer := time.NewTimer(recheckAfter)
	defer timer.Stop()

	for {
		select {
		case <-w.Changed():
			return nil
		case <-w.reconnected:
			w.reconnected = w.session.bound.Conn.Resumption()
		case <-timer.C:
			timer.Reset(recheckAfter)
		case <-w.session.Done():
			return w.session.bound.Conn.Why(ctx)
		case <-ctx.Done():
			return w.session.bound.Conn.Why(ctx)
		}
		again := &Watch{session: w.session.Background(), key: w.key, node: w.node, shared: w.shared}
		w.session.bound.Conn.Watches.Recheck(w.shared, func() { again.Recheck(w.session.bound.Life) })
	}
}

// WaitAny blocks until one of the watches, which were Ready, has told of a change. It does not ask
// the server again, so it is for deletions, of which the server tells by what there is, not by the
// number of a transaction. It returns ctx's error, or one that wraps [protocol.ErrLost] or
// [protocol.ErrClosed] if the session ends.
func (s *Session) WaitAny(ctx context.Context, watches ...*Watch) error {
	shared := func(yield func(*conn.Watched) bool) {
		for _, w := range watches {
			if !yield(w.shared) {
				return
			}
		}
	}
	if s.bound.Conn.Watches.Any(ctx, shared) {
		return nil
	}
	return s.bound.Conn.Why(ctx)
}

// WaitNode blocks while the node at path exists and enough has not said yes to its Stat. It returns
// the Stat that was enough, or nil once the node is gone. It asks enough again whenever the node
// has changed. It may see several changes in quick succession as one. It asks the server again
// after a reconnect, and once a minute. A node that does not exist gets no watch.
//
// It returns ctx's error, one that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the session
// ends, or the server's own. It is safe for concurrent use.
func (s *Session) WaitNode(ctx context.Context, path string, enough func(*zk.Stat) bool) (*zk.Stat, error) {
	for {
		w := s.Watch(path)
		same, err := w.Current(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case err != nil:
			return nil, err
		case !same:
			continue
		case enough(w.shared.Stat):
			return w.shared.Stat, nil
		}
		if err := w.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// WaitChildren blocks until the node at path has children of which enough says yes. It asks enough
// about every listing, of which there is one whenever the children have changed. A node that does
// not exist has no children, and is waited for. WaitChildren asks the server again after a
// reconnect, and once a minute.
//
// It returns ctx's error, one that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the session
// ends, or the server's own. It is safe for concurrent use.
func (s *Session) WaitChildren(ctx context.Context, path string, enough func(children []string) bool) error {
	for {
		w := s.WatchChildren(path)
		same, err := w.Current(ctx)
		switch {
		case err != nil:
			return err
		case !same:
			continue
		case enough(w.Children()):
			return nil
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}
