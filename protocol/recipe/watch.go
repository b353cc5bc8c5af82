package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Watch is a node (or the children of a node) that was read and is watched since. All watches of
// a session on one node share one watch at the server, and a Watch costs nothing to drop. A Watch
// is not safe for concurrent use, except for Changed once it is Ready.
//
// After a reconnect watches are set again and the server sends the events since. Methods that wait
// for a change don't rely on that: they ask the server themselves, after a reconnect and once a
// minute. The exception is [Session.WaitAny].
type Watch struct {
	session *Session
	key     string // in the session's table
	node    string // absolute
	shared  *conn.Watched
	joined  bool // another Watch had begun to read the node

	reconnected <-chan struct{} // closed by a reconnect after the server was last asked
}

// Watch begins to watch the data of a node. The node is read unless another Watch has read it.
// Watch does not block: [Watch.Ready] does.
func (s *Session) Watch(path string) *Watch { return s.watch(s.Path(path)) }

func (s *Session) watch(node string) *Watch {
	return (&Watch{session: s, key: node, node: node}).share()
}

// WatchChildren begins to watch the children of a node, or its creation if it does not exist. It
// does not block: [Watch.Ready] does.
func (s *Session) WatchChildren(path string) *Watch {
	node := s.Path(path)
	return (&Watch{session: s, key: node + conn.ChildrenKey, node: node}).share()
}

// share gives w its part in the shared watch and returns w.
func (w *Watch) share() *Watch {
	background := w.session.bound.In(w.session.bound.Nobody) // the request is made even if this caller leaves
	if w.key == w.node {
		w.shared, w.joined = w.watches().On(background.Do, w.node)
	} else {
		w.shared, w.joined = w.watches().Below(background.Do, w.node)
	}
	return w
}

// watches returns the session's table of watches.
func (w *Watch) watches() *conn.Watches { return &w.session.bound.Conn.Watches }

// Ready blocks until the node was read and returns its Stat. Without a node it returns
// [zk.ErrNoNode], or a nil Stat for a watch on children. Its other errors are the errors of [Do].
func (w *Watch) Ready(ctx context.Context) (*zk.Stat, error) {
	bound, began := &w.session.bound, time.Now()

	for {
		select {
		case <-w.watches().Ready(w.shared):
		case <-ctx.Done():
			return nil, bound.Conn.Why(ctx)
		case <-bound.Silence(began):
			if err := bound.Silent(began); err != nil {
				return nil, err
			}

			continue
		}
		if w.shared.Err == nil || !w.joined {
			break
		}

		// The node can have been created between that read and this call. The next read begins
		// after the call even if it is shared again.
		w.share()
		w.joined = false
	}

	if w.reconnected == nil { // otherwise Recheck has asked since
		w.reconnected = w.shared.Reconnected
	}

	return w.shared.Stat, w.shared.Err
}

// Data returns the data that was read. Call it after Ready. The caller must not change it.
func (w *Watch) Data() []byte { return w.shared.Data }

// Children returns the children that were read, in no order. Call it after Ready. The caller must
// not change it.
func (w *Watch) Children() []string { return w.shared.Children }

// Changed returns a channel that is closed when the server has reported a change, or when
// [Watch.Recheck] has found a change.
func (w *Watch) Changed() <-chan struct{} { return w.watches().Changed(w.shared) }

// AfterChange calls f once Changed is closed unless life ends before. f must not block. It needs no
// goroutine. Unlike [Watch.Wait] it does not ask the server again. Call it after Ready.
func (w *Watch) AfterChange(life context.Context, f func()) { w.watches().Call(w.shared, life, f) }

// Unchanged reports whether the node was still as it was read when the last event arrived: the
// server has reported no change, and there was no reconnect. Call it after Ready.
func (w *Watch) Unchanged() bool { return !w.shared.Fired() && w.sameConnection() }

// Deleted reports whether the server has reported the deletion of the node over the connection that
// read it. (After a reconnect, the event for a node that was replaced looks the same.) Call it
// after Ready.
func (w *Watch) Deleted() bool {
	return w.shared.Fired() && w.shared.Deleted && w.sameConnection()
}

func (w *Watch) sameConnection() bool { return !conn.IsClosed(w.shared.Reconnected) }

