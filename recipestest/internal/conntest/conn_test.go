package conntest

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/internal/pipe"
)

func TestPipeIsAConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = pipe.New()
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	})
}

// TestLinkIsAConn sends each piece as a packet, as a link carries nothing else.
func TestLinkIsAConn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	server := recipestest.Attach(t, listener.Addr().String())
	link := server.Link(t)

	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, err = link.Dial("tcp", listener.Addr().String(), time.Minute)
		if err != nil {
			return nil, nil, nil, err
		}
		c2, err = listener.Accept()
		if err != nil {
			return nil, nil, nil, err
		}
		return &framed{Conn: c1}, &framed{Conn: c2}, func() { c1.Close(); c2.Close() }, nil
	})
}

// A framed is a stream of bytes over a connection that carries packets.
type framed struct {
	net.Conn
	reading, writing sync.Mutex
	head             []byte // of the packet that is being read
	left             int    // of its payload
}

func (f *framed) Read(b []byte) (int, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	for f.left == 0 && len(b) > 0 {
		head := make([]byte, 4-len(f.head))
		n, err := f.Conn.Read(head)
		f.head = append(f.head, head[:n]...)
		if err != nil {
			return 0, err
		}
		if len(f.head) == 4 {
			f.left = int(binary.BigEndian.Uint32(f.head))
			f.head = nil
		}
	}
	n, err := f.Conn.Read(b[:min(len(b), f.left)])
	f.left -= n
	return n, err
}

// Write sends pieces that look like no request of ours.
func (f *framed) Write(b []byte) (n int, err error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	for {
		piece := b[:min(len(b), 1<<10)]
		packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(piece))), piece...)
		if _, err := f.Conn.Write(packet); err != nil {
			return n, err
		}
		if n, b = n+len(piece), b[len(piece):]; len(b) == 0 {
			return n, nil
		}
	}
}
