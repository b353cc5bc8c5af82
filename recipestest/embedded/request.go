package embedded

import (
	"bytes"
	"slices"
	"strings"
)

// request carries out one request, queues its answer, and reports whether the connection goes on.
func (s *Server) request(c *conn, frame []byte) bool {
	d := &decoder{b: frame}
	xid, op := d.int32(), opcode(d.int32())
	if d.bad {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return false
	}

	c.received++
	s.received++

	// Authentication neither needs credentials nor keeps the session alive.
	switch op {
	case opAuth:
		return s.authenticate(c, xid, d)
	case opSASL:
		// A server without SASL set up accepts any token.
		if d.buffer(); d.bad {
			return false
		}
		s.answer(c, xid, 0, codeOK, appendInt32(s.reply(), -1))
		return true
	}

	if s.cfg.EnforceAuth && !slices.ContainsFunc(c.ids, func(id identity) bool { return id.scheme == "digest" }) {
		s.answer(c, xid, 0, codeAuthRequired, s.reply())
		return false
	}

	s.touch(c.session)
	c.lastOp = op

	switch {
	case op == opCreateContainer && s.cfg.NoContainers:
		return s.unknown(c, xid, op)
	case op == opSync:
		s.sync(c, xid, d)
	case op.forwarded():
		s.propose(c, xid, op, d)
	case len(c.deferred) > 0:
		c.postpone(deferred{xid: xid, op: op, request: bytes.Clone(d.b)})
	default:
		return s.answerRead(c, xid, op, d)
	}

	// A closed session's connection ends after its last answer.
	if op != opCloseSession {
		return true
	}
	last := len(c.deferred) - 1
	if last >= 0 {
		c.deferred[last].last = true
	}
	return last >= 0
}

// reply returns an empty answer with room for the header. Its buffer is reused from one answer to
// the next: it belongs to the caller until answer has sent it.
func (s *Server) reply() []byte {
	b := s.replyBuf
	s.replyBuf = nil
	if cap(b) < headerSize {
		b = make([]byte, 0, 512)
	}
	return b[:headerSize]
}

// answer sends a reply. To the client of a follower it does so once the follower has applied zxid.
func (s *Server) answer(c *conn, xid int32, zxid int64, result code, frame []byte) {
	putHeader(frame, xid, zxid, result)
	c.lastXID, c.lastZxid = xid, zxid
	c.sendAfter(zxid, frame)
	if cap(frame) <= keepBuffers {
		s.replyBuf = frame
	}
}

// authenticate adds an identity to a connection, or refuses it and ends the connection.
func (s *Server) authenticate(c *conn, xid int32, d *decoder) bool {
	d.int32() // type, unused
	scheme, _ := d.nullableString()
	credentials := d.buffer()
	if d.bad {
		return false
	}

	var id identity
	switch {
	case scheme == "ip":
		id = c.ids[0]
	case scheme == "digest" && credentials != nil && len(c.ids) < maxIdentities:
		id = digestIdentity(credentials)
	default:
		s.answer(c, xid, 0, codeAuthFailed, s.reply())
		return false
	}

	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	s.answer(c, xid, 0, codeOK, s.reply())
	return true
}

// forwarded reports whether a follower passes the request on to the leader.
func (op opcode) forwarded() bool {
	switch op {
	case opCreate, opCreate2, opCreateContainer, opCreateTTL, opDelete, opSetData, opSetACL, opCheck,
		opMulti, opCloseSession, opReconfig, opDeleteContainer:
		return true
	}
	return false
}

// sync answers once the connection's server has applied all that the leader has committed by now.
func (s *Server) sync(c *conn, xid int32, d *decoder) {
	b, result := s.reply(), codeOK
	if path, ok := d.nullableString(); ok {
		b = appendString(b, path)
	} else {
		b = appendBuffer(b, nil)
	}
	if d.bad {
		b, result = b[:headerSize], codeMarshallingError
	}

	s.answer(c, xid, s.tree.zxid, result, b)
}

// propose carries out a request on the leader. It consumes a zxid even if it fails.
func (s *Server) propose(c *conn, xid int32, op opcode, d *decoder) {
	before := s.tree.zxid
	b, result := s.reply(), codeOK

	switch {
	case op == opCloseSession:
		s.endSession(c.session)
	case s.sessions[c.session.id] != c.session:
		result = codeSessionExpired // the connection's follower has not learnt of the expiry yet
	case op == opMulti:
		b, result = s.multi(c, d, b)
	case op == opReconfig:
		for range 3 { // joining, leaving and new members
			d.nullableString()
		}
		if d.int64(); d.bad {
			s.answer(c, xid, before, codeMarshallingError, b)
			return
		}
		result = codeReconfigDisabled
	case op == opDeleteContainer: // only the server itself may send it
		result = codeBadArguments
	default:
		b, result = s.write(c, op, d, b)
	}

	if s.tree.zxid == before {
		s.commit(transaction{})
	}
	if result != codeOK {
		b = b[:headerSize]
	}

	s.answer(c, xid, s.tree.zxid, result, b)

	s.scheduleReaping()
	s.wakeBefore(s.reapAt)
}

