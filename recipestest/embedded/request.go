package embedded

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// request executes one request, queues its answer, and reports whether the connection goes on.
func (s *Server) request(c *conn, frame []byte) bool {
	d := &decoder{zkwire.Decoder{Rest: frame}}
	xid, op := d.Int32(), zkwire.Op(d.Int32())
	if d.Bad {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return false
	}

	c.received++
	s.received++
	// An eager refusal needs no leader, so even a server that is cut off gives it.
	refusal := s.refuseEagerly(c, op, *d)
	if refusal == zkwire.CodeOK && (c.stuck || c.follower != nil && !c.follower.answers(op)) {
		c.stuck = true // later requests of a session wait for earlier requests
		return true
	}

	if !s.admit(c, op == zkwire.OpSync || forwarded(op)) {
		return false
	}

	// Authentication needs no credentials and doesn't keep the session alive.
	switch op {
	case zkwire.OpAuth:
		return s.authenticate(c, xid, d)
	case zkwire.OpSASL:
		// A server without SASL accepts any token.
		if d.Buffer(); d.Bad {
			return false
		}
		s.answer(c, xid, 0, zkwire.CodeOK, zkwire.AppendInt32(s.reply(), -1))
		return true
	}

	if s.cfg.EnforceAuth && !slices.ContainsFunc(c.ids, func(id identity) bool { return id.scheme == "digest" }) {
		s.answer(c, xid, 0, zkwire.CodeAuthRequired, s.reply())
		return false
	}

	if c.follower != nil {
		c.follower.hear(c.session)
	} else {
		s.touch(c.session)
	}
	c.lastOp = op

	switch {
	case refusal != zkwire.CodeOK:
		s.answer(c, xid, 0, refusal, s.reply()) // even before answers that are deferred
	case op == zkwire.OpCreateContainer && s.cfg.NoContainers || op == zkwire.OpCheck && s.cfg.is39():
		return s.unknown(c, xid, op)
	case op == zkwire.OpSync:
		s.sync(c, xid, d)
	case forwarded(op):
		s.propose(c, xid, op, d)
	case len(c.deferred) > 0:
		// A read must not overtake the answers before it.
		c.postpone(deferred{xid: xid, op: op, request: bytes.Clone(d.Rest)})
	default:
		return s.answerRead(c, xid, op, d)
	}

	// The connection of a closed session ends after its last answer.
	if op != zkwire.OpCloseSession {
		return true
	}
	last := len(c.deferred) - 1
	if last >= 0 {
		c.deferred[last].last = true
	}

	return last >= 0
}

// refuseEagerly returns the error with which a connection's server refuses a write by itself. d is
// a copy, so the request can still be decoded.
func (s *Server) refuseEagerly(c *conn, op zkwire.Op, d decoder) zkwire.Code {
	if !s.cfg.EagerACL {
		return zkwire.CodeOK
	}

	path := d.String()
	parent, ok := parentOf(path)
	ok = ok && !systemPath(path)
	var perms int32
	var list []acl
	// A real server checks only these early (not multi and not the newer kinds of create).
	switch op {
	case zkwire.OpCreate, zkwire.OpCreate2:
		d.Buffer()
		path, perms, list = parent, permCreate, d.acls()
	case zkwire.OpDelete:
		path, perms = parent, permDelete
	case zkwire.OpSetData:
		perms, ok = permWrite, true
	case zkwire.OpSetACL:
		perms, list, ok = permAdmin, d.acls(), true
	default:
		return zkwire.CodeOK
	}

	// The leader answers these.
	if d.Bad || !ok {
		return zkwire.CodeOK
	}

	if op != zkwire.OpDelete && op != zkwire.OpSetData {
		if _, result := resolveACL(list, c.ids); result != zkwire.CodeOK {
			return result
		}
	}
	// This server may lag, so a missing node proves nothing.
	if n := c.tree.nodes[path]; n != nil && !allowed(n.acl, perms, c.ids) {
		return zkwire.CodeNoAuth
	}

	return zkwire.CodeOK
}

// reply returns an empty answer with room for the header. All answers share one buffer: it belongs
// to the caller until answer has sent it.
func (s *Server) reply() []byte {
	b := s.replyBuf
	s.replyBuf = nil
	if cap(b) < zkwire.ReplyBody {
		b = make([]byte, 0, 512)
	}
	return b[:zkwire.ReplyBody]
}

