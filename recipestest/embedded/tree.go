package embedded

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Owners of containers and TTL nodes. The owner of a TTL node carries its time to live, in
// milliseconds, in the low bits.
const (
	ownerContainer int64 = math.MinInt64
	ownerTTLMask   int64 = -1 << 56
	maxTTL         int64 = 1<<40 - 1
)

// ephemeral reports whether an owner is a session.
func ephemeral(owner int64) bool {
	return owner != 0 && owner != ownerContainer && owner&ownerTTLMask != ownerTTLMask
}

// A node is one znode.
type node struct {
	path   string
	parent *node
	index  int // in the parent's children

	data                []byte
	acl                 []acl
	czxid, mzxid, pzxid int64
	ctime, mtime        int64 // in milliseconds
	version, aversion   int32
	creates             int32 // number of children ever created, and the next sequence number
	owner               int64
	children            []*node // in no particular order
}

func (n *node) name() string { return n.path[strings.LastIndexByte(n.path, '/')+1:] }

func (n *node) stat() stat {
	s := stat{
		czxid: n.czxid, mzxid: n.mzxid, pzxid: n.pzxid,
		ctime: n.ctime, mtime: n.mtime,
		version: n.version, aversion: n.aversion,
		// cversion counts creations and deletions: two for each child ever created, less one for
		// each that still exists.
		cversion:    n.creates*2 - int32(len(n.children)),
		dataLength:  int32(len(n.data)),
		numChildren: int32(len(n.children)),
	}

	if ephemeral(n.owner) {
		s.ephemeralOwner = n.owner
	}
	return s
}

// A tree holds the znodes of one server and the watches on them. Writes take two steps, as in the
// real server. First a view checks a write against the state that earlier prepared writes will
// leave, and turns it into a change that can't fail. Then apply makes the change and fires the
// watches. The trees of followers only apply changes.
type tree struct {
	zxid       int64
	nodes      map[string]*node // the root under "/" and ""
	ephemerals map[int64]map[*node]struct{}
	reapable   map[*node]struct{} // containers and TTL nodes
	data       *watchTable
	child      *watchTable
	round      uint64 // of watch events
	stats      []stat // of the nodes that the last transaction changed, one per change
}

func newTree() *tree {
	root := &node{path: "/", data: []byte{}, acl: openACL}
	t := treeOf(root)
	system := t.link(&node{path: "/zookeeper", data: []byte{}, acl: openACL}, root)
	t.link(&node{path: "/zookeeper/quota", data: []byte{}, acl: openACL}, system)
	t.link(&node{path: "/zookeeper/config", data: []byte{}, acl: readOnlyACL, aversion: -1}, system)
	return t
}

// treeOf returns a tree whose only node is root.
func treeOf(root *node) *tree {
	return &tree{
		nodes:      map[string]*node{"/": root, "": root},
		ephemerals: make(map[int64]map[*node]struct{}),
		reapable:   make(map[*node]struct{}),
		data:       newWatchTable(),
		child:      newWatchTable(),
	}
}

// clone returns a copy of the tree, without its watches.
func (t *tree) clone() *tree {
	root := t.nodes["/"]
	dup := treeOf(root.detached())
	dup.zxid = t.zxid

	var copyBelow func(from, to *node)
	copyBelow = func(from, to *node) {
		for _, child := range from.children {
			copyBelow(child, dup.link(child.detached(), to))
		}
	}

	copyBelow(root, dup.nodes["/"])
	return dup
}

// detached returns a copy of n without parent and children. Both share data and access control
// list, which are never modified in place.
func (n *node) detached() *node {
	dup := *n
	dup.parent, dup.children = nil, nil
	return &dup
}

// link adds n to the tree as a child of parent, and returns n.
func (t *tree) link(n, parent *node) *node {
	n.parent, n.index = parent, len(parent.children)
	parent.children = append(parent.children, n)
	t.nodes[n.path] = n

	switch {
	case ephemeral(n.owner):
		if t.ephemerals[n.owner] == nil {
			t.ephemerals[n.owner] = make(map[*node]struct{})
		}
		t.ephemerals[n.owner][n] = struct{}{}
	case n.owner != 0:
		t.reapable[n] = struct{}{}
	}

	return n
}

// unlink removes a node from the tree. The last sibling moves to its index.
func (t *tree) unlink(n *node) {
	siblings := n.parent.children
	last := siblings[len(siblings)-1]
	siblings[n.index], last.index = last, n.index
	siblings[len(siblings)-1] = nil
	n.parent.children = siblings[:len(siblings)-1]

	delete(t.nodes, n.path)
	if owned := t.ephemerals[n.owner]; owned != nil {
		delete(owned, n)
		if len(owned) == 0 {
			delete(t.ephemerals, n.owner)
		}
	}

	delete(t.reapable, n)
}

