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

// watchMode says how long a watch lasts and what it covers.
type watchMode uint8

const (
	watchOnce      watchMode = iota // until it fires
	watchNode                       // until removed
	watchRecursive                  // until removed, with everything below
)

// A watchTable knows which connections watch which paths. A server has two:
// one for the data and the existence of nodes, one for their children.
// A connection has at most one watch per path and table; the newest mode counts.
type watchTable struct {
	paths     map[string]map[*conn]watchMode
	conns     map[*conn]map[string]struct{}
	recursive int // watches of mode watchRecursive
	firing    []*conn
}

func newWatchTable() *watchTable {
	return &watchTable{
		paths: make(map[string]map[*conn]watchMode),
		conns: make(map[*conn]map[string]struct{}),
	}
}

func (t *watchTable) add(path string, c *conn, mode watchMode) {
	watchers := t.paths[path]
	if watchers == nil {
		watchers = make(map[*conn]watchMode)
		t.paths[path] = watchers
	}
	if watchers[c] == watchRecursive {
		t.recursive--
	}
	if mode == watchRecursive {
		t.recursive++
	}
	watchers[c] = mode

	paths := t.conns[c]
	if paths == nil {
		paths = make(map[string]struct{})
		t.conns[c] = paths
	}
	paths[path] = struct{}{}
}

// remove forgets one watch and reports whether there was one.
func (t *watchTable) remove(path string, c *conn) bool {
	mode, ok := t.paths[path][c]
	if !ok {
		return false
	}
	if mode == watchRecursive {
		t.recursive--
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

// removeAll forgets every watch of a connection.
func (t *watchTable) removeAll(c *conn) {
	for path := range t.conns[c] {
		t.remove(path, c)
	}
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

// fire tells the watchers of the path, and those that watch a parent
// recursively, of an event at a node with the given access control list. Who may not
// read the node hears nothing. A connection hears of one round once only.
func (t *watchTable) fire(path string, event eventType, list []acl, round uint64) {
	firing := t.firing[:0]
	for c, mode := range t.paths[path] {
		if mode == watchRecursive && event == eventChildrenChanged {
			continue // it hears of the child itself
		}
		if mode == watchOnce {
			t.remove(path, c)
		}
		if c.round != round {
			c.round = round
			firing = append(firing, c)
		}
	}
	if t.recursive > 0 && event != eventChildrenChanged {
		for parent := path; parent != "/"; {
			parent = parent[:strings.LastIndexByte(parent, '/')]
			if parent == "" {
				parent = "/"
			}
			for c, mode := range t.paths[parent] {
				if mode == watchRecursive && c.round != round {
					c.round = round
					firing = append(firing, c)
				}
			}
		}
	}
	// Map order is random, and the same history shall give the same run.
	slices.SortFunc(firing, func(a, b *conn) int { return cmp.Compare(a.serial, b.serial) })
	for _, c := range firing {
		if allowed(list, permRead, c.ids) {
			c.notify(event, path)
		}
	}
	clear(firing)
	t.firing = firing[:0]
}
