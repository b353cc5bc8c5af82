package embedded_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// FuzzConnection sends arbitrary bytes from the start of a connection.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("ruok"))
	f.Add([]byte("mntr\n"))
	f.Add([]byte(packet{}.int32(-1)))
	first := frame(hello{timeout: 10000, readOnly: true}.bytes())
	f.Add([]byte(first))
	f.Add([]byte(append(first, frame(packet{}.int32(-2).int32(opPing))...)))
	f.Add([]byte(append(first, frame(packet{}.int32(1).int32(opCreate).create("/a", nil, 3))...)))

	f.Fuzz(func(t *testing.T, raw []byte) {
		s := start(t, embedded.Config{InMemory: true})
		nc := openRaw(t, s)
		go func() {
			nc.Write(raw)
			nc.(interface{ CloseWrite() error }).CloseWrite()
		}()
		_, err := io.Copy(io.Discard, nc)
		require.NoError(t, err)
		requireAlive(t, s)
	})
}

// FuzzRequest sends an arbitrary body after an arbitrary opcode, and then a ping. The server must
// answer the request or end the connection.
func FuzzRequest(f *testing.F) {
	for op, body := range map[int32]packet{
		opCreate:          packet{}.create("/a", []byte("x"), 0),
		opCreate2:         packet{}.create("/a-", nil, 3),
		opCreateContainer: packet{}.create("/c", nil, 4),
		opCreateTTL:       packet{}.create("/t", nil, 5).int64(1000),
		opDelete:          packet{}.string("/n").int32(-1),
		opExists:          packet{}.string("/n").bool(true),
		opGetData:         packet{}.string("/n").bool(true),
		opSetData:         packet{}.string("/n").buffer([]byte("y")).int32(0),
		opGetACL:          packet{}.string("/n"),
		opSetACL:          packet{}.string("/n").acl(31, "digest", "a:b").int32(0),
		opGetChildren:     packet{}.string("/").bool(true),
		opGetChildren2:    packet{}.string("/").bool(true),
		opSync:            packet{}.string("/"),
		opCheck:           packet{}.string("/n").int32(0),
		opMulti: packet{}.part(opCreate).create("/m", nil, 0).part(opSetData).string("/m").buffer(nil).int32(0).
			part(opCheck).string("/m").int32(1).part(opDelete).string("/m").int32(-1).end(),
		opMultiRead:     packet{}.part(opGetData).string("/n").bool(false).part(opGetChildren).string("/").bool(false).end(),
		opAuth:          packet{}.int32(0).string("digest").buffer([]byte("a:b")),
		opSASL:          packet{}.buffer(nil),
		opReconfig:      packet{}.string("").string("").string("").int64(0),
		opSetWatches:    packet{}.int64(0).strings("/n").strings("/x").strings("/"),
		opSetWatches2:   packet{}.int64(9).strings("/n").strings("/x").strings("/").strings("/p").strings("/"),
		opAddWatch:      packet{}.string("/").int32(1),
		opCheckWatches:  packet{}.string("/n").int32(3),
		opRemoveWatches: packet{}.string("/n").int32(3),
		opGetEphemerals: packet{}.string("/"),
		opCountChildren: packet{}.string("/"),
		opWhoAmI:        nil,
		opCloseSession:  nil,
		99:              nil,
	} {
		f.Add(op, []byte(body))
	}

	f.Fuzz(func(t *testing.T, op int32, body []byte) {
		s := start(t, embedded.Config{InMemory: true})
		c := connect(t, s, hello{timeout: 10000})
		c.must(t, opCreate, packet{}.create("/n", nil, 0))
		c.must(t, opAddWatch, packet{}.string("/").int32(1))

		if c.send(op, body) != nil || c.send(opPing, nil) != nil {
			return // cut already
		}

		for range 2 {
			if a, err := c.receive(); err != nil || a.xid == -2 && op != opPing {
				break
			}
		}
		requireAlive(t, s)
	})
}

func frame(b packet) packet { return append(packet{}.int32(int32(len(b))), b...) }
