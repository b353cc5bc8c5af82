package conn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Watches shares the watches of a session. zk.Conn can't remove a watch, and keeps a channel for
// each call that set one until the node changes. So each node is watched once, however many waiters
// there are. A waiter that gives up leaves the watch to the next waiter. It is safe for concurrent
// use.
type Watches struct {
	conn *Conn

	mu      sync.Mutex // protects the fields below; nothing blocks while it is held
	watches map[string]*Watched
	markers map[string]*markerWatch // watches on release markers, by the path of the node

	// released is the node whose marker the latest event created, or empty. If the next event is
	// the node's deletion, one transaction did both.
	released string
}

// A Watched waits for a change of a node, for all who want to know. It fires once.
type Watched struct {
	Stat     *zk.Stat    // valid once the node was read
	Data     []byte      // valid once the node was read
	Children []string    // valid once the node was read
	Err      error       // valid once the node was read: zk.ErrNoNode, or why the session ended
	fired    atomic.Bool // by the event
	Deleted  bool        // valid once it has fired: the node is gone
	Released bool        // valid once it has fired: the deletion made the node's marker

	// The mu of Watches protects these.
	reading chan struct{} // closed when the node was read and the watch set, and then nil
	changed chan struct{} // closed when it fires; made when a caller asks for it
	asked   *asked        // the last recheck for its waiters
	calls   []call        // to make when it fires

	// Reconnected is closed once the connection over which the node was read has a successor.
	// Deletions and creations are reported over the next connection too, but a change of data or of
	// children can be missed. It's valid once the node was read.
	Reconnected <-chan struct{}
}

// A Do makes a request until its outcome is definite.
type Do func(request func(*zk.Conn) error) error

// On returns the watch on the node at an absolute path, and sets it if there is none. It fires when
// the node changes or is deleted. joined reports whether another caller is already reading the
// node.
func (t *Watches) On(do Do, path string) (_ *Watched, joined bool) {
	return t.set(do, path, func(c *zk.Conn, w *Watched) (err error) {
		w.Data, w.Stat, _, err = c.GetW(path)
		err = Denied(err, "read", path)
		return err
	})
}

// Below returns the watch on the children of the node at an absolute path (or on its creation), and
// sets it if there is none. If the node is created at that very moment, a watch on its deletion
// stays as well. joined is as in On.
func (t *Watches) Below(do Do, path string) (_ *Watched, joined bool) {
	return t.set(do, path+ChildrenKey, func(c *zk.Conn, w *Watched) (err error) {
		for {
			w.Children, w.Stat, _, err = c.ChildrenW(path)
			err = Denied(err, "list the children of", path)
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if there, _, _, err := c.ExistsW(path); !there {
				return err
			}
		}
	})
}

// ChildrenKey is the suffix of the keys of watches on children. No path ends with it.
const ChildrenKey = "/"

// set returns the watch with this key. If there is none, it starts to read the node, which sets the
// watch. joined reports whether the node is still being read.
func (t *Watches) set(do Do, path string, read func(*zk.Conn, *Watched) error) (_ *Watched, joined bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[path]; w != nil {
		return w, w.reading != nil
	}

	// The watch must be in the table first, because its event can come before the answer is read.
	w := &Watched{reading: make(chan struct{})}
	if t.watches == nil {
		t.watches = make(map[string]*Watched)
	}
	t.watches[path] = w

	started := t.conn.ensemble.Spawn(func() {
		w.Err = do(func(c *zk.Conn) error {
			w.Reconnected = t.conn.Resumption()
			return read(c, w)
		})
		t.mu.Lock()
		defer t.mu.Unlock()
		if w.Err != nil { // at once, or a caller could find the watch and not know its age
			t.drop(path, w)
		}
		w.wasRead()
	})

	if !started {
		w.Err = context.Cause(t.conn.ensemble.Closing)
		delete(t.watches, path)
		w.wasRead()
	}

	return w, false
}

// wasRead wakes the callers that wait for the node to be read. The caller holds mu.
func (w *Watched) wasRead() {
	close(w.reading)
	w.reading = nil // a session can have 100,000 watches, and a channel takes 96 bytes
}

// Ready returns a channel that is closed once the node was read.
func (t *Watches) Ready(w *Watched) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.reading == nil {
		return closed
	}
	return w.reading
}

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// Watched reports whether a watch on the node at an absolute path is set or being set.
func (t *Watches) Watched(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches[path] != nil
}

// drop removes a watch that couldn't be set. The caller holds mu.
func (t *Watches) drop(path string, w *Watched) {
	if t.watches[path] == w {
		delete(t.watches, path)
		t.unwatchMarker(path)
	}
}