// createRequest is a request of any of the operations that create a node.
type createRequest struct {
	op    zkwire.Op
	path  string
	data  []byte
	acl   []acl
	flags int32
	ttl   int64 // -1 if the request has no such field
}

// The values of a create request's flags field.
const (
	flagsPersistent = iota
	flagsEphemeral
	flagsSequential
	flagsEphemeralSequential
	flagsContainer
	flagsTTL
	flagsSequentialTTL
	flagsEnd
)

// opSetSequence is the operation of a change that no client can request.
const opSetSequence zkwire.Op = -100

// A change is a write that was checked and can no longer fail.
type change struct {
	op      zkwire.Op // zkwire.OpCreate for every kind of creation
	path    string
	data    []byte
	acl     []acl
	owner   int64
	creates int32 // of the parent, by a creation; of the node, by opSetSequence
	version int32
}

// A record holds the properties of a node that the checks of a write need.
type record struct {
	version, creates, aversion int32
	children                   int
	owner                      int64
	acl                        []acl
}

// A view is the tree as it will be after the changes prepared so far (all of one transaction).
type view struct {
	*tree
	session int64
	ids     []identity

	enforceQuota bool

	pending map[string]*record // a nil entry is a deleted node; a nil map records nothing
}

// record returns the record of a node as it will be after the prepared changes, and whether it will
// exist.
func (v *view) record(path string) (record, bool) {
	if path == "" {
		path = "/"
	}

	if r, ok := v.pending[path]; ok {
		if r == nil {
			return record{}, false
		}
		return *r, true
	}

	n, ok := v.nodes[path]
	if !ok {
		return record{}, false
	}
	return record{n.version, n.creates, n.aversion, len(n.children), n.owner, n.acl}, true
}

// expect records the state of path after a prepared change: r, or no node if r is nil.
func (v *view) expect(path string, r *record) {
	if v.pending == nil {
		return
	}

	if path == "" {
		path = "/"
	}
	v.pending[path] = r
}

func (v *view) prepareCreate(r createRequest) (change, zkwire.Code) {
	// The checks are in the real server's order, which decides the error that a client gets.
	if r.flags < 0 || r.flags >= flagsEnd {
		return change{}, zkwire.CodeBadArguments
	}
	ttl := r.flags == flagsTTL || r.flags == flagsSequentialTTL
	if ttl && (r.ttl <= 0 || r.ttl > maxTTL) || !ttl && (r.ttl >= 0 || r.op == zkwire.OpCreateTTL) {
		return change{}, zkwire.CodeBadArguments
	}

	parentPath, ok := parentOf(r.path)
	if !ok {
		return change{}, zkwire.CodeBadArguments
	}

	list, c := resolveACL(r.acl, v.ids)
	if c != zkwire.CodeOK {
		return change{}, c
	}

	parent, ok := v.record(parentPath)
	if !ok {
		return change{}, zkwire.CodeNoNode
	}
	if !allowed(parent.acl, permCreate, v.ids) {
		return change{}, zkwire.CodeNoAuth
	}

	// A sequential node is named by the parent's counter.
	switch r.flags {
	case flagsSequential, flagsEphemeralSequential, flagsSequentialTTL:
		r.path = fmt.Sprintf("%s%010d", r.path, parent.creates)
	}

	if !validPath(r.path) {
		return change{}, zkwire.CodeBadArguments
	}
	if _, exists := v.record(r.path); exists {
		return change{}, zkwire.CodeNodeExists
	}

	if ephemeral(parent.owner) {
		return change{}, zkwire.CodeNoChildrenForEphemerals
	}
	if v.exceeds(r.path, 1, len(r.data)) {
		return change{}, zkwire.CodeQuotaExceeded
	}

	var owner int64
	switch {
	case r.op == zkwire.OpCreateContainer:
		owner = ownerContainer // the flags don't matter
	case ttl:
		owner = ownerTTLMask | r.ttl
	case r.flags == flagsEphemeral || r.flags == flagsEphemeralSequential:
		owner = v.session
	}

	// Later writes of this transaction find the new node.
	parent.creates++
	parent.children++
	v.expect(parentPath, &parent)
	v.expect(r.path, &record{owner: owner, acl: list})

	return change{
		op: zkwire.OpCreate, path: r.path, data: r.data, acl: list, owner: owner, creates: parent.creates,
	}, zkwire.CodeOK
}