// answer sends a reply. A client of a follower gets it once the follower has applied zxid.
func (s *Server) answer(c *conn, xid int32, zxid int64, result zkwire.Code, frame []byte) {
	zkwire.PutReplyHeader(frame, zkwire.ReplyHeader{Xid: xid, Zxid: zxid, Code: result})
	c.lastXID, c.lastZxid = xid, zxid
	c.sendAfter(zxid, frame)
	if cap(frame) <= keepBuffers {
		s.replyBuf = frame
	}
}

// authenticate adds an identity to a connection, or refuses it and ends the connection.
func (s *Server) authenticate(c *conn, xid int32, d *decoder) bool {
	d.Int32() // type, unused
	scheme, _ := d.NullableString()
	credentials := d.Buffer()
	if d.Bad {
		return false
	}

	var id identity
	switch {
	case scheme == "ip":
		// The address was proved when the client connected.
		id = c.ids[0]
	case scheme == "digest" && credentials != nil && len(c.ids) < maxIdentities:
		id = digestIdentity(credentials)
	default:
		s.answer(c, xid, 0, zkwire.CodeAuthFailed, s.reply())
		return false
	}

	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	s.answer(c, xid, 0, zkwire.CodeOK, s.reply())
	return true
}

// forwarded reports whether a follower passes the request on to the leader.
func forwarded(op zkwire.Op) bool {
	switch op {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpCheck,
		zkwire.OpMulti, zkwire.OpCloseSession, zkwire.OpReconfig, zkwire.OpDeleteContainer:
		return true
	}
	return false
}

// sync answers once the connection's server has applied everything that the leader has committed by
// now (or less: see AnswerSyncsAtOnce).
func (s *Server) sync(c *conn, xid int32, d *decoder) {
	b, result := s.reply(), zkwire.CodeOK
	if path, ok := d.NullableString(); ok {
		b = zkwire.AppendString(b, javaString(path))
	} else {
		b = zkwire.AppendBuffer(b, nil)
	}
	if d.Bad {
		b, result = b[:zkwire.ReplyBody], zkwire.CodeMarshallingError
	}

	s.answer(c, xid, s.syncTo(c), result, b)
}