// Outdated fires a watch that missed its event, for all its waiters.
func (t *Watches) Outdated(path string, w *Watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[path] == w {
		delete(t.watches, path)
		w.fire()
	}
}

// asked is the last recheck of a watch. The mu of Watches protects it.
type asked struct {
	at    time.Time
	over  <-chan struct{} // closed with the next connection
	ended bool            // the server has answered
}

// RecheckAfter is how often a watched node is read again.
const RecheckAfter = time.Minute

// Recheck calls ask in the background. ask asks the server whether w has missed an event. Recheck
// does nothing if another waiter is asking, or has asked less than a minute ago (and after the last
// reconnect).
func (t *Watches) Recheck(w *Watched, ask func()) {
	now, over := time.Now(), t.conn.Resumption()
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := w.asked; a != nil && (!a.ended || a.over == over && now.Sub(a.at) < RecheckAfter) {
		return
	}

	a := &asked{at: now}
	w.asked = a
	t.conn.ensemble.Spawn(func() {
		// Ask once more if there was a reconnect meanwhile: the answer may be older than the new
		// connection. (If each connection asked by itself, lost answers would add up.)
		for !a.ended {
			over := t.conn.Resumption()
			ask()
			t.mu.Lock()
			a.over, a.ended = over, !IsClosed(over)
			t.mu.Unlock()
		}
	})
}

// notify is zk.Conn's event callback. It must not block.
func (t *Watches) notify(e zk.Event) {
	if e.Type == zk.EventSession {
		return
	}
	if e.Type == zk.EventNodeDeleted {
		t.conn.host.Deleted(e.Path)
	}

	t.mu.Lock()
	// The marker's event comes just before the deletion's, so this says which node the deletion
	// released.
	released := t.noteMarker(e)

	fire := func(path string) {
		if w := t.watches[path]; w != nil {
			delete(t.watches, path)
			w.Deleted = e.Type == zk.EventNodeDeleted
			w.Released = w.Deleted && path == released
			w.fire()
		}
	}

	if e.Type != zk.EventNodeChildrenChanged {
		fire(e.Path)
	}
	if e.Type != zk.EventNodeDataChanged {
		fire(e.Path + ChildrenKey)
	}

	if e.Type == zk.EventNodeDeleted {
		t.unwatchMarker(e.Path)
	}
	changed := t.markers[e.Path] != nil
	t.mu.Unlock()
	if changed {
		t.On(t.conn.host.Do, e.Path) // otherwise the node's deletion could be missed
	}
}

// A call is made when a watch fires, unless it isn't wanted any more.
type call struct {
	unwanted func() bool
	f        func()
}

// Any blocks until one of the watches fires, or until ctx or the session ends. It reports whether a
// watch fired. It does not keep watches.
func (t *Watches) Any(ctx context.Context, watches []*Watched) (fired bool) {
	var left atomic.Bool
	defer left.Store(true)
	woken := make(chan struct{}, 1)
	wake := call{left.Load, func() {
		select {
		case woken <- struct{}{}:
		default: // another watch has fired
		}
	}}

	t.mu.Lock()
	for _, w := range watches {
		w.add(wake)
	}
	t.mu.Unlock()

	select {
	case <-woken:
		return true
	case <-t.conn.life.Done():
	case <-ctx.Done():
	}

	return false
}

// Call makes w call f when it fires (or now, if it has fired), unless life has ended.
func (t *Watches) Call(w *Watched, life context.Context, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.add(call{func() bool { return life.Err() != nil }, f})
}

// Changed returns a channel that is closed when w fires.
func (t *Watches) Changed(w *Watched) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
		w.add(call{func() bool { return false }, func() { close(w.changed) }})
	}
	return w.changed
}

// add adds a call. A watch can outlast any number of waiters and grants. So when the room is used
// up, unwanted calls are removed. If there are few of those, the room is doubled, so that the next
// search comes late. The caller holds the mu of Watches.
func (w *Watched) add(c call) {
	if w.fired.Load() {
		c.f()
		return
	}

	if room := cap(w.calls); len(w.calls) == room {
		w.calls = slices.DeleteFunc(w.calls, func(old call) bool { return old.unwanted() })
		if len(w.calls) > room/2 {
			w.calls = slices.Grow(w.calls, room)
		}
	}
	w.calls = append(w.calls, c)
}

// Fired reports whether the watch has fired.
func (w *Watched) Fired() bool { return w.fired.Load() }

// fire ends a watch. The caller holds mu.
func (w *Watched) fire() {
	w.fired.Store(true)
	for _, c := range w.calls {
		if !c.unwanted() {
			c.f()
		}
	}
	w.calls = nil
}

// IsClosed reports whether c is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