func (v *view) prepareDelete(path string, version int32) (change, zkwire.Code) {
	parentPath, ok := parentOf(path)
	if !ok || systemPath(path) {
		return change{}, zkwire.CodeBadArguments
	}

	parent, ok := v.record(parentPath)
	if !ok {
		return change{}, zkwire.CodeNoNode
	}
	// To delete a node takes a permission on its parent.
	if !allowed(parent.acl, permDelete, v.ids) {
		return change{}, zkwire.CodeNoAuth
	}

	n, ok := v.record(path)
	switch {
	case !ok:
		return change{}, zkwire.CodeNoNode
	case version != -1 && version != n.version:
		return change{}, zkwire.CodeBadVersion
	case n.children > 0:
		return change{}, zkwire.CodeNotEmpty
	}

	parent.children--
	v.expect(parentPath, &parent)
	v.expect(path, nil)
	return change{op: zkwire.OpDelete, path: path}, zkwire.CodeOK
}

func (v *view) prepareSetData(path string, data []byte, version int32) (change, zkwire.Code) {
	n, c := v.writable(path, permWrite)
	if c != zkwire.CodeOK {
		return change{}, c
	}
	before := 0
	if old := v.nodes[path]; old != nil {
		before = len(old.data)
	}

	// As in the real server, the quota is checked before the version.
	if v.exceeds(path, 0, len(data)-before) {
		return change{}, zkwire.CodeQuotaExceeded
	}
	if version != -1 && version != n.version {
		return change{}, zkwire.CodeBadVersion
	}

	n.version++
	v.expect(path, &n)
	return change{op: zkwire.OpSetData, path: path, data: data, version: n.version}, zkwire.CodeOK
}

func (v *view) prepareSetACL(path string, list []acl, version int32) (change, zkwire.Code) {
	if !validPath(path) {
		return change{}, zkwire.CodeBadArguments
	}

	list, c := resolveACL(list, v.ids)
	if c != zkwire.CodeOK {
		return change{}, c
	}

	n, c := v.writable(path, permAdmin)
	if c != zkwire.CodeOK {
		return change{}, c
	}
	if version != -1 && version != n.aversion {
		return change{}, zkwire.CodeBadVersion
	}

	// No later write can depend on this change, because a transaction can't have a setACL.
	return change{op: zkwire.OpSetACL, path: path, acl: list, version: n.aversion + 1}, zkwire.CodeOK
}

func (v *view) prepareCheck(path string, version int32) (change, zkwire.Code) {
	n, c := v.writable(path, permRead)
	if c != zkwire.CodeOK {
		return change{}, c
	}
	if version != -1 && version != n.version {
		return change{}, zkwire.CodeBadVersion
	}
	return change{op: zkwire.OpCheck, path: path}, zkwire.CodeOK
}

// writable returns the record of the node at path if the client has any of the permissions on it.
func (v *view) writable(path string, perms int32) (record, zkwire.Code) {
	if !validPath(path) {
		return record{}, zkwire.CodeBadArguments
	}
	n, ok := v.record(path)
	if !ok {
		return record{}, zkwire.CodeNoNode
	}
	if !allowed(n.acl, perms, v.ids) {
		return record{}, zkwire.CodeNoAuth
	}
	return n, zkwire.CodeOK
}

// apply makes a change with the tree's current zxid, and returns the stat of the created or changed
// node.
func (t *tree) apply(ch change, now int64) stat {
	switch ch.op {
	case zkwire.OpCreate:
		return t.create(ch, now)
	case zkwire.OpDelete:
		t.delete(t.nodes[ch.path])
	case zkwire.OpSetData:
		n := t.nodes[ch.path]
		t.count(ch.path, 0, len(ch.data)-len(n.data))
		n.data, n.version, n.mzxid, n.mtime = ch.data, ch.version, t.zxid, now
		s := n.stat()
		t.fire(t.data, n, eventDataChanged)
		return s
	case zkwire.OpSetACL:
		n := t.nodes[ch.path]
		n.acl, n.aversion = ch.acl, ch.version
		return n.stat()
	case opSetSequence:
		t.nodes[ch.path].creates = ch.creates
	}

	return stat{}
}

func (t *tree) create(ch change, now int64) stat {
	parentPath, _ := parentOf(ch.path) // prepareCreate or the loader has checked the path
	parent := t.nodes[parentPath]

	// The counter never decreases, not even by overflow. At its end, both the counter and the
	// parent's pzxid stay the same.
	if ch.creates == -1 {
		ch.creates = parent.creates + 1
	}
	if ch.creates > parent.creates {
		parent.creates, parent.pzxid = ch.creates, t.zxid
	}

	n := t.link(&node{
		path: ch.path, data: ch.data, acl: ch.acl, owner: ch.owner,
		czxid: t.zxid, mzxid: t.zxid, pzxid: t.zxid, ctime: now, mtime: now,
	}, parent)
	// Take the stat before counting, which can replace the data of a quota's node.
	s := n.stat()
	t.count(n.path, 1, len(n.data))
	t.countAll(n)
	t.fire(t.data, n, eventCreated)
	t.fire(t.child, parent, eventChildrenChanged)
	return s
}

