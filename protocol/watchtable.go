package protocol

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// A watchTable shares the watches of a session. zk.Conn cannot take a watch back and keeps a
// channel for each call that set one until the node changes. So each node is watched once, however
// many waiters it has, and a waiter that gives up leaves the watch to the next. It is safe for
// concurrent use.
type watchTable struct {
	session *session

	mu      sync.Mutex // protects what follows; nothing blocks while it is held
	watches map[string]*sharedWatch
	markers map[string]*markerWatch // those for release markers, by the path of the node

	// released is the node whose marker was created by the latest event, or empty. The event after
	// that one tells of the node's own deletion, if both are of one transaction.
	released string

	listing    bool        // the server cannot remove watches: no release marker is watched for
	unanswered *connection // the last connection that ended before it was told that a watch is removed
}

// A sharedWatch waits for something to change at a node, on behalf of every [Watch] of that. It
// fires once.
type sharedWatch struct {
	path     string
	stat     *zk.Stat    // valid once the node was read
	data     []byte      // likewise
	children []string    // likewise
	err      error       // likewise: zk.ErrNoNode, or what ended the session
	fired    atomic.Bool // by the event
	deleted  bool        // valid once fired is set: the node is gone
	released bool        // likewise: the deletion made the node's marker

	// The table's mu protects these.
	reading chan struct{} // closed when the node was read, and the watch set with that; nil since
	changed chan struct{} // closed when it fires; made when it is asked for
	waiters []*waiter     // to wake when it fires, and some that have left
	calls   []func()      // made when it fires

	// reconnected is closed once there is another connection than the one over which the node was
	// read. Deletions and creations are made up for then, but a change of data or of children may
	// have been missed. Valid likewise.
	reconnected <-chan struct{}
}

// on returns the watch on the node at an absolute path, and sets it if there is none. It waits for
// the node to change or to be deleted. It reports whether another caller's read is under way.
func (t *watchTable) on(s *Session, path string) (_ *sharedWatch, joined bool) {
	return t.set(s, path, func(c *zk.Conn, w *sharedWatch) (err error) {
		w.data, w.stat, _, err = c.GetW(path)
		err = denied(err, "read", path)
		return err
	})
}

// below returns the watch on the children of the node at an absolute path, or on the creation of
// that node, and sets it if there is none. If the node is created at that very moment a watch on
// its end stays on besides. It reports what on does.
func (t *watchTable) below(s *Session, path string) (_ *sharedWatch, joined bool) {
	return t.set(s, path+childrenKey, func(c *zk.Conn, w *sharedWatch) (err error) {
		for {
			w.children, w.stat, _, err = c.ChildrenW(path)
			err = denied(err, "list the children of", path)
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if there, _, _, err := c.ExistsW(path); !there {
				return err
			}
		}
	})
}

// childrenKey ends the key of a watch on a node's children in the table. No path ends like that.
const childrenKey = "/"

// set returns the watch with that key. If there is none, it starts to read the node under s, which
// sets the watch. Otherwise it reports whether the node is still being read.
func (t *watchTable) set(s *Session, path string, read func(*zk.Conn, *sharedWatch) error) (_ *sharedWatch, joined bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[path]; w != nil {
		return w, w.reading != nil
	}

	// The watch is in the table before it is set: its event may come before the answer is read.
	w := &sharedWatch{path: path, reading: make(chan struct{})}
	if t.watches == nil {
		t.watches = make(map[string]*sharedWatch)
	}
	t.watches[path] = w

	started := t.session.client.spawn(func() {
		_, w.err = Do(t.session.life, s, func(c *zk.Conn) (struct{}, error) {
			w.reconnected = t.session.resumption()
			return struct{}{}, read(c, w)
		})
		t.mu.Lock()
		defer t.mu.Unlock()
		if w.err != nil { // at once, or a caller could find it in the table and not know its age
			t.drop(path, w)
		}
		w.wasRead()
	})

	if !started {
		w.err = ErrClosed
		w.wasRead()
		delete(t.watches, path)
	}

	return w, false
}

