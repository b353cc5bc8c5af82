package differential_test

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The protocol's opcodes.
const (
	opCreate          int32 = 1
	opDelete          int32 = 2
	opExists          int32 = 3
	opGetData         int32 = 4
	opSetData         int32 = 5
	opGetACL          int32 = 6
	opSetACL          int32 = 7
	opGetChildren     int32 = 8
	opSync            int32 = 9
	opPing            int32 = 11
	opGetChildren2    int32 = 12
	opCheck           int32 = 13
	opMulti           int32 = 14
	opCreate2         int32 = 15
	opCheckWatches    int32 = 17
	opRemoveWatches   int32 = 18
	opCreateContainer int32 = 19
	opCreateTTL       int32 = 21
	opMultiRead       int32 = 22
	opAuth            int32 = 100
	opSetWatches      int32 = 101
	opGetEphemerals   int32 = 103
	opCountChildren   int32 = 104
	opSetWatches2     int32 = 105
	opAddWatch        int32 = 106
	opWhoAmI          int32 = 107
	opCloseSession    int32 = -11
	opError           int32 = -1
)

var opNames = map[int32]string{
	opCreate: "create", opDelete: "delete", opExists: "exists", opGetData: "getData", opSetData: "setData",
	opGetACL: "getACL", opSetACL: "setACL", opGetChildren: "getChildren", opSync: "sync", opPing: "ping",
	opGetChildren2: "getChildren2", opCheck: "check", opMulti: "multi", opCreate2: "create2",
	opCheckWatches: "checkWatches", opRemoveWatches: "removeWatches", opCreateContainer: "createContainer",
	opCreateTTL: "createTTL", opMultiRead: "multiRead", opAuth: "auth", opSetWatches: "setWatches",
	opGetEphemerals: "getEphemerals", opCountChildren: "getAllChildrenNumber", opSetWatches2: "setWatches2",
	opAddWatch: "addWatch", opWhoAmI: "whoAmI", opCloseSession: "closeSession", opError: "error",
}

func opName(op int32) string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("opcode %d", op)
}

// Xids with a meaning of their own.
const (
	xidEvent int32 = -1
	xidPing  int32 = -2
	xidAuth  int32 = -4
)

// noZxid is the zxid of events without one.
const noZxid int64 = -1

// A packet is a message under construction.
type packet []byte

func (p packet) int32(v int32) packet { return binary.BigEndian.AppendUint32(p, uint32(v)) }
func (p packet) int64(v int64) packet { return binary.BigEndian.AppendUint64(p, uint64(v)) }

func (p packet) bool(v bool) packet {
	if v {
		return append(p, 1)
	}
	return append(p, 0)
}

func (p packet) string(s string) packet { return append(p.int32(int32(len(s))), s...) }

func (p packet) buffer(b []byte) packet {
	if b == nil {
		return p.int32(-1)
	}
	return p.string(string(b))
}

func (p packet) part(op int32, done bool) packet { return p.int32(op).bool(done).int32(-1) }

func (p packet) frame() packet { return append(packet{}.int32(int32(len(p))), p...) }

// A message is a received message, read field by field. Reading beyond its end sets short.
type message struct {
	b     []byte
	short bool
}

func (m *message) take(n int) []byte {
	if n < 0 || n > len(m.b) {
		m.b, m.short = nil, true
		return make([]byte, max(0, min(n, 16)))
	}
	head := m.b[:n]
	m.b = m.b[n:]
	return head
}

func (m *message) bool() bool   { return m.take(1)[0] != 0 }
func (m *message) int32() int32 { return int32(binary.BigEndian.Uint32(m.take(4))) }
func (m *message) int64() int64 { return int64(binary.BigEndian.Uint64(m.take(8))) }

func (m *message) buffer() []byte {
	n := m.int32()
	if n == -1 {
		return nil
	}
	return slices.Clone(m.take(int(n)))
}

func (m *message) string() string { return string(m.buffer()) }

func (m *message) strings() []string {
	var list []string
	for n := m.int32(); n > 0 && !m.short; n-- {
		list = append(list, m.string())
	}
	return list
}
