package conn

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Watches shares the watches of a session. zk.Conn cannot take a watch back and keeps a
// channel for each call that set one until the node changes. So each node is watched once, however
// many waiters it has, and a waiter that gives up leaves the watch to the next. It is safe for
// concurrent use.
type Watches struct {
	conn *Conn

	mu      sync.Mutex // protects what follows; nothing blocks while it is held
	watches map[string]*Watched
	markers map[string]*markerWatch // those for release markers, by the path of the node

	// released is the node whose marker was created by the latest event, or empty. The event after
	// that one tells of the node's own deletion, if both are of one transaction.
	released string
}

// A Watched waits for something to change at a node, on behalf of all who wait for that. It
// fires once.
type Watched struct {
	path     string
	Stat     *zk.Stat    // valid once the node was read
	Data     []byte      // likewise
	Children []string    // likewise
	Err      error       // likewise: zk.ErrNoNode, or what ended the session
	fired    atomic.Bool // by the event
	Deleted  bool        // valid once it has fired: the node is gone
	Released bool        // likewise: the deletion made the node's marker

	// The table's mu protects these.
	reading chan struct{} // closed when the node was read, and the watch set with that; nil since
	changed chan struct{} // closed when it fires; made when it is asked for
	asked   *asked        // how it was last rechecked for those who wait
	waiters []*waiter     // to wake when it fires, and some that have left
	calls   []changeCall  // made when it fires, and some that are not wanted any more

	// Reconnected is closed once there is another connection than the one over which the node was
	// read. Deletions and creations are made up for then, but a change of data or of children may
	// have been missed. Valid likewise.
	Reconnected <-chan struct{}
}

// A Do makes a request until its outcome is definite.
type Do func(request func(*zk.Conn) error) error

// On returns the watch on the node at an absolute path, and sets it if there is none. It waits for
// the node to change or to be deleted. It reports whether another caller's read is under way.
func (t *Watches) On(do Do, path string) (_ *Watched, joined bool) {
	return t.set(do, path, func(c *zk.Conn, w *Watched) (err error) {
		w.Data, w.Stat, _, err = c.GetW(path)
		err = Denied(err, "read", path)
		return err
	})
}

// Below returns the watch on the children of the node at an absolute path, or on the creation of
// that node, and sets it if there is none. If the node is created at that very moment a watch on
// its end stays on besides. It reports what On does.
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

// ChildrenKey ends the key of a watch on a node's children in the table. No path ends like that.
const ChildrenKey = "/"

// set returns the watch with that key. If there is none, it starts to read the node, which sets the
// watch. Otherwise it reports whether the node is still being read.
func (t *Watches) set(do Do, path string, read func(*zk.Conn, *Watched) error) (_ *Watched, joined bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[path]; w != nil {
		return w, w.reading != nil
	}

	// The watch is in the table before it is set: its event may come before the answer is read.
	w := &Watched{path: path, reading: make(chan struct{})}
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
		if w.Err != nil { // at once, or a caller could find it in the table and not know its age
			t.drop(path, w)
		}
		w.wasRead()
	})

	if !started {
		w.Err = context.Cause(t.conn.ensemble.Closing)
		w.wasRead()
		delete(t.watches, path)
	}

	return w, false
}

// wasRead says that the node was read. The caller holds mu.
func (w *Watched) wasRead() {
	close(w.reading)
	w.reading = nil // a channel takes memory
}

// Ready returns a channel that is closed when the node was read.
func (t *Watches) Ready(w *Watched) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.reading == nil {
		return closed
	}
	return w.reading
}

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// sole returns path, in the table's memory if the table has it.
func (t *Watches) sole(path string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[path]; w != nil {
		return w.path
	}
	return path
}

// Watched reports whether a watch on the node at an absolute path is set, or is being set.
func (t *Watches) Watched(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches[path] != nil
}

// drop removes a watch that could not be set. The caller holds mu.
func (t *Watches) drop(path string, w *Watched) {
	if t.watches[path] == w {
		delete(t.watches, path)
		t.unwatchMarker(path)
	}
}

// Outdated fires a watch that has missed its event, for all its waiters.
func (t *Watches) Outdated(path string, w *Watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[path] == w {
		delete(t.watches, path)
		w.fire()
	}
}

