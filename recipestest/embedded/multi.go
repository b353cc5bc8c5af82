package embedded

// multi carries out a transaction: all of its writes or none. The answer has a result for each
// write. If a write fails, those before it get code 0 and those after it codeRuntimeInconsistency.
func (s *Server) multi(c *conn, d *decoder, b []byte) ([]byte, code) {
	v := &view{
		tree: s.tree, session: c.session.id, ids: c.ids,
		pending: make(map[string]*record),
	}

	type write struct {
		op      opcode
		prepare func() (change, code)
	}

	var writes []write
	for op := range d.operations() {
		switch op {
		case opCreate, opCreate2, opCreateContainer, opCreateTTL:
			r, fits := decodeCreateInMulti(op, d)
			writes = append(writes, write{r.op, func() (change, code) {
				if !fits {
					return change{}, codeMarshallingError
				}
				return v.prepareCreate(r)
			}})
		case opDelete, opSetData, opCheck:
			writes = append(writes, write{op, v.decodeWrite(op, d)})
		default:
			d.bad = true
		}
	}
	if d.bad {
		return b, codeMarshallingError
	}

	// Prepare all writes first, as one failure fails them all.
	changes := make([]change, len(writes))
	for i, w := range writes {
		var result code
		if changes[i], result = w.prepare(); result == codeMarshallingError {
			return b, result
		} else if result != codeOK {
			for j := range writes {
				switch {
				case j < i:
					b = appendFailure(b, codeOK)
				case j == i:
					b = appendFailure(b, result)
				default:
					b = appendFailure(b, codeRuntimeInconsistency)
				}
			}
			return appendMultiEnd(b), codeOK
		}
	}

	for i, st := range s.commit(transaction{changes: changes}) {
		switch op := writes[i].op; op {
		case opCreate:
			b = appendString(appendMultiHeader(b, op, codeOK), changes[i].path)
		case opCreateContainer, opCreateTTL:
			b = appendStat(appendString(appendMultiHeader(b, opCreate2, codeOK), changes[i].path), st)
		case opSetData:
			b = appendStat(appendMultiHeader(b, op, codeOK), st)
		default:
			b = appendMultiHeader(b, op, codeOK)
		}
	}
	return appendMultiEnd(b), codeOK
}

// decodeCreateInMulti reads a creation in a transaction. There the flags say what to create, and
// the opcode only says which fields to expect. fits is false if the flags ask for a TTL node and
// the opcode has no such field.
func decodeCreateInMulti(op opcode, d *decoder) (r createRequest, fits bool) {
	r = createRequest{path: d.string(), data: d.buffer(), acl: d.acls(), flags: d.int32(), ttl: -1}

	var ttl int64
	if op == opCreateTTL {
		ttl = d.int64()
	}

	switch r.flags {
	case flagsTTL, flagsSequentialTTL:
		r.op, r.ttl = opCreateTTL, ttl
		return r, op == opCreateTTL
	case flagsContainer:
		r.op = opCreateContainer
	default:
		r.op = opCreate
	}
	return r, true
}

// multiRead carries out several reads, each of which fails or succeeds by itself.
func (s *Server) multiRead(c *conn, d *decoder, b []byte) ([]byte, code) {
	type read struct {
		op   opcode
		path string
	}

	var reads []read
	for op := range d.operations() {
		if op != opGetData && op != opGetChildren {
			d.bad = true
			break
		}
		reads = append(reads, read{op, d.string()})
		d.bool() // the watch field, which multiRead ignores
	}
	if d.bad {
		return b, codeOK
	}

	for _, r := range reads {
		if len(b) > maxReply {
			break // the caller ends the connection
		}

		start := len(b)
		b = appendMultiHeader(b, r.op, codeOK)

		var result code
		if r.op == opGetData {
			b, result = s.getData(c, r.path, false, b)
		} else {
			b, result = s.getChildren(c, r.path, false, false, b)
		}

		if result != codeOK {
			b = appendFailure(b[:start], result)
		}
	}
	return appendMultiEnd(b), codeOK
}

// operations yields the opcode of each part of a multi request. The loop body reads the rest of the
// part.
func (d *decoder) operations() func(yield func(opcode) bool) {
	return func(yield func(opcode) bool) {
		for {
			op, done := opcode(d.int32()), d.bool()
			d.int32() // error, unused in requests
			if d.bad || done || !yield(op) || d.bad {
				return
			}
		}
	}
}

func appendMultiHeader(b []byte, op opcode, result code) []byte {
	return appendInt32(appendBool(appendInt32(b, int32(op)), false), int32(result))
}

func appendFailure(b []byte, result code) []byte {
	return appendInt32(appendMultiHeader(b, opError, result), int32(result))
}

func appendMultiEnd(b []byte) []byte {
	return appendInt32(appendBool(appendInt32(b, -1), true), -1)
}