// write carries out a request that changes one node.
func (s *Server) write(c *conn, op opcode, d *decoder, b []byte) ([]byte, code) {
	v := &view{tree: s.tree, session: c.session.id, ids: c.ids}
	prepare := v.decodeWrite(op, d)
	if d.bad {
		return b, codeMarshallingError
	}

	ch, result := prepare()
	if result != codeOK {
		return b, result
	}

	st := s.commit(transaction{changes: []change{ch}})[0]
	switch op {
	case opCreate:
		b = appendString(b, ch.path)
	case opCreate2, opCreateContainer, opCreateTTL:
		b = appendStat(appendString(b, ch.path), st)
	case opSetData, opSetACL:
		b = appendStat(b, st)
	case opCheck:
		b = appendStat(b, s.tree.nodes[ch.path].stat())
	}
	return b, codeOK
}

// decodeWrite reads a write and returns the function that checks it.
func (v *view) decodeWrite(op opcode, d *decoder) (prepare func() (change, code)) {
	path := d.string()
	switch op {
	case opCreate, opCreate2, opCreateContainer, opCreateTTL:
		r := createRequest{op: op, path: path, data: d.buffer(), acl: d.acls(), flags: d.int32(), ttl: -1}
		if op == opCreateTTL {
			r.ttl = d.int64()
		}
		return func() (change, code) { return v.prepareCreate(r) }
	case opDelete:
		version := d.int32()
		return func() (change, code) { return v.prepareDelete(path, version) }
	case opSetData:
		data, version := d.buffer(), d.int32()
		return func() (change, code) { return v.prepareSetData(path, data, version) }
	case opSetACL:
		list, version := d.acls(), d.int32()
		return func() (change, code) { return v.prepareSetACL(path, list, version) }
	default: // opCheck
		version := d.int32()
		return func() (change, code) { return v.prepareCheck(path, version) }
	}
}

// answerRead carries out a request that changes no node, on the tree that the connection reads. It
// reports whether the connection goes on.
func (s *Server) answerRead(c *conn, xid int32, op opcode, d *decoder) bool {
	b, result, known := s.read(c, op, d, s.reply())
	switch {
	case !known:
		return s.unknown(c, xid, op)
	case d.bad:
		result = codeMarshallingError
	}

	if result != codeOK {
		b = b[:headerSize]
	}

	if op == opPing {
		xid = xidPing
	}

	if len(b) > maxReply {
		return false
	}

	s.answer(c, xid, c.tree.zxid, result, b)
	return true
}

// unknown answers a request whose operation the server does not know, and ends the connection.
func (s *Server) unknown(c *conn, xid int32, op opcode) bool {
	s.log.Debug("unknown request", "opcode", op, "session", c.session.id)
	s.answer(c, xid, -1, codeUnimplemented, s.reply())
	return false
}

// read carries out a request that changes no node and appends the body of its answer. It reports
// whether the operation is known. The caller checks d.bad.
func (s *Server) read(c *conn, op opcode, d *decoder, b []byte) (_ []byte, result code, known bool) {
	t := c.tree
	switch op {
	case opPing:

	case opExists:
		path, watch := d.string(), d.bool()
		if d.bad {
			break
		}
		if strings.IndexByte(path, 0) >= 0 {
			result = codeBadArguments
			break
		}
		if watch {
			t.data.add(path, c, watchOnce)
		}
		n := t.nodes[path]
		if n == nil {
			result = codeNoNode
			break
		}
		b = appendStat(b, n.stat())

	case opGetData:
		path, watch := d.string(), d.bool()
		if d.bad {
			break
		}
		b, result = s.getData(c, path, watch, b)

	case opGetChildren, opGetChildren2:
		path, watch := d.string(), d.bool()
		if d.bad {
			break
		}
		b, result = s.getChildren(c, path, watch, op == opGetChildren2, b)

	case opGetAllChildrenCount:
		path := d.string()
		n, fault := s.readable(c, path, permRead)
		if fault != codeOK {
			result = fault
			break
		}
		b = appendInt32(b, t.descendants(n))

	case opGetACL:
		n, fault := s.readable(c, d.string(), permRead|permAdmin)
		if fault != codeOK {
			result = fault
			break
		}
		list := n.acl
		if !allowed(list, permAdmin, c.ids) {
			list = maskDigests(list)
		}
		b = appendStat(appendACLs(b, list), n.stat())

	case opGetEphemerals:
		b = s.getEphemerals(c, d, b)

	case opWhoAmI:
		b = appendInt32(b, int32(len(c.ids)))
		for _, id := range c.ids {
			user := id.id
			if id.scheme == "digest" {
				user, _, _ = strings.Cut(user, ":")
			}
			b = appendString(appendString(b, id.scheme), user)
		}

	case opMultiRead:
		b, result = s.multiRead(c, d, b)

	case opSetWatches, opSetWatches2:
		s.setWatches(c, op, d)

	case opAddWatch:
		path, mode := d.string(), d.int32()
		if d.bad || mode < 0 || mode > 1 {
			d.bad = true
			break
		}
		m := watchNode
		if mode == 1 {
			m = watchRecursive
		}
		t.data.add(path, c, m)
		t.child.add(path, c, m)
		b = appendInt32(b, 0)

	case opCheckWatches, opRemoveWatches:
		result = s.findWatches(c, op, d)

	default:
		return b, codeUnimplemented, false
	}

	return b, result, true
}