// wasRead says that the node was read. The caller holds mu.
func (w *sharedWatch) wasRead() {
	close(w.reading)
	w.reading = nil // a channel takes memory
}

// ready returns a channel that is closed when the node was read.
func (t *watchTable) ready(w *sharedWatch) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.reading == nil {
		return closed
	}
	return w.reading
}

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// sole returns path, in the table's memory if the table has it.
func (t *watchTable) sole(path string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[path]; w != nil {
		return w.path
	}
	return path
}

// drop removes a watch that could not be set. The caller holds mu.
func (t *watchTable) drop(path string, w *sharedWatch) {
	if t.watches[path] == w {
		delete(t.watches, path)
		t.unwatchMarker(path)
	}
}

// outdated fires a watch that has missed its event, for all its waiters.
func (t *watchTable) outdated(path string, w *sharedWatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[path] == w {
		delete(t.watches, path)
		w.fire()
	}
}

// notify is zk.Conn's event callback: it must not block.
func (t *watchTable) notify(e zk.Event) {
	if e.Type == zk.EventSession {
		return
	}

	t.mu.Lock()
	released := t.noteMarker(e)

	fire := func(path string) {
		if w := t.watches[path]; w != nil {
			delete(t.watches, path)
			w.deleted = e.Type == zk.EventNodeDeleted
			w.released = w.deleted && path == released
			w.fire()
		}
	}

	if e.Type != zk.EventNodeChildrenChanged {
		fire(e.Path)
	}
	if e.Type != zk.EventNodeDataChanged {
		fire(e.Path + childrenKey)
	}

	if e.Type == zk.EventNodeDeleted {
		t.unwatchMarker(e.Path)
	}
	changed := t.markers[e.Path] != nil
	t.mu.Unlock()
	if changed {
		t.on(t.session.base, e.Path) // or else the node's end would not be heard of
	}
}

// noteMarker sets released according to e, and returns what it was before. The caller holds mu.
func (t *watchTable) noteMarker(e zk.Event) (before string) {
	before = t.released
	if e.Type == zk.EventNodeChildrenChanged { // the line's own, in the same transaction
		return before
	}

	t.released = ""
	if node, ok := strings.CutSuffix(e.Path, MarkerSuffix); ok && t.markers[node] != nil {
		delete(t.markers, node)
		if e.Type == zk.EventNodeCreated {
			t.released = node
		}
	}
	return before
}

// subscribe makes w wake when one of the watches fires, or now if one has. The watches themselves
// are not kept.
func (t *watchTable) subscribe(w *waiter, watches []*Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, watch := range watches {
		if watch.shared.fired.Load() {
			w.wake()
			return
		}
		watch.shared.admit(w)
	}
}

// admit adds a waiter. Those that have left go when the room is used up. If few have, the room is
// doubled, so that the next search comes late. The caller holds the table's mu.
func (w *sharedWatch) admit(another *waiter) {
	if room := cap(w.waiters); len(w.waiters) == room {
		w.waiters = slices.DeleteFunc(w.waiters, func(old *waiter) bool { return old.left.Load() })
		if len(w.waiters) > room/2 {
			w.waiters = slices.Grow(w.waiters, room)
		}
	}
	w.waiters = append(w.waiters, another)
}

// changed returns a channel that is closed when w fires.
func (t *watchTable) changed(w *sharedWatch) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
		if w.fired.Load() {
			close(w.changed)
		}
	}
	return w.changed
}

// call makes w call f when it fires, or calls f now if it has.
func (t *watchTable) call(w *sharedWatch, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.fired.Load() {
		f()
		return
	}
	w.calls = append(w.calls, f)
}

// fire ends a watch. The caller holds mu.
func (w *sharedWatch) fire() {
	w.fired.Store(true)
	if w.changed != nil {
		close(w.changed)
	}
	for _, f := range w.calls {
		f()
	}
	for _, waiter := range w.waiters {
		waiter.wake()
	}
	w.waiters = nil
}
