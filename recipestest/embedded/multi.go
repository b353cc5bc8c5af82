package embedded

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// multi executes a transaction: all of its writes or none. The answer has a result for each write.
// If a write fails, the writes before it get code 0, and the writes after it get
// zkwire.CodeRuntimeInconsistency.
func (s *Server) multi(c *conn, d *decoder, b []byte) ([]byte, zkwire.Code) {
	v := &view{
		tree: s.tree, session: c.session.id, ids: c.ids,
		enforceQuota: s.cfg.EnforceQuota,
		pending:      make(map[string]*record),
	}

	type write struct {
		op      zkwire.Op
		prepare func() (change, zkwire.Code)
	}

	var writes []write
	for op := range d.operations() {
		switch op {
		case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
			r, fits := decodeCreateInMulti(op, d)
			if s.cfg.is39() {
				// 3.9 checks for bad flags before it prepares any write. If all flags are good, the
				// opcode counts.
				known := op == zkwire.OpCreateTTL || r.flags >= 0 && r.flags <= flagsSequentialTTL
				d.Bad = d.Bad || !fits || !known
				// So create2 is answered with a stat. (3.8 answers it like create.)
				if r.op == zkwire.OpCreate && op != zkwire.OpCreateTTL {
					r.op = op
				}
			}
			writes = append(writes, write{r.op, func() (change, zkwire.Code) {
				if !fits {
					return change{}, zkwire.CodeMarshallingError
				}
				return v.prepareCreate(r)
			}})
		case zkwire.OpDelete, zkwire.OpSetData, zkwire.OpCheck:
			writes = append(writes, write{op, v.decodeWrite(op, d)})
		default:
			d.Bad = true
		}
	}

	if d.Bad {
		return b, zkwire.CodeMarshallingError
	}

	// Prepare all writes first, because one failure must fail them all.
	changes := make([]change, len(writes))
	for i, w := range writes {
		var result zkwire.Code
		// A write that can't be decoded fails the request, and any other failure is a result in the
		// answer.
		if changes[i], result = w.prepare(); result == zkwire.CodeMarshallingError {
			return b, result
		} else if result != zkwire.CodeOK {
			for j := range writes {
				switch {
				case j < i:
					b = appendFailure(b, zkwire.CodeOK)
				case j == i:
					b = appendFailure(b, result)
				default:
					b = appendFailure(b, zkwire.CodeRuntimeInconsistency)
				}
			}
			return appendMultiEnd(b), zkwire.CodeOK
		}
	}

	for i, st := range s.commit(transaction{changes: changes}) {
		switch op := writes[i].op; op {
		case zkwire.OpCreate:
			b = zkwire.AppendString(appendMultiHeader(b, op, zkwire.CodeOK), changes[i].path)
		case zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
			b = appendStat(zkwire.AppendString(appendMultiHeader(b, zkwire.OpCreate2, zkwire.CodeOK), changes[i].path), st)
		case zkwire.OpSetData:
			b = appendStat(appendMultiHeader(b, op, zkwire.CodeOK), st)
		default:
			b = appendMultiHeader(b, op, zkwire.CodeOK)
		}
	}

	return appendMultiEnd(b), zkwire.CodeOK
}

// decodeCreateInMulti reads a creation in a transaction. There the flags say what to create, and
// the opcode only says which fields to expect. fits is false if the flags ask for a TTL node and
// the opcode has no such field.
func decodeCreateInMulti(op zkwire.Op, d *decoder) (r createRequest, fits bool) {
	r = createRequest{path: d.String(), data: d.Buffer(), acl: d.acls(), flags: d.Int32(), ttl: -1}

	var ttl int64
	if op == zkwire.OpCreateTTL {
		ttl = d.Int64()
	}

	switch r.flags {
	case flagsTTL, flagsSequentialTTL:
		r.op, r.ttl = zkwire.OpCreateTTL, ttl
		return r, op == zkwire.OpCreateTTL
	case flagsContainer:
		r.op = zkwire.OpCreateContainer
	default:
		r.op = zkwire.OpCreate
	}

	return r, true
}

// multiRead executes several reads. Each of them fails or succeeds by itself.
func (s *Server) multiRead(c *conn, d *decoder, b []byte) []byte {
	type read struct {
		op   zkwire.Op
		path string
	}

	var reads []read
	for op := range d.operations() {
		if op != zkwire.OpGetData && op != zkwire.OpGetChildren {
			d.Bad = true
			break
		}
		reads = append(reads, read{op, d.String()})
		d.Bool() // the watch field, which multiRead ignores
	}

	// answerRead turns this into an error.
	if d.Bad {
		return b
	}

	for _, r := range reads {
		if len(b) > maxReply {
			break // the caller ends the connection
		}

		start := len(b)
		b = appendMultiHeader(b, r.op, zkwire.CodeOK)

		var result zkwire.Code
		if r.op == zkwire.OpGetData {
			b, result = s.getData(c, r.path, false, b)
		} else {
			b, result = s.getChildren(c, r.path, false, false, b)
		}

		if result != zkwire.CodeOK {
			b = appendFailure(b[:start], result)
		}
	}
	return appendMultiEnd(b)
}

// operations yields the opcode of each part of a multi request. The loop body must read the rest of
// the part.
func (d *decoder) operations() func(yield func(zkwire.Op) bool) {
	return func(yield func(zkwire.Op) bool) {
		for {
			op, done := zkwire.Op(d.Int32()), d.Bool()
			d.Int32() // error, unused in requests
			if d.Bad || done || !yield(op) || d.Bad {
				return
			}
		}
	}
}

func appendMultiHeader(b []byte, op zkwire.Op, result zkwire.Code) []byte {
	return zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(b, int32(op)), false), int32(result))
}

func appendFailure(b []byte, result zkwire.Code) []byte {
	return zkwire.AppendInt32(appendMultiHeader(b, zkwire.OpError, result), int32(result))
}

func appendMultiEnd(b []byte) []byte {
	return zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(b, -1), true), -1)
}