// Recheck asks the server whether the node (or its children) are still as they were read, and
// reports that. If they have changed, all who share the watch see the change.
func (w *Watch) Recheck(ctx context.Context) (same bool, err error) {
	// A reconnect during the request can make its answer too old.
	w.reconnected = w.session.Resumption()
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
		w.watches().Outdated(w.key, w.shared)
	}

	return same, nil
}

// Current is [Watch.Ready] for a watch that was perhaps shared for long: if there was a reconnect
// since the node was read, it asks the server again. It reports whether the node is still as it was
// read. If the watch began after a [Session.Sync], its node is as new as a read would return it.
func (w *Watch) Current(ctx context.Context) (same bool, err error) {
	if _, err := w.Ready(ctx); err != nil {
		return false, err
	}
	if conn.IsClosed(w.reconnected) {
		return w.Recheck(ctx)
	}
	return true, nil
}

// Fresh is [Watch.Current] for a caller that only wants the node as it is now: if the node has
// changed since it was read, Fresh watches and reads it again. It blocks until the server has
// answered and returns the Stat and the errors of [Watch.Ready].
func (w *Watch) Fresh(ctx context.Context) (*zk.Stat, error) {
	for {
		same, err := w.Current(ctx)
		if err != nil {
			return nil, err
		} else if same {
			return w.shared.Stat, nil
		}

		w.share()
	}
}

// Wait blocks until the node (or its children) have changed. After a reconnect and once a minute,
// one of the waiters who share the watch asks the server again. Call Wait after Ready. It returns
// ctx's error, or an error that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the session
// ends.
func (w *Watch) Wait(ctx context.Context) error {
	timer := time.NewTimer(conn.RecheckAfter)
	defer timer.Stop()

	for {
		select {
		case <-w.Changed():
			return nil
		case <-w.reconnected:
			w.reconnected = w.session.Resumption()
		case <-timer.C:
			timer.Reset(conn.RecheckAfter)
		case <-w.session.Done():
			return w.session.bound.Conn.Why(ctx)
		case <-ctx.Done():
			return w.session.bound.Conn.Why(ctx)
		}

		again := &Watch{session: w.session.Background(), key: w.key, node: w.node, shared: w.shared}
		w.watches().Recheck(w.shared, func() { again.Recheck(w.session.bound.Life) })
	}
}

// WaitAny blocks until one of the watches has fired. The watches must be Ready. WaitAny doesn't ask
// the server again, so it is for deletions: the server reports a missing node after any reconnect.
// It returns ctx's error, or an error that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the
// session ends.
func (s *Session) WaitAny(ctx context.Context, watches ...*Watch) error {
	shared := make([]*conn.Watched, len(watches))
	for i, w := range watches {
		shared[i] = w.shared
	}
	if s.bound.Conn.Watches.Any(ctx, shared) {
		return nil
	}

	return s.bound.Conn.Why(ctx)
}

// WaitNode blocks until enough says yes to the Stat of the node at path and returns that Stat. If
// the node is gone, it returns nil. It calls enough again whenever the node has changed (once for
// changes in quick succession). It asks the server again after a reconnect, and once a minute. A
// node that does not exist gets no watch.
//
// It returns ctx's error, an error that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the
// session ends, or the server's own error. It is safe for concurrent use.
func (s *Session) WaitNode(ctx context.Context, path string, enough func(*zk.Stat) bool) (*zk.Stat, error) {
	for {
		w := s.Watch(path)
		stat, err := w.Fresh(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil || enough(stat) {
			return stat, err
		}

		if err := w.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// WaitChildren blocks until enough says yes to the children of the node at path. It calls enough
// with every listing and lists again whenever the children have changed. A node that does not
// exist has no children, and WaitChildren waits for it. It asks the server again after a reconnect,
// and once a minute.
//
// It returns ctx's error, an error that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the
// session ends, or the server's own error. It is safe for concurrent use.
func (s *Session) WaitChildren(ctx context.Context, path string, enough func(children []string) bool) error {
	for {
		w := s.WatchChildren(path)
		if _, err := w.Fresh(ctx); err != nil || enough(w.Children()) {
			return err
		}

		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}