// javaString returns s as a server in Java writes it: a character that takes two of Java's chars
// becomes six bytes.
func javaString(s string) string {
	var b []byte
	for _, r := range s {
		high, low := utf16.EncodeRune(r)
		if high == utf8.RuneError {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, c := range []rune{high, low} {
			b = append(b, 0xe0|byte(c>>12), 0x80|byte(c>>6)&0x3f, 0x80|byte(c)&0x3f)
		}
	}
	return string(b)
}

// propose executes a request on the leader. It consumes a zxid even if it fails.
func (s *Server) propose(c *conn, xid int32, op zkwire.Op, d *decoder) {
	before := s.tree.zxid
	b, result := s.reply(), zkwire.CodeOK

	switch {
	case op == zkwire.OpCloseSession:
		s.endSession(c.session, false)
	case s.sessions[c.session.id] != c.session:
		result = zkwire.CodeSessionExpired // the connection's follower hasn't applied the expiry yet
	case op == zkwire.OpMulti:
		b, result = s.multi(c, d, b)
	case op == zkwire.OpReconfig:
		for range 3 { // joining, leaving and new members
			d.NullableString()
		}
		if d.Int64(); d.Bad {
			// This failure consumes no zxid (in a real server neither).
			s.answer(c, xid, before, zkwire.CodeMarshallingError, b)
			return
		}
		result = zkwire.CodeReconfigDisabled
	case op == zkwire.OpDeleteContainer: // only the server itself may send it
		result = zkwire.CodeBadArguments
	default:
		b, result = s.write(c, op, d, b)
	}

	// In a real server, a failed write is a transaction too.
	if s.tree.zxid == before {
		s.commit(transaction{})
	}
	if result != zkwire.CodeOK {
		b = b[:zkwire.ReplyBody]
	}

	s.answer(c, xid, s.tree.zxid, result, b)

	// The write may have created the first container or TTL node.
	s.scheduleReaping()
	s.wakeBefore(s.reapAt)
}

// write executes a request that changes one node.
func (s *Server) write(c *conn, op zkwire.Op, d *decoder, b []byte) ([]byte, zkwire.Code) {
	v := &view{tree: s.tree, session: c.session.id, ids: c.ids, enforceQuota: s.cfg.EnforceQuota}
	prepare := v.decodeWrite(op, d)
	if d.Bad {
		return b, zkwire.CodeMarshallingError
	}

	ch, result := prepare()
	if result != zkwire.CodeOK {
		return b, result
	}

	st := s.commit(transaction{changes: []change{ch}})[0]
	switch op {
	case zkwire.OpCreate:
		b = zkwire.AppendString(b, ch.path)
	case zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		b = appendStat(zkwire.AppendString(b, ch.path), st)
	case zkwire.OpSetData, zkwire.OpSetACL:
		b = appendStat(b, st)
	case zkwire.OpCheck:
		b = appendStat(b, s.tree.nodes[ch.path].stat())
	}

	return b, zkwire.CodeOK
}

// decodeWrite reads a write and returns the function that checks it.
func (v *view) decodeWrite(op zkwire.Op, d *decoder) (prepare func() (change, zkwire.Code)) {
	path := d.String()
	switch op {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		r := createRequest{op: op, path: path, data: d.Buffer(), acl: d.acls(), flags: d.Int32(), ttl: -1}
		if op == zkwire.OpCreateTTL {
			r.ttl = d.Int64()
		}
		return func() (change, zkwire.Code) { return v.prepareCreate(r) }
	case zkwire.OpDelete:
		version := d.Int32()
		return func() (change, zkwire.Code) { return v.prepareDelete(path, version) }
	case zkwire.OpSetData:
		data, version := d.Buffer(), d.Int32()
		return func() (change, zkwire.Code) { return v.prepareSetData(path, data, version) }
	case zkwire.OpSetACL:
		list, version := d.acls(), d.Int32()
		return func() (change, zkwire.Code) { return v.prepareSetACL(path, list, version) }
	default: // zkwire.OpCheck
		version := d.Int32()
		return func() (change, zkwire.Code) { return v.prepareCheck(path, version) }
	}
}

// answerRead executes a request that changes no node, on the tree that the connection reads. It
// reports whether the connection goes on.
func (s *Server) answerRead(c *conn, xid int32, op zkwire.Op, d *decoder) bool {
	b, result, known := s.read(c, op, d, s.reply())
	switch {
	case !known:
		return s.unknown(c, xid, op)
	case d.Bad:
		result = zkwire.CodeMarshallingError
	}

	if result != zkwire.CodeOK {
		b = b[:zkwire.ReplyBody]
	}

	// The answer to a ping has this xid, whatever xid the request had.
	if op == zkwire.OpPing {
		xid = zkwire.XidPing
	}

	if len(b) > maxReply {
		return false
	}

	s.answer(c, xid, c.tree.zxid, result, b)
	return true
}

// unknown answers a request with an operation that the server doesn't know, and ends the
// connection.
func (s *Server) unknown(c *conn, xid int32, op zkwire.Op) bool {
	s.log.Debug("unknown request", "opcode", op, "session", c.session.id)
	s.answer(c, xid, -1, zkwire.CodeUnimplemented, s.reply())
	return false
}

// read executes a request that changes no node, and appends the body of its answer. known is false
// if it doesn't know the operation. The caller must check d.Bad.
func (s *Server) read(c *conn, op zkwire.Op, d *decoder, b []byte) (_ []byte, result zkwire.Code, known bool) {
	t := c.tree
	switch op {
	case zkwire.OpPing:

	case zkwire.OpExists:
		path, watch := d.String(), d.Bool()
		if d.Bad {
			break
		}
		if strings.IndexByte(path, 0) >= 0 {
			result = zkwire.CodeBadArguments
			break
		}
		n := t.nodes[path]
		// 3.8 answers exists without a permission.
		if n != nil && s.cfg.is39() && !allowed(n.acl, permRead, c.ids) {
			result = zkwire.CodeNoAuth
			break
		}
		// exists sets its watch even if there is no node, to await its creation.
		if watch {
			t.data.add(path, &c.watcher, watchOnce)
		}
		if n == nil {
			result = zkwire.CodeNoNode
			break
		}
		b = appendStat(b, n.stat())

	case zkwire.OpGetData:
		path, watch := d.String(), d.Bool()
		if d.Bad {
			break
		}
		b, result = s.getData(c, path, watch, b)

	case zkwire.OpGetChildren, zkwire.OpGetChildren2:
		path, watch := d.String(), d.Bool()
		if d.Bad {
			break
		}
		b, result = s.getChildren(c, path, watch, op == zkwire.OpGetChildren2, b)

	case zkwire.OpCountChildren:
		path := d.String()
		n, fault := s.readable(c, path, permRead)
		if fault != zkwire.CodeOK {
			result = fault
			break
		}
		b = zkwire.AppendInt32(b, t.descendants(n))

	case zkwire.OpGetACL:
		n, fault := s.readable(c, d.String(), permRead|permAdmin)
		if fault != zkwire.CodeOK {
			result = fault
			break
		}
		list := n.acl
		if !allowed(list, permAdmin, c.ids) {
			list = maskDigests(list)
		}
		b = appendStat(appendACLs(b, list), n.stat())

	case zkwire.OpGetEphemerals:
		b = s.getEphemerals(c, d, b)

	case zkwire.OpWhoAmI:
		b = zkwire.AppendInt32(b, int32(len(c.ids)))
		for _, id := range c.ids {
			// The hash of the password stays here.
			user := id.id
			if id.scheme == "digest" {
				user, _, _ = strings.Cut(user, ":")
			}
			b = zkwire.AppendString(zkwire.AppendString(b, id.scheme), user)
		}

	case zkwire.OpMultiRead:
		b = s.multiRead(c, d, b)

	case zkwire.OpSetWatches, zkwire.OpSetWatches2:
		s.setWatches(c, op, d)

	case zkwire.OpAddWatch:
		path, mode := d.String(), d.Int32()
		if d.Bad || mode < 0 || mode > 1 {
			d.Bad = true
			break
		}
		m := watchNode
		if mode == 1 {
			m = watchRecursive
		}
		t.data.add(path, &c.watcher, m)
		t.child.add(path, &c.watcher, m)
		b = zkwire.AppendInt32(b, 0)

	case zkwire.OpCheckWatches, zkwire.OpRemoveWatches:
		result = s.findWatches(c, op, d)

	default:
		return b, zkwire.CodeUnimplemented, false
	}

	return b, result, true
}

// readable returns the node at path if the client has any of the permissions on it.
func (s *Server) readable(c *conn, path string, perms int32) (*node, zkwire.Code) {
	n := c.tree.nodes[path]
	if n == nil {
		return nil, zkwire.CodeNoNode
	}
	if !allowed(n.acl, perms, c.ids) {
		return nil, zkwire.CodeNoAuth
	}
	return n, zkwire.CodeOK
}

func (s *Server) getData(c *conn, path string, watch bool, b []byte) ([]byte, zkwire.Code) {
	n, result := s.readable(c, path, permRead)
	if result != zkwire.CodeOK {
		return b, result
	}
	if watch {
		c.tree.data.add(path, &c.watcher, watchOnce)
	}
	return appendStat(zkwire.AppendBuffer(b, n.data), n.stat()), zkwire.CodeOK
}

func (s *Server) getChildren(c *conn, path string, watch, withStat bool, b []byte) ([]byte, zkwire.Code) {
	n, result := s.readable(c, path, permRead)
	if result != zkwire.CodeOK {
		return b, result
	}

	if watch {
		c.tree.child.add(path, &c.watcher, watchOnce)
	}

	b = zkwire.AppendInt32(b, int32(len(n.children)))
	for _, child := range n.children {
		b = zkwire.AppendString(b, child.name())
	}

	if withStat {
		b = appendStat(b, n.stat())
	}
	return b, zkwire.CodeOK
}

func (s *Server) getEphemerals(c *conn, d *decoder, b []byte) []byte {
	prefix, _ := d.NullableString()
	// As in the real server, a blank prefix and the root mean all nodes.
	if trimmed := strings.TrimSpace(prefix); trimmed == "" || trimmed == "/" {
		prefix = ""
	}

	var paths []string
	for _, path := range c.tree.ephemeralsOf(c.session.id) {
		if strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}

	b = zkwire.AppendInt32(b, int32(len(paths)))
	for _, path := range paths {
		b = zkwire.AppendString(b, path)
	}
	return b
}

// setWatches sets the watches of a client that has reconnected, and at once sends the events that
// the client has missed.
func (s *Server) setWatches(c *conn, op zkwire.Op, d *decoder) {
	since := d.Int64()
	data, exist, child := d.Strings(), d.Strings(), d.Strings()
	var persistent, recursive []string
	if op == zkwire.OpSetWatches2 {
		persistent, recursive = d.Strings(), d.Strings()
	}

	if d.Bad {
		return
	}

	t := c.tree
	// Watches of getData (and of exists, if there was a node).
	for _, path := range data {
		if n := t.nodes[path]; n == nil {
			c.notify(eventDeleted, path, noZxid)
		} else if n.mzxid > since {
			c.notify(eventDataChanged, path, noZxid)
		} else {
			t.data.add(path, &c.watcher, watchOnce)
		}
	}

	// Watches of exists, from when there was no node.
	for _, path := range exist {
		if t.nodes[path] != nil {
			c.notify(eventCreated, path, noZxid)
		} else {
			t.data.add(path, &c.watcher, watchOnce)
		}
	}

	// Watches of getChildren.
	for _, path := range child {
		if n := t.nodes[path]; n == nil {
			c.notify(eventDeleted, path, noZxid)
		} else if n.pzxid > since {
			c.notify(eventChildrenChanged, path, noZxid)
		} else {
			t.child.add(path, &c.watcher, watchOnce)
		}
	}

	// As in the real server, persistent watches get no events for changes they have missed.
	for _, path := range persistent {
		t.child.add(path, &c.watcher, watchNode)
		t.data.add(path, &c.watcher, watchNode)
	}
	for _, path := range recursive {
		t.child.add(path, &c.watcher, watchRecursive)
		t.data.add(path, &c.watcher, watchRecursive)
	}
}

// A watchKind is a kind of watches that a client can check or remove: some modes in some tables.
type watchKind struct {
	child, data bool
	modes       watchMode
}

// The kinds of watches by their numbers in requests. In 3.8 a kind has watches of all modes.
var (
	watchKinds38 = map[int32]watchKind{
		1: {child: true, modes: watchAny},
		2: {data: true, modes: watchAny},
		3: {child: true, data: true, modes: watchAny},
	}
	watchKinds39 = map[int32]watchKind{
		1: {child: true, modes: watchOnce},
		2: {data: true, modes: watchOnce},
		3: {child: true, data: true, modes: watchAny},
		4: {child: true, data: true, modes: watchNode},
		5: {child: true, data: true, modes: watchRecursive},
	}
)

// findWatches answers whether there are watches on a path. If asked to remove them, it removes (and
// counts) only the client's own watches.
func (s *Server) findWatches(c *conn, op zkwire.Op, d *decoder) zkwire.Code {
	kinds := watchKinds38
	if s.cfg.is39() {
		kinds = watchKinds39
	}

	path, number := d.String(), d.Int32()
	kind, ok := kinds[number]
	// In 3.8 only checkWatches refuses a path without a slash.
	relative := path != "" && !strings.Contains(path, "/")
	if d.Bad || !ok || relative && op == zkwire.OpCheckWatches && !s.cfg.is39() {
		d.Bad = true
		return zkwire.CodeOK
	}

	found := false
	for _, table := range []struct {
		asked bool
		*watchTable
	}{{kind.child, c.tree.child}, {kind.data, c.tree.data}} {
		switch {
		case !table.asked:
		case op == zkwire.OpRemoveWatches:
			found = table.remove(path, &c.watcher, kind.modes) || found
		case s.cfg.is39():
			found = table.has(path, &c.watcher, kind.modes) || found
		default:
			// As in 3.8, watches of other clients count too.
			found = table.watched(path) || found
		}
	}

	if !found {
		return zkwire.CodeNoWatcher
	}
	return zkwire.CodeOK
}

// descendants returns the number of nodes below n.
func (t *tree) descendants(n *node) int32 {
	total := int32(len(n.children))
	for _, child := range n.children {
		total += t.descendants(child)
	}
	return total
}