// readable returns the node at path if the client has any of the permissions on it.
func (s *Server) readable(c *conn, path string, perms int32) (*node, code) {
	n := c.tree.nodes[path]
	if n == nil {
		return nil, codeNoNode
	}
	if !allowed(n.acl, perms, c.ids) {
		return nil, codeNoAuth
	}
	return n, codeOK
}

func (s *Server) getData(c *conn, path string, watch bool, b []byte) ([]byte, code) {
	n, result := s.readable(c, path, permRead)
	if result != codeOK {
		return b, result
	}
	if watch {
		c.tree.data.add(path, c, watchOnce)
	}
	return appendStat(appendBuffer(b, n.data), n.stat()), codeOK
}

func (s *Server) getChildren(c *conn, path string, watch, withStat bool, b []byte) ([]byte, code) {
	n, result := s.readable(c, path, permRead)
	if result != codeOK {
		return b, result
	}

	if watch {
		c.tree.child.add(path, c, watchOnce)
	}

	b = appendInt32(b, int32(len(n.children)))
	for _, child := range n.children {
		b = appendString(b, child.name())
	}

	if withStat {
		b = appendStat(b, n.stat())
	}
	return b, codeOK
}

func (s *Server) getEphemerals(c *conn, d *decoder, b []byte) []byte {
	prefix, _ := d.nullableString()
	if trimmed := strings.TrimSpace(prefix); trimmed == "" || trimmed == "/" {
		prefix = ""
	}

	var paths []string
	for _, path := range c.tree.ephemeralsOf(c.session.id) {
		if strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}

	b = appendInt32(b, int32(len(paths)))
	for _, path := range paths {
		b = appendString(b, path)
	}
	return b
}

// setWatches sets the watches of a client that has reconnected, and sends it the events that it has
// missed at once.
func (s *Server) setWatches(c *conn, op opcode, d *decoder) {
	since := d.int64()
	data, exist, child := d.strings(), d.strings(), d.strings()
	var persistent, recursive []string
	if op == opSetWatches2 {
		persistent, recursive = d.strings(), d.strings()
	}
	if d.bad {
		return
	}

	t := c.tree
	for _, path := range data {
		if n := t.nodes[path]; n == nil {
			c.notify(eventDeleted, path)
		} else if n.mzxid > since {
			c.notify(eventDataChanged, path)
		} else {
			t.data.add(path, c, watchOnce)
		}
	}

	for _, path := range exist {
		if t.nodes[path] != nil {
			c.notify(eventCreated, path)
		} else {
			t.data.add(path, c, watchOnce)
		}
	}

	for _, path := range child {
		if n := t.nodes[path]; n == nil {
			c.notify(eventDeleted, path)
		} else if n.pzxid > since {
			c.notify(eventChildrenChanged, path)
		} else {
			t.child.add(path, c, watchOnce)
		}
	}

	for _, path := range persistent {
		t.child.add(path, c, watchNode)
		t.data.add(path, c, watchNode)
	}
	for _, path := range recursive {
		t.child.add(path, c, watchRecursive)
		t.data.add(path, c, watchRecursive)
	}
}

// findWatches answers whether there are watches on a path. Asked to remove them, it removes and
// counts the client's own only.
func (s *Server) findWatches(c *conn, op opcode, d *decoder) code {
	const (
		children = 1
		data     = 2
		either   = 3
	)

	path, kind := d.string(), d.int32()
	if d.bad || kind < children || kind > either ||
		op == opCheckWatches && path != "" && !strings.Contains(path, "/") {
		d.bad = true
		return codeOK
	}

	found := false
	for _, table := range []struct {
		kind int32
		*watchTable
	}{{children, c.tree.child}, {data, c.tree.data}} {
		switch {
		case kind != either && kind != table.kind:
		case op == opRemoveWatches:
			found = table.remove(path, c) || found
		default:
			// As in the real server, watches of other clients count too.
			found = table.watched(path) || found
		}
	}

	if !found {
		return codeNoWatcher
	}
	return codeOK
}

// descendants returns the number of nodes below n.
func (t *tree) descendants(n *node) int32 {
	total := int32(len(n.children))
	for _, child := range n.children {
		total += t.descendants(child)
	}
	return total
}
