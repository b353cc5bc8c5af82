package protocol

import (
	"encoding/binary"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// MarkerSuffix makes the name of a node's marker, which says something about how the node was
// deleted.
//
// A transaction that first creates the marker, deletes it again, and then deletes the node leaves
// nothing that a client could see. But one that watches for the creation of the marker hears of
// that right before it hears of the deletion.
//
// What a marker means is up to the recipe that makes it. Only the client that deletes its own node
// can make its marker: what is read about the nodes of others may be out of date.
const MarkerSuffix = "-passed"

// ExpectMarker begins to watch for the marker of the node as well, if that can be done and the node
// has not changed. [Watch.Marked] reports the outcome. When the node is gone, the server is asked
// to remove that watch. ExpectMarker does not block. Call it after Ready.
func (w *Watch) ExpectMarker() { w.session.watches.watchMarker(w) }

// Marked reports whether [Watch.Deleted] does and the deletion made the node's marker.
func (w *Watch) Marked() bool { return w.Deleted() && w.shared.released }

// A markerWatch is a watch for the marker of a node. It is set by a request of our own, so that
// zk.Conn knows nothing of it and does not set it again over the next connection: it ends with the
// connection over which it was set.
type markerWatch struct {
	over *connection
	set  bool // the server has said so
}

// watchMarker sets the watch for the marker of a node if the node's own watch has been set over the
// present connection and has not fired.
func (t *watchTable) watchMarker(w *Watch) {
	over, node := t.session.connection(), w.node
	if over == nil || !w.sameConnection() {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.markers[node]; t.watches[node] != w.shared || t.listing || m != nil && m.over == over {
		return
	}

	m := &markerWatch{over: over}
	if t.markers == nil {
		t.markers = make(map[string]*markerWatch)
	}
	t.markers[node] = m

	t.session.client.spawn(func() {
		over.request(zkwire.OpExists, node+MarkerSuffix, []byte{1}, func(code zkwire.Code) {
			t.mu.Lock()
			defer t.mu.Unlock()
			switch current := t.markers[node] == m; {
			case code != zkwire.CodeOK && code != zkwire.CodeNoNode:
				if current {
					delete(t.markers, node) // the server has set no watch
				}
			case current:
				m.set = true
			default: // the node was gone before the watch was set
				t.remove(m, node)
			}
		})
	})
}

// unwatchMarker removes the watch for the marker of a node that is gone, or whose end would not be
// heard of. The caller holds mu.
func (t *watchTable) unwatchMarker(node string) {
	m := t.markers[node]
	delete(t.markers, node)
	if m != nil && m.set { // or else it is removed once it is set
		t.remove(m, node)
	}
}

// remove has the server forget a watch for a marker. If the connection ends first, the server has
// forgotten the watch with that. The caller holds mu.
func (t *watchTable) remove(m *markerWatch, node string) {
	const watchesOfData = 2 // which are those for the existence of a node, too
	kind := binary.BigEndian.AppendUint32(nil, watchesOfData)
	t.session.client.spawn(func() {
		m.over.request(zkwire.OpRemoveWatches, node+MarkerSuffix, kind, func(code zkwire.Code) { t.removed(m, code) })
	})
}

// removed notes how the server has answered to a request to remove a watch. Servers before 3.5 know
// no such request: they refuse it, or hang up. A session that has learnt this once expects no
// markers any more.
func (t *watchTable) removed(m *markerWatch, code zkwire.Code) {
	t.mu.Lock()
	refused := false
	switch code {
	case zkwire.CodeOK, zkwire.CodeNoWatcher: // it had fired
		t.unanswered = nil
	case zkwire.CodeConnectionLoss:
		t.listing = t.listing || t.unanswered != nil && t.unanswered != m.over // two in a row are no accident
		t.unanswered = m.over
	default:
		t.listing, refused = true, true
	}
	t.mu.Unlock()
	if refused {
		m.over.cut(errCannotRemove) // so the watches that are left go with the connection
	}
}

var errCannotRemove = errors.New("the server cannot remove watches")
