package embedded

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A state is everything that a server keeps across restarts.
type state struct {
	tree        *tree
	sessions    map[int64]*session
	nextSession int64
}

// snapshot returns a copy of the server's state. The caller holds mu.
func (s *Server) snapshot() *state {
	st := &state{tree: s.tree.clone(), sessions: make(map[int64]*session), nextSession: s.nextSession}
	for id, ss := range s.sessions {
		st.sessions[id] = &session{id: id, password: ss.password, timeout: ss.timeout}
	}
	return st
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

	yield(zkwire.AppendInt64(zkwire.AppendInt32(b[:0], entryEnd), st.nextSession))
}

// A loader builds a state from a snapshot and logs.
type loader struct {
	state
	complete bool             // the end of the snapshot has been read
	lists    map[string][]acl // by their encoding, so that equal lists share memory
}

func newLoader() *loader {
	return &loader{
		state: state{sessions: make(map[int64]*session)},
		lists: make(map[string][]acl),
	}
}

// entries loads a payload of a snapshot.
func (l *loader) entries(payload []byte) error {
	d := &decoder{zkwire.Decoder{Rest: payload}}
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
			l.nextSession = d.Int64()
			l.complete = l.tree != nil
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
	parentPath, _, _ := splitPath(path)
	parent := l.tree.nodes[parentPath]
	if !validPath(path) || parent == nil || l.tree.nodes[path] != nil {
		return nil, fmt.Errorf("there is no place for the node %q", path)
	}
	return parent, nil
}

// transactions loads a payload of a log.
func (l *loader) transactions(payload []byte) error {
	d := &decoder{zkwire.Decoder{Rest: payload}}
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
			if err := l.fits(ch); err != nil {
				return fmt.Errorf("transaction %#x: %w", x.zxid, err)
			}
			l.tree.apply(ch, x.at.UnixMilli())
		}
		if ss := x.began; ss != nil {
			l.sessions[ss.id] = ss
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

func appendSession(b []byte, ss *session) []byte {
	b = zkwire.AppendBuffer(zkwire.AppendInt64(b, ss.id), ss.password[:])
	return zkwire.AppendInt64(b, ss.timeout.Milliseconds())
}

func (d *decoder) session() *session {
	ss := &session{id: d.Int64()}
	if copy(ss.password[:], d.Buffer()) != len(ss.password) {
		d.Bad = true
	}
	ss.timeout = time.Duration(d.Int64()) * time.Millisecond
	return ss
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

func appendTransaction(b []byte, x transaction) []byte {
	b = zkwire.AppendInt64(zkwire.AppendInt64(b, x.zxid), x.at.UnixMilli())

	b = zkwire.AppendBool(b, x.began != nil)
	if x.began != nil {
		b = appendSession(b, x.began)
	}
	b = zkwire.AppendBool(b, x.ended != nil)
	if x.ended != nil {
		b = zkwire.AppendInt64(b, x.ended.id)
	}

	b = zkwire.AppendInt32(b, int32(len(x.changes)))
	for _, ch := range x.changes {
		b = zkwire.AppendString(zkwire.AppendInt32(b, int32(ch.op)), ch.path)
		switch ch.op {
		case zkwire.OpCreate:
			b = appendACLs(zkwire.AppendBuffer(b, ch.data), ch.acl)
			b = zkwire.AppendInt32(zkwire.AppendInt64(b, ch.owner), ch.creates)
		case zkwire.OpSetData:
			b = zkwire.AppendInt32(zkwire.AppendBuffer(b, ch.data), ch.version)
		case zkwire.OpSetACL:
			b = zkwire.AppendInt32(appendACLs(b, ch.acl), ch.version)
		case opSetSequence:
			b = zkwire.AppendInt32(b, ch.creates)
		}
	}

	return b
}

// transaction returns the next transaction. The caller checks d.Bad.
func (l *loader) transaction(d *decoder) transaction {
	x := transaction{zxid: d.Int64(), at: time.UnixMilli(d.Int64())}
	if d.Bool() {
		x.began = d.session()
	}
	if d.Bool() {
		x.ended = &session{id: d.Int64()}
	}

	d.Vector(func() {
		ch := change{op: zkwire.Op(d.Int32()), path: d.String()}
		switch ch.op {
		case zkwire.OpCreate:
			ch.data, ch.acl = d.Buffer(), l.list(d)
			ch.owner, ch.creates = d.Int64(), d.Int32()
		case zkwire.OpSetData:
			ch.data, ch.version = d.Buffer(), d.Int32()
		case zkwire.OpSetACL:
			ch.acl, ch.version = l.list(d), d.Int32()
		case opSetSequence:
			ch.creates = d.Int32()
		}
		x.changes = append(x.changes, ch)
	})
	return x
}
