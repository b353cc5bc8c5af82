package recipe

import "github.com/zkrecipes/zkrecipes/internal/layout"

// MarkerSuffix is the end of the name of a node's marker. The marker says something about the
// deletion of the node.
//
// A transaction that creates the marker, deletes it again and then deletes the node leaves nothing
// that a read could find. But a client that watches for the marker gets the event of its creation
// right before the event of the deletion.
//
// Each recipe decides what its markers mean. Only the client that deletes its own node can make the
// marker because its reads about other clients' nodes can be out of date.
const MarkerSuffix = layout.MarkerSuffix

// ExpectMarker begins to watch for the marker of the node as well, if the server allows that and
// the node has not changed. [Watch.Marked] reports the outcome. When the node is gone, the client
// asks the server to remove that watch. ExpectMarker does not block. Call it after Ready.
func (w *Watch) ExpectMarker() { w.watches().ExpectMarker(w.node, w.shared) }

// Marked reports whether [Watch.Deleted] is true and the deletion made the node's marker.
func (w *Watch) Marked() bool { return w.Deleted() && w.shared.Released }
