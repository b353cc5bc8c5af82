package embedded

import (
	"cmp"
	"slices"
	"strings"
)

// eventType says what happened to a watched znode.
type eventType int32

const (
	eventCreated         eventType = 1
	eventDeleted         eventType = 2
	eventDataChanged     eventType = 3
	eventChildrenChanged eventType = 4
)

// watchMode says how long a watch lasts and which nodes it covers. In 3.9 a connection can have
// watches of several modes on a path. Its mode is then their sum.
type watchMode uint8

const (
	watchOnce      watchMode = 1 << iota // until it fires
	watchNode                            // until removed
	watchRecursive                       // until removed, on the node and all its descendants

	watchAny = watchOnce | watchNode | watchRecursive
)

// A watcher is a connection as the tables of watches know it.
type watcher struct {
	serial int        // order of arrival
	ids    []identity // what it may read depends on them
	addsUp bool       // a new watch on a path does not replace the watch before it (3.9)
	round  uint64     // of the last event
	notify func(event eventType, path string, zxid int64)
}

// A watchTable holds the watches of connections on paths. A server has two tables: one for the data
// and the existence of nodes, and one for their children.
type watchTable struct {
	paths     map[string]map[*watcher]watchMode
	conns     map[*watcher]map[string]struct{}
	recursive int // how many connections and paths have watchRecursive
	firing    []*watcher
}

func newWatchTable() *watchTable {
	return &watchTable{
		paths: make(map[string]map[*watcher]watchMode),
		conns: make(map[*watcher]map[string]struct{}),
	}
}

// add adds a watch. In 3.8 it replaces the connection's watch on the path.
func (t *watchTable) add(path string, c *watcher, mode watchMode) {
	if c.addsUp {
		mode |= t.paths[path][c]
	}
	// remove also corrects the number of recursive watches, so begin from none.
	t.remove(path, c, watchAny)

	watchers := t.paths[path]
	if watchers == nil {
		watchers = make(map[*watcher]watchMode)
		t.paths[path] = watchers
	}
	watchers[c] = mode

	if mode&watchRecursive != 0 {
		t.recursive++
	}

	paths := t.conns[c]
	if paths == nil {
		paths = make(map[string]struct{})
		t.conns[c] = paths
	}
	paths[path] = struct{}{}
}

// remove removes a connection's watches of some modes on a path, and reports whether there were
// any.
func (t *watchTable) remove(path string, c *watcher, modes watchMode) bool {
	had := t.paths[path][c]
	if had&modes == 0 {
		return false
	}

	if had&modes&watchRecursive != 0 {
		t.recursive--
	}
	if left := had &^ modes; left != 0 {
		t.paths[path][c] = left
		return true
	}

	delete(t.paths[path], c)
	if len(t.paths[path]) == 0 {
		delete(t.paths, path)
	}

	delete(t.conns[c], path)
	if len(t.conns[c]) == 0 {
		delete(t.conns, c)
	}
	return true
}

// removeAll removes every watch of a connection.
func (t *watchTable) removeAll(c *watcher) {
	for path := range t.conns[c] {
		t.remove(path, c, watchAny)
	}
}

// has reports whether a connection has a watch of one of these modes on a path.
func (t *watchTable) has(path string, c *watcher, modes watchMode) bool {
	return t.paths[path][c]&modes != 0
}

// watched reports whether any connection watches the path.
func (t *watchTable) watched(path string) bool { return len(t.paths[path]) > 0 }

// count returns the number of watches.
func (t *watchTable) count() int {
	n := 0
	for _, paths := range t.conns {
		n += len(paths)
	}
	return n
}

// fire sends an event of the transaction zxid at a node to the connections that watch its path, and
// to connections that watch an ancestor recursively. If a connection can't read the node (by the
// access control list), it gets nothing. A connection gets at most one event per round.
func (t *watchTable) fire(path string, event eventType, zxid int64, list []acl, round uint64) {
	firing := t.firing[:0]
	for c, mode := range t.paths[path] {
		if mode == watchRecursive && event == eventChildrenChanged {
			continue // it gets the child's own event
		}
		t.remove(path, c, watchOnce)
		if c.round != round {
			c.round = round
			firing = append(firing, c)
		}
	}

	// Recursive watches on ancestors get the child's event instead of childrenChanged.
	if t.recursive > 0 && event != eventChildrenChanged {
		for parent := path; parent != "/"; {
			parent = parent[:strings.LastIndexByte(parent, '/')]
			if parent == "" {
				parent = "/"
			}
			for c, mode := range t.paths[parent] {
				if mode&watchRecursive != 0 && c.round != round {
					c.round = round
					firing = append(firing, c)
				}
			}
		}
	}

	// Map order is random, but the same requests must have the same effects.
	slices.SortFunc(firing, func(a, b *watcher) int { return cmp.Compare(a.serial, b.serial) })
	for _, c := range firing {
		if allowed(list, permRead, c.ids) {
			c.notify(event, path, zxid)
		}
	}

	clear(firing)
	t.firing = firing[:0]
}
