package embedded_test

import (
	"io"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/transcript"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// FuzzConnection sends arbitrary bytes from the start of a connection.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("ruok"))
	f.Add([]byte("mntr\n"))
	f.Add([]byte(packet{}.int32(-1)))
	first := frame(hello{timeout: 10000, readOnly: true}.bytes())
	f.Add([]byte(first))
	f.Add([]byte(append(first, frame(packet{}.int32(-2).op(zkwire.OpPing))...)))
	f.Add([]byte(append(first, frame(packet{}.int32(1).op(zkwire.OpCreate).create("/a", nil, 3))...)))

	f.Fuzz(func(t *testing.T, raw []byte) {
		s := start(t, embedded.Config{InMemory: true})
		nc := openRaw(t, s)
		go func() {
			nc.Write(raw)
			nc.(interface{ CloseWrite() error }).CloseWrite()
		}()
		suite.Got(io.Copy(io.Discard, nc))(t)
		requireAlive(t, s)
	})
}

// FuzzRequest sends an arbitrary body after an arbitrary opcode, and then a ping. The server must
// answer the request or end the connection.
func FuzzRequest(f *testing.F) {
	for _, c := range transcript.Cases("3.8") {
		for _, s := range c.Steps {
			for op, body := range s.Requests("/n") {
				f.Add(int32(op), body)
			}
		}
	}
	f.Add(int32(zkwire.OpAuth), []byte(packet{}.int32(0).string("digest").buffer([]byte("a:b"))))
	f.Add(int32(zkwire.OpSASL), []byte(packet{}.buffer(nil)))
	f.Add(int32(zkwire.OpReconfig), []byte(packet{}.string("").string("").string("").int64(0)))
	f.Add(int32(zkwire.OpCloseSession), []byte(nil))

	f.Fuzz(func(t *testing.T, code int32, body []byte) {
		op := zkwire.Op(code)
		s := start(t, embedded.Config{InMemory: true})
		c := connect(t, s, hello{timeout: 10000})
		c.must(t, zkwire.OpCreate, packet{}.create("/n", nil, 0))
		c.must(t, zkwire.OpAddWatch, packet{}.string("/").int32(1))

		if c.send(op, body) != nil || c.send(zkwire.OpPing, nil) != nil {
			return // cut already
		}

		for range 2 {
			if a, err := c.receive(); err != nil || a.xid == -2 && op != zkwire.OpPing {
				break
			}
		}
		requireAlive(t, s)
	})
}
