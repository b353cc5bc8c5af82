package conn

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A markerWatch is a watch for the marker of a node. It is set by a request of our own, so that
// zk.Conn knows nothing of it and does not set it again over the next connection: it ends with the
// connection over which it was set.
type markerWatch struct {
	over *Link
	set  bool // the server has said so
}

// ExpectMarker sets the watch for the marker of a node if the node's own watch, w, has been set over
// the present connection and has not fired.
func (t *Watches) ExpectMarker(node string, w *Watched) {
	over := t.conn.Link()
	if over == nil || IsClosed(w.Reconnected) {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.markers[node]; t.watches[node] != w || t.conn.ensemble.noMarkers.Load() || m != nil && m.over == over {
		return
	}

	m := &markerWatch{over: over}
	if t.markers == nil {
		t.markers = make(map[string]*markerWatch)
	}
	t.markers[node] = m

	t.conn.ensemble.Spawn(func() {
		over.Send(zkwire.OpExists, node+layout.MarkerSuffix, []byte{1}, func(r Reply) {
			t.mu.Lock()
			defer t.mu.Unlock()
			switch current := t.markers[node] == m; {
			case r.Code != zkwire.CodeOK && r.Code != zkwire.CodeNoNode:
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
func (t *Watches) unwatchMarker(node string) {
	m := t.markers[node]
	delete(t.markers, node)
	if m != nil && m.set { // or else it is removed once it is set
		t.remove(m, node)
	}
}

// remove has the server forget a watch for a marker. If the connection ends first, the server has
// forgotten the watch with that. The caller holds mu.
func (t *Watches) remove(m *markerWatch, node string) {
	const watchesOfData = 2 // which are those for the existence of a node, too
	kind := binary.BigEndian.AppendUint32(nil, watchesOfData)
	t.conn.ensemble.Spawn(func() {
		m.over.Send(zkwire.OpRemoveWatches, node+layout.MarkerSuffix, kind, func(r Reply) { t.removed(m, r.Code) })
	})
}

// removed notes how the server has answered to a request to remove a watch. Servers before 3.5 know
// no such request. Once one has said so, the client expects no markers any more.
func (t *Watches) removed(m *markerWatch, code zkwire.Code) {
	switch code {
	case zkwire.CodeOK, zkwire.CodeNoWatcher, zkwire.CodeConnectionLoss: // gone, by now at the latest
	default:
		if code == zkwire.CodeUnimplemented {
			t.conn.ensemble.noMarkers.Store(true)
		}
		m.over.Cut(errCannotRemove) // so the watches that are left go with the connection
	}
}

var errCannotRemove = errors.New("the server cannot remove watches")

// noteMarker sets released according to e, and returns what it was before. The caller holds mu.
func (t *Watches) noteMarker(e zk.Event) (before string) {
	before = t.released
	if e.Type == zk.EventNodeChildrenChanged { // the line's own, in the same transaction
		return before
	}

	t.released = ""
	if node, ok := strings.CutSuffix(e.Path, layout.MarkerSuffix); ok && t.markers[node] != nil {
		delete(t.markers, node)
		if e.Type == zk.EventNodeCreated {
			t.released = node
		}
	}
	return before
}
