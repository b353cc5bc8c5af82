package suite

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Wire is a connection that a test interferes with. A nil function changes nothing.
type Wire struct {
	net.Conn
	OnRead, OnWrite func(p []byte) (int, error)
	OnClose         func() error
}

func (w Wire) Read(p []byte) (int, error) {
	if w.OnRead == nil {
		return w.Conn.Read(p)
	}
	return w.OnRead(p)
}

func (w Wire) Write(p []byte) (int, error) {
	if w.OnWrite == nil {
		return w.Conn.Write(p)
	}
	return w.OnWrite(p)
}

func (w Wire) Close() error {
	if w.OnClose == nil {
		return w.Conn.Close()
	}
	return w.OnClose()
}

// Over is a way through dial. wire makes each connection what the client gets.
func Over(dial zk.Dialer, wire func(conn net.Conn) Wire) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return wire(conn), nil
	})
}

// Writing is a way through link on which write gets all that a client writes. Often p is a request.
func Writing(link *recipestest.Link, write func(conn net.Conn, p []byte) (int, error)) protocol.ConnectOption {
	return Over(link.Dial, func(conn net.Conn) Wire {
		return Wire{Conn: conn, OnWrite: func(p []byte) (int, error) { return write(conn, p) }}
	})
}

// Frames is for a Wire's OnRead. The client reads what frame returns for each frame of the server.
func Frames(conn net.Conn, frame func(frame []byte) []byte) func(p []byte) (int, error) {
	var rest []byte
	return func(p []byte) (int, error) {
		if len(rest) == 0 {
			next, err := zkwire.ReadFrame(conn, 1<<30)
			if err != nil {
				return 0, err
			}
			rest = frame(next)
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	}
}

// OpOf returns the kind of the request that p begins with, or 0.
func OpOf(p []byte) recipestest.Op {
	if len(p) < 12 {
		return 0
	}
	return recipestest.Op(binary.BigEndian.Uint32(p[8:]))
}
