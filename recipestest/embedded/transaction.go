package embedded

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A transaction is a list of changes. Every server of an ensemble applies them in the order in
// which the leader committed them. A failed request and the start of a session are transactions
// without changes (they only consume a zxid).
type transaction struct {
	zxid    int64
	at      time.Time
	changes []change
	began   *sessionRecord // nil if no session begins
	ended   *sessionRecord // nil if no session ends
	cut     func(*tree)    // closes the connection of the session that ends, if it reads this tree; or nil
}

// A sessionRecord is what a server keeps of a session across restarts.
type sessionRecord struct {
	id       int64
	password [zkwire.PasswordSize]byte
	timeout  time.Duration
}

func appendSession(b []byte, ss sessionRecord) []byte {
	b = zkwire.AppendBuffer(zkwire.AppendInt64(b, ss.id), ss.password[:])
	return zkwire.AppendInt64(b, ss.timeout.Milliseconds())
}

func (d *decoder) session() sessionRecord {
	ss := sessionRecord{id: d.Int64()}
	if copy(ss.password[:], d.Buffer()) != len(ss.password) {
		d.Bad = true
	}
	ss.timeout = time.Duration(d.Int64()) * time.Millisecond
	return ss
}

func appendTransaction(b []byte, x transaction) []byte {
	// loader.transaction reads the fields in this order.
	b = zkwire.AppendInt64(zkwire.AppendInt64(b, x.zxid), x.at.UnixMilli())

	b = zkwire.AppendBool(b, x.began != nil)
	if x.began != nil {
		b = appendSession(b, *x.began)
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
		ss := d.session()
		x.began = &ss
	}
	if d.Bool() {
		x.ended = &sessionRecord{id: d.Int64()}
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
