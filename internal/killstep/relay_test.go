package killstep_test

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A direction is that of packets.
type direction int

const (
	toServer direction = iota
	toClient
)

func (d direction) String() string { return [...]string{"to the server", "to the client"}[d] }

// A relay carries the packets of one process to a server, over a link, until the packet that is
// fatal to the process. That one passes, and none after it.
type relay struct {
	listener net.Listener
	address  string // of the server
	link     *recipestest.Link
	kill     func()
	fatal    chan struct{} // closed once the process is dead and the server has answered all
	wg       sync.WaitGroup

	mu         sync.Mutex // protects what follows
	conns      []net.Conn
	armed      bool
	way        direction // of the packet that is fatal
	left       int       // how many packets are left, that one included
	dead       bool
	unanswered map[request]struct{}
}

// A request is a packet that has passed to the server over a connection.
type request struct {
	conn net.Conn
	xid  int32
}

// handshakeXid stands for that of the handshake, which has none.
const handshakeXid = 0

func newRelay(t *testing.T, srv *recipestest.Server) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{
		listener: listener, address: srv.ConnectString(), link: srv.Link(t),
		fatal: make(chan struct{}), unanswered: make(map[request]struct{}),
	}
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// arm makes packet number n from now on, on one of the two ways, fatal to the process.
func (r *relay) arm(way direction, n int, kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed, r.way, r.left, r.kill = true, way, n, kill
}

// disarm reports whether no packet was fatal, and none will be.
func (r *relay) disarm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false
	}
	r.armed = false
	return true
}

func (r *relay) accept() {
	for {
		child, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := r.link.Dial("tcp", r.address, 10*time.Second)
		if err != nil {
			child.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, child, server)
		r.mu.Unlock()
		r.wg.Go(func() { r.carry(toServer, child, server) })
		r.wg.Go(func() { r.carry(toClient, server, child) })
	}
}

// carry carries packets until the connection ends. The end of a dead process is not passed on, so
// that the server answers all that it was sent.
func (r *relay) carry(way direction, from, to net.Conn) {
	const limit = 4 << 20
	for first := true; ; first = false {
		frame, err := zkwire.ReadFrame(from, limit)
		if err != nil {
			r.end(way, from, to)
			return
		}
		xid := int32(handshakeXid)
		if !first {
			xid = int32(binary.BigEndian.Uint32(frame[4:]))
		}
		if way == toServer {
			r.request(request{to, xid}, frame)
		} else {
			r.reply(request{from, xid}, frame, to)
		}
	}
}

// request passes a packet to the server, unless the process is dead.
func (r *relay) request(q request, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return
	}
	if q.xid != zkwire.XidPing {
		r.unanswered[q] = struct{}{}
		r.count(toServer)
	}
	q.conn.Write(frame)
}

// reply passes a packet to the process.
func (r *relay) reply(q request, frame []byte, to net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unanswered, q)
	to.Write(frame)
	if q.xid != zkwire.XidPing && !r.dead {
		r.count(toClient)
	}
	r.settle()
}

// count counts a packet, and kills the process if it is the fatal one.
func (r *relay) count(way direction) {
	if !r.armed || way != r.way {
		return
	}
	if r.left--; r.left == 0 {
		r.dead = true
		r.kill()
	}
}

// settle signals that the process is dead and that no request is on its way.
func (r *relay) settle() {
	if r.dead && r.armed && len(r.unanswered) == 0 {
		r.armed = false
		close(r.fatal)
	}
}

// end hangs up the other side, unless the process is dead.
func (r *relay) end(way direction, from, to net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server := to
	if way == toClient {
		server = from
	}
	if way == toServer && r.dead {
		return
	}
	for q := range r.unanswered {
		if q.conn == server {
			delete(r.unanswered, q)
		}
	}
	from.Close()
	to.Close()
	r.settle()
}

func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