func (t *tree) delete(n *node) {
	t.unlink(n)
	t.count(n.path, -1, -len(n.data))
	n.parent.pzxid = max(n.parent.pzxid, t.zxid)
	t.fire(t.data, n, eventDeleted)
	t.child.fire(n.path, eventDeleted, t.zxid, n.acl, t.round) // in the same round, so that a connection gets one event
	t.fire(t.child, n.parent, eventChildrenChanged)
}

// fire starts a new round of events and fires the watches of one table on n.
func (t *tree) fire(table *watchTable, n *node, event eventType) {
	t.round++
	table.fire(n.path, event, t.zxid, n.acl, t.round)
}

// deletions returns the changes that delete a session's ephemeral nodes.
func (t *tree) deletions(id int64) []change {
	var changes []change
	for _, path := range t.ephemeralsOf(id) {
		changes = append(changes, change{op: zkwire.OpDelete, path: path})
	}
	return changes
}

// ephemeralsOf returns the sorted paths of a session's ephemeral nodes.
func (t *tree) ephemeralsOf(id int64) []string {
	paths := make([]string, 0, len(t.ephemerals[id]))
	for n := range t.ephemerals[id] {
		paths = append(paths, n.path)
	}
	slices.Sort(paths)
	return paths
}

// due returns the containers that have lost their last child, and the TTL nodes whose time has run
// out.
func (t *tree) due(now int64) []string {
	var due []string
	for n := range t.reapable {
		if len(n.children) > 0 {
			continue
		}
		if n.owner == ownerContainer && n.creates > 0 ||
			n.owner != ownerContainer && now-n.mtime > n.owner&maxTTL {
			due = append(due, n.path)
		}
	}

	// Map order is random, but the same requests must have the same effects.
	slices.Sort(due)
	return due
}

// quotaOf returns the path of the nearest node (at path or above it) that has a quota, or "".
func (t *tree) quotaOf(path string) string {
	if root := t.nodes[quotaRoot]; root == nil || len(root.children) == 0 {
		return "" // the usual case, at no cost
	}
	for path != "" && t.nodes[quotaRoot+path+quotaLimits] == nil {
		path, _ = parentOf(path) // of a node that exists
	}
	return path
}

// exceeds reports whether a write at path that adds so many nodes and bytes exceeds a quota.
// Earlier writes of the same transaction don't count (as in a real server).
func (v *view) exceeds(path string, nodes, bytes int) bool {
	if !v.enforceQuota {
		return false
	}
	limited := quotaRoot + v.quotaOf(path)
	stats := v.nodes[limited+quotaStats]
	if limited == quotaRoot || stats == nil {
		return false
	}
	used, limits := parseQuota(stats.data), parseQuota(v.nodes[limited+quotaLimits].data)
	return limits.refuses("countHardLimit", used["count"], int64(nodes)) ||
		limits.refuses("byteHardLimit", used["bytes"], int64(bytes))
}

// count counts nodes and bytes that were added at path in the quota above it.
func (t *tree) count(path string, nodes, bytes int) {
	if limited := t.quotaOf(path); limited != "" {
		if stats := t.nodes[quotaRoot+limited+quotaStats]; stats != nil {
			used := parseQuota(stats.data)
			stats.setUsed(used["count"]+int64(nodes), used["bytes"]+int64(bytes))
		}
	}
}

// countAll counts the existing nodes when n is created to count them.
func (t *tree) countAll(n *node) {
	path, isStats := strings.CutSuffix(n.path, quotaStats)
	limited := t.nodes[strings.TrimPrefix(path, quotaRoot)]
	if !isStats || !strings.HasPrefix(path, quotaRoot+"/") {
		return
	}
	var nodes, bytes int64
	var visit func(*node)
	visit = func(n *node) {
		nodes, bytes = nodes+1, bytes+int64(len(n.data))
		for _, child := range n.children {
			visit(child)
		}
	}

	if limited != nil {
		visit(limited)
	}
	n.setUsed(nodes, bytes)
}

// setUsed changes the data that a client reads, without a trace in the node's stat.
func (n *node) setUsed(nodes, bytes int64) {
	n.data = fmt.Appendf(nil, "count=%d,bytes=%d", nodes, bytes)
}
