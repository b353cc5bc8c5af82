package conn

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A markerWatch is a watch on the release marker of a node. Our own request sets it, so zk.Conn
// doesn't know about it and doesn't set it again: it ends with its connection.
type markerWatch struct {
	over *Link
	set  bool // the server has confirmed it
}

// ExpectMarker sets the watch on a node's marker, if the node's own watch (w) was set over the
// present connection and hasn't fired.
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

// unwatchMarker removes the watch on the marker of a node that is gone (or whose deletion could be
// missed). The caller holds mu.
func (t *Watches) unwatchMarker(node string) {
	m := t.markers[node]
	delete(t.markers, node)
	if m != nil && m.set { // otherwise ExpectMarker removes it once it is set
		t.remove(m, node)
	}
}

// remove asks the server to forget the watch on a marker. If the connection ends first, the watch
// is gone anyway. The caller holds mu.
func (t *Watches) remove(m *markerWatch, node string) {
	const watchesOfData = 2 // this includes watches on the existence of a node
	kind := binary.BigEndian.AppendUint32(nil, watchesOfData)
	t.conn.ensemble.Spawn(func() {
		m.over.Send(zkwire.OpRemoveWatches, node+layout.MarkerSuffix, kind, func(r Reply) { t.removed(m, r.Code) })
	})
}

// removed handles the answer to a request to remove a watch. Servers before 3.5 don't know that
// request. After the first such answer the client expects no more markers.
func (t *Watches) removed(m *markerWatch, code zkwire.Code) {
	switch code {
	case zkwire.CodeOK, zkwire.CodeNoWatcher, zkwire.CodeConnectionLoss: // it is gone, by now at the latest
	default:
		if code == zkwire.CodeUnimplemented {
			t.conn.ensemble.noMarkers.Store(true)
		}
		m.over.Cut(errCannotRemove) // the watches that are left go with the connection
	}
}

var errCannotRemove = errors.New("the server cannot remove watches")

// noteMarker sets released after the event e, and returns its former value. The caller holds mu.
func (t *Watches) noteMarker(e zk.Event) (before string) {
	before = t.released
	if e.Type == zk.EventNodeChildrenChanged { // the line's own event, from the same transaction
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
