package recipe

import "github.com/zkrecipes/zkrecipes/internal/layout"

// MarkerSuffix makes the name of a node's marker, which says something about how the node was
// deleted.
//
// A transaction that first creates the marker, deletes it again, and then deletes the node leaves
// nothing that a client could see. But one that watches for the creation of the marker hears of
// that right before it hears of the deletion.
//
// What a marker means is up to the recipe that makes it. Only the client that deletes its own node
// can make its marker: what is read about the nodes of others may be out of date.
const MarkerSuffix = layout.MarkerSuffix

// ExpectMarker begins to watch for the marker of the node as well, if that can be done and the node
// has not changed. [Watch.Marked] reports the outcome. When the node is gone, the server is asked
// to remove that watch. ExpectMarker does not block. Call it after Ready.
func (w *Watch) ExpectMarker() { w.session.bound.Conn.Watches.ExpectMarker(w.node, w.shared) }

// Marked reports whether [Watch.Deleted] does and the deletion made the node's marker.
func (w *Watch) Marked() bool { return w.Deleted() && w.shared.Released }
