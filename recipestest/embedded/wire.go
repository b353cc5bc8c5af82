package embedded

import "encoding/binary"

// opcode is the operation of a request.
type opcode int32

const (
	opNotification        opcode = 0
	opCreate              opcode = 1
	opDelete              opcode = 2
	opExists              opcode = 3
	opGetData             opcode = 4
	opSetData             opcode = 5
	opGetACL              opcode = 6
	opSetACL              opcode = 7
	opGetChildren         opcode = 8
	opSync                opcode = 9
	opPing                opcode = 11
	opGetChildren2        opcode = 12
	opCheck               opcode = 13
	opMulti               opcode = 14
	opCreate2             opcode = 15
	opReconfig            opcode = 16
	opCheckWatches        opcode = 17
	opRemoveWatches       opcode = 18
	opCreateContainer     opcode = 19
	opDeleteContainer     opcode = 20
	opCreateTTL           opcode = 21
	opMultiRead           opcode = 22
	opAuth                opcode = 100
	opSetWatches          opcode = 101
	opSASL                opcode = 102
	opGetEphemerals       opcode = 103
	opGetAllChildrenCount opcode = 104
	opSetWatches2         opcode = 105
	opAddWatch            opcode = 106
	opWhoAmI              opcode = 107
	opCloseSession        opcode = -11
	opError               opcode = -1
	opSetSequence         opcode = -100 // internal, never on the wire
)

// code is the error code of an answer.
type code int32

const (
	codeOK                      code = 0
	codeRuntimeInconsistency    code = -2
	codeMarshallingError        code = -5
	codeUnimplemented           code = -6
	codeBadArguments            code = -8
	codeNoNode                  code = -101
	codeNoAuth                  code = -102
	codeBadVersion              code = -103
	codeNoChildrenForEphemerals code = -108
	codeNodeExists              code = -110
	codeNotEmpty                code = -111
	codeSessionExpired          code = -112
	codeInvalidACL              code = -114
	codeAuthFailed              code = -115
	codeAuthRequired            code = -124
	codeNoWatcher               code = -121
	codeReconfigDisabled        code = -123
)

// The xids of watch events and pings.
const (
	xidNotification int32 = -1
	xidPing         int32 = -2
)

// headerSize is the length of a frame's length field and reply header together.
const headerSize = 4 + 4 + 8 + 4

// stat is the Stat of a znode.
type stat struct {
	czxid, mzxid, ctime, mtime  int64
	version, cversion, aversion int32
	ephemeralOwner              int64
	dataLength, numChildren     int32
	pzxid                       int64
}

// A decoder reads the fields of one frame. After the first field that does not fit, bad is true and
// every read returns a zero value. So callers check once, at the end. Memory is allocated only for
// bytes that the frame contains.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return len(b) == 1 && b[0] != 0
}

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// buffer returns a copy of the next buffer field, nil for the null buffer.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return append([]byte{}, d.take(int(n))...)
}

// string returns the next string field. A null string sets bad; few fields allow one.
func (d *decoder) string() string {
	return string(d.take(int(d.int32())))
}

// nullableString returns the next string field, and whether it is anything but null.
func (d *decoder) nullableString() (s string, ok bool) {
	n := d.int32()
	if n == -1 {
		return "", false
	}
	return string(d.take(int(n))), true
}

// vector calls next for each element of the next vector field. It reports whether the vector is
// anything but null. A negative count is an empty vector.
func (d *decoder) vector(next func()) bool {
	n := d.int32()
	for i := int32(0); i < n && !d.bad; i++ {
		next()
	}
	return n != -1
}

// strings returns the elements of the next vector of strings. A null vector sets bad.
func (d *decoder) strings() []string {
	var list []string
	if !d.vector(func() { list = append(list, d.string()) }) {
		d.bad = true
	}
	return list
}

// acls returns the next access control list, nil for the null list.
func (d *decoder) acls() []acl {
	var list []acl
	d.vector(func() {
		a := acl{perms: d.int32()}
		a.scheme, _ = d.nullableString() // null becomes the empty scheme, which is refused later
		id, ok := d.nullableString()
		if a.id = id; !ok && a.scheme != "auth" && a.scheme != "" {
			d.bad = true
		}
		list = append(list, a)
	})
	return list
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendString(b []byte, s string) []byte {
	return append(appendInt32(b, int32(len(s))), s...)
}

// appendBuffer appends a buffer field; nil is the null buffer.
func appendBuffer(b, data []byte) []byte {
	if data == nil {
		return appendInt32(b, -1)
	}
	return append(appendInt32(b, int32(len(data))), data...)
}

func appendStat(b []byte, s stat) []byte {
	b = appendInt64(b, s.czxid)
	b = appendInt64(b, s.mzxid)
	b = appendInt64(b, s.ctime)
	b = appendInt64(b, s.mtime)
	b = appendInt32(b, s.version)
	b = appendInt32(b, s.cversion)
	b = appendInt32(b, s.aversion)
	b = appendInt64(b, s.ephemeralOwner)
	b = appendInt32(b, s.dataLength)
	b = appendInt32(b, s.numChildren)
	return appendInt64(b, s.pzxid)
}

func appendACLs(b []byte, list []acl) []byte {
	b = appendInt32(b, int32(len(list)))
	for _, a := range list {
		b = appendInt32(b, a.perms)
		b = appendString(b, a.scheme)
		b = appendString(b, a.id)
	}
	return b
}

// putHeader fills in the length and the reply header at the head of a frame.
func putHeader(frame []byte, xid int32, zxid int64, c code) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(xid))
	binary.BigEndian.PutUint64(frame[8:], uint64(zxid))
	binary.BigEndian.PutUint32(frame[16:], uint32(c))
}