// asked is the last recheck of a watch: when it began, and over which connection. The mu of the table
// protects it.
type asked struct {
	at    time.Time
	over  <-chan struct{} // closed with the next connection
	ended bool            // the server has answered
	more  bool            // there was a reconnect before that
}

// recheckAfter is how often something that is watched is read again.
const recheckAfter = time.Minute

// Recheck calls ask in the background, which asks the server whether w has missed an event, unless
// another waiter has asked since there was a reconnect, and less than a minute ago, or waits for the
// answer.
func (t *Watches) Recheck(w *Watched, ask func()) {
	now, over := time.Now(), t.conn.Resumption()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch a := w.asked; {
	case a != nil && !a.ended:
		a.more, a.over = a.more || a.over != over, over
		return
	case a != nil && a.over == over && now.Sub(a.at) < recheckAfter:
		return
	}
	a := &asked{at: now, over: over}
	w.asked = a
	t.conn.ensemble.Spawn(func() {
		for !a.ended {
			ask()
			t.mu.Lock()
			a.ended, a.more = !a.more, false
			t.mu.Unlock()
		}
	})
}

// notify is zk.Conn's event callback: it must not block.
func (t *Watches) notify(e zk.Event) {
	if e.Type == zk.EventSession {
		return
	}
	if e.Type == zk.EventNodeDeleted {
		t.conn.host.Deleted(e.Path)
	}

	t.mu.Lock()
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
		t.On(t.conn.host.Do, e.Path) // or else the node's end would not be heard of
	}
}

// A waiter waits for any of several watches.
type waiter struct {
	woken chan struct{} // with room for one
	left  atomic.Bool   // it waits no longer
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// Any blocks until one of the watches has fired, or ctx or the session ends, and reports the first of
// these. The watches are not kept.
func (t *Watches) Any(ctx context.Context, watches iter.Seq[*Watched]) (fired bool) {
	w := &waiter{woken: make(chan struct{}, 1)}
	defer w.left.Store(true)
	t.subscribe(w, watches)
	select {
	case <-w.woken:
		return true
	case <-t.conn.life.Done():
	case <-ctx.Done():
	}
	return false
}

// subscribe makes w wake when one of the watches fires, or now if one has.
func (t *Watches) subscribe(w *waiter, watches iter.Seq[*Watched]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for watch := range watches {
		if watch.fired.Load() {
			w.wake()
			return
		}
		watch.admit(w)
	}
}

// admit adds a waiter. Those that have left go when the room is used up. If few have, the room is
// doubled, so that the next search comes late. The caller holds the table's mu.
func (w *Watched) admit(another *waiter) {
	if room := cap(w.waiters); len(w.waiters) == room {
		w.waiters = slices.DeleteFunc(w.waiters, func(old *waiter) bool { return old.left.Load() })
		if len(w.waiters) > room/2 {
			w.waiters = slices.Grow(w.waiters, room)
		}
	}
	w.waiters = append(w.waiters, another)
}

// Changed returns a channel that is closed when w fires.
func (t *Watches) Changed(w *Watched) <-chan struct{} {
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

// A changeCall is made when a watch fires, while life lasts.
type changeCall struct {
	life context.Context
	f    func()
}

// Call makes w call f when it fires, or calls f now if it has. Any number of grants may follow each
// other on one node while the watch lasts, so the calls of those that have ended go as waiters do:
// see admit.
func (t *Watches) Call(w *Watched, life context.Context, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.fired.Load() {
		f()
		return
	}
	if room := cap(w.calls); len(w.calls) == room {
		w.calls = slices.DeleteFunc(w.calls, func(c changeCall) bool { return c.life.Err() != nil })
		if len(w.calls) > room/2 {
			w.calls = slices.Grow(w.calls, room)
		}
	}
	w.calls = append(w.calls, changeCall{life, f})
}

// Fired reports whether the watch has fired.
func (w *Watched) Fired() bool { return w.fired.Load() }

// fire ends a watch. The caller holds mu.
func (w *Watched) fire() {
	w.fired.Store(true)
	if w.changed != nil {
		close(w.changed)
	}
	for _, c := range w.calls {
		if c.life.Err() == nil {
			c.f()
		}
	}
	w.calls = nil
	for _, waiter := range w.waiters {
		waiter.wake()
	}
	w.waiters = nil
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
