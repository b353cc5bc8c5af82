package embedded

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A state is everything that a server keeps across restarts.
type state struct {
	tree        *tree
	sessions    map[int64]sessionRecord
	nextSession int64
}

// The kinds of a snapshot's entries.
const (
	entryNode int32 = iota + 1
	entrySession
	entryEnd // the last one
)

// entries yields the entries of a snapshot: the nodes (parents before their children), the
// sessions, and an end. An entry is valid until the next entry.
func (st *state) entries(yield func([]byte) bool) {
	var b []byte
	var nodes func(n *node) bool
	nodes = func(n *node) bool {
		b = appendNode(zkwire.AppendInt32(b[:0], entryNode), n)
		if !yield(b) {
			return false
		}
		for _, child := range n.children {
			if !nodes(child) {
				return false
			}
		}
		return true
	}

	if !nodes(st.tree.nodes["/"]) {
		return
	}

	for _, id := range slices.Sorted(maps.Keys(st.sessions)) {
		b = appendSession(zkwire.AppendInt32(b[:0], entrySession), st.sessions[id])
		if !yield(b) {
			return
		}
	}

	b = zkwire.AppendInt64(zkwire.AppendInt32(b[:0], entryEnd), st.nextSession)
	yield(zkwire.AppendInt64(b, st.tree.zxid))
}

// A loader builds a state from a snapshot and the transactions since.
type loader struct {
	state
	complete bool             // the end of the snapshot has been read
	lists    map[string][]acl // by their encoding, so that equal lists share memory
}

func newLoader() *loader {
	return &loader{
		state: state{sessions: make(map[int64]sessionRecord)},
		lists: make(map[string][]acl),
	}
}

// load loads a payload of a data file.
func (l *loader) load(payload []byte) error {
	d := &decoder{zkwire.Decoder{Rest: payload}}
	if l.complete {
		return l.transactions(d)
	}
	for len(d.Rest) > 0 {
		if l.complete {
			return fmt.Errorf("there are entries after the end")
		}

		switch kind := d.Int32(); kind {
		case entryNode:
			if err := l.node(d); err != nil {
				return err
			}
		case entrySession:
			ss := d.session()
			l.sessions[ss.id] = ss
		case entryEnd:
			if l.tree == nil {
				return fmt.Errorf("the snapshot has no root")
			}
			l.nextSession, l.tree.zxid = d.Int64(), d.Int64()
			l.complete = true
		default:
			return fmt.Errorf("an entry is of unknown kind %d", kind)
		}
		if d.Bad {
			return zkwire.ErrMalformed
		}
	}

	return nil
}

func (l *loader) node(d *decoder) error {
	n := &node{path: d.String(), data: d.Buffer(), acl: l.list(d)}
	n.czxid, n.mzxid, n.pzxid = d.Int64(), d.Int64(), d.Int64()
	n.ctime, n.mtime = d.Int64(), d.Int64()
	n.version, n.aversion, n.creates = d.Int32(), d.Int32(), d.Int32()
	n.owner = d.Int64()
	if d.Bad {
		return zkwire.ErrMalformed
	}

	if l.tree == nil {
		if n.path != "/" {
			return fmt.Errorf("the first node is %q and not the root", n.path)
		}
		l.tree = treeOf(n)
		return nil
	}

	parent, err := l.placeFor(n.path)
	if err != nil {
		return err
	}
	l.tree.link(n, parent)
	return nil
}

// placeFor returns the parent of a node that will be created.
func (l *loader) placeFor(path string) (*node, error) {
	parentPath, _ := parentOf(path) // of a valid path, or there is no place
	parent := l.tree.nodes[parentPath]
	if !validPath(path) || parent == nil || l.tree.nodes[path] != nil {
		return nil, fmt.Errorf("there is no place for the node %q", path)
	}
	return parent, nil
}

func (l *loader) transactions(d *decoder) error {
	for len(d.Rest) > 0 {
		x := l.transaction(d)
		switch {
		case d.Bad:
			return zkwire.ErrMalformed
		case x.zxid != l.tree.zxid+1:
			return fmt.Errorf("transaction %#x follows %#x", x.zxid, l.tree.zxid)
		}

		l.tree.zxid = x.zxid
		for _, ch := range x.changes {
			// apply would panic on a change that doesn't fit (a good checksum only proves that it
			// was written like this).
			if err := l.fits(ch); err != nil {
				return fmt.Errorf("transaction %#x: %w", x.zxid, err)
			}
			l.tree.apply(ch, x.at.UnixMilli())
		}
		if ss := x.began; ss != nil {
			l.sessions[ss.id] = *ss
			l.nextSession = ss.id + 1
		}
		if x.ended != nil {
			delete(l.sessions, x.ended.id)
		}
	}

	return nil
}

// fits returns an error for a change that the tree cannot make.
func (l *loader) fits(ch change) error {
	switch ch.op {
	case zkwire.OpCheck:
		return nil
	case zkwire.OpCreate:
		_, err := l.placeFor(ch.path)
		return err
	case zkwire.OpDelete:
		if n := l.tree.nodes[ch.path]; n != nil && (systemPath(ch.path) || len(n.children) > 0) {
			return fmt.Errorf("the node %q cannot be deleted", ch.path)
		}
	case zkwire.OpSetData, zkwire.OpSetACL, opSetSequence:
	default:
		return fmt.Errorf("a change is of unknown kind %d", ch.op)
	}

	if ch.path == "" || l.tree.nodes[ch.path] == nil {
		return fmt.Errorf("there is no node %q", ch.path)
	}
	return nil
}

func appendNode(b []byte, n *node) []byte {
	b = zkwire.AppendBuffer(zkwire.AppendString(b, n.path), n.data)
	b = appendACLs(b, n.acl)
	for _, v := range []int64{n.czxid, n.mzxid, n.pzxid, n.ctime, n.mtime} {
		b = zkwire.AppendInt64(b, v)
	}
	for _, v := range []int32{n.version, n.aversion, n.creates} {
		b = zkwire.AppendInt32(b, v)
	}
	return zkwire.AppendInt64(b, n.owner)
}

// list returns the next access control list.
func (l *loader) list(d *decoder) []acl {
	before := d.Rest
	list := d.acls()
	if d.Bad {
		return nil
	}
	encoded := string(before[:len(before)-len(d.Rest)])
	if shared, ok := l.lists[encoded]; ok {
		return shared
	}
	l.lists[encoded] = list
	return list
}
