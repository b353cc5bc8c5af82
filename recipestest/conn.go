package recipestest

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A conn is the client's end of a connection through a link. It has three goroutines. The first
// carries requests to the server. The second receives replies, so that their delays overlap. The
// third carries the replies to the client.
//
// Writes never block, as if the kernel's buffer were unlimited. link.mu protects all fields that
// change.
type conn struct {
	link   *Link
	number int      // among the connections that the server knows
	server net.Conn // nil if dialed while the link was silent
	addr   linkAddr
	gone   chan struct{} // closed by reset and finish
	change *sync.Cond    // on link.mu; signals changes that Read waits for

	written       []byte // by the client, not yet a whole packet
	handshakeSent bool   // by the client
	toServer      fifo   // packets on their way
	toClient      fifo
	pending       map[int32]pendingRequest // by xid
	inbox         []byte                   // bytes that have arrived
	read          int                      // how much of inbox the client has read
	end           error                    // Read returns it after inbox; set once the server has ended the connection
	closed        bool                     // the client has closed the connection
	dead          bool                     // no more packets pass
	lossy         bool                     // a packet was lost in a stall

	checked        bool // its handshake must name the last zxid that the session has seen
	handshaken     bool // the server has answered the handshake
	session        int64
	unread         []arrival   // answers that the client may not have seen yet
	arrived, taken int64       // bytes delivered to the client, and bytes that it has read
	regression     *regression // to be reported with the next request

	readDeadline  time.Time
	writeDeadline time.Time // writes never wait for it
}

func newConn(l *Link, server net.Conn, network, address string) *conn {
	return &conn{
		link:     l,
		server:   server,
		addr:     linkAddr{network, address},
		gone:     make(chan struct{}),
		change:   sync.NewCond(&l.mu),
		toServer: fifo{change: sync.NewCond(&l.mu)},
		toClient: fifo{change: sync.NewCond(&l.mu)},
		pending:  make(map[int32]pendingRequest),
		lossy:    server == nil,
	}
}

// carryRequests carries packets from the client to the server until the connection is gone.
func (c *conn) carryRequests() {
	timer := stoppedTimer()
	for {
		p, ok := c.next(&c.toServer, timer)
		if !ok {
			return
		}
		fate := c.link.decide(c, &p)
		if fate == drop {
			continue
		}

		if fate == tearOff {
			// The server sees the beginning of a request and then the end of the stream.
			c.server.Write(p.data)
			c.finish()
			return
		}
		if p.end != nil {
			c.finish()
			return
		}
		// A failed write needs no handling: the other direction ends too, after the replies that
		// are under way.
		if _, err := c.server.Write(p.data); err == nil {
			c.link.wrote(p.op)
		}
	}
}

// receiveReplies receives packets until the server hangs up.
func (c *conn) receiveReplies() {
	for first := true; ; first = false {
		frame, err := zkwire.ReadFrame(c.server, maxPacket)
		if err != nil {
			c.send(&c.toClient, packet{direction: reply, end: err})
			return
		}
		c.send(&c.toClient, newReply(frame, first))
	}
}

// carryReplies carries packets from the server to the client until the connection is gone.
func (c *conn) carryReplies() {
	timer := stoppedTimer()
	for {
		p, ok := c.next(&c.toClient, timer)
		if !ok {
			return
		}
		switch c.link.decide(c, &p) {
		case dropAndReset:
			// decide has reset the client's side.
			hangUp(c.server)
		case tearOff:
			c.endTorn(p.data)
			return
		case deliver:
			if p.end != nil {
				c.endReplies(p.end)
			}
		}
	}
}

// stoppedTimer returns a timer for any number of waits, one at a time.
func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// next waits for the first packet of a queue to arrive. It returns false once the connection has
// ended. Only this wait may use timer.
func (c *conn) next(queue *fifo, timer *time.Timer) (packet, bool) {
	c.link.mu.Lock()
	for queue.empty() && !c.dead {
		queue.change.Wait()
	}

	if c.dead {
		c.link.mu.Unlock()
		return packet{}, false
	}

	p := queue.pop()
	c.link.mu.Unlock()

	if wait := time.Until(p.due); wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		// The test has ended, so nothing is delayed any more.
		case <-c.link.healed:
			timer.Stop()
		case <-c.gone:
			timer.Stop()
			return packet{}, false
		}
	}

	return p, true
}

// send puts a packet into a queue. It arrives after the delay.
func (c *conn) send(queue *fifo, p packet) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.sendLocked(queue, p)
}

func (c *conn) sendLocked(queue *fifo, p packet) {
	if c.dead {
		return
	}
	p.due = time.Now().Add(c.link.delay)
	queue.push(p)
	queue.change.Signal()
}

// deliver hands data to the client. link.mu is held.
func (c *conn) deliver(data []byte) {
	if c.closed {
		return
	}

	if c.read > len(c.inbox)/2 { // otherwise bytes that were read would pile up
		c.inbox, c.read = slices.Delete(c.inbox, 0, c.read), 0
	}

	c.inbox = append(c.inbox, data...)
	c.arrive(data)
	c.change.Broadcast()
}

// endTorn delivers the beginning of a frame to the client, and then the server's hang-up. No answer
// ends there, so none arrives.
func (c *conn) endTorn(data []byte) {
	c.link.mu.Lock()
	if !c.closed && !c.dead {
		c.inbox = append(c.inbox, data...)
		c.end = io.EOF
		c.change.Broadcast()
	}
	c.link.mu.Unlock()
	hangUp(c.server)
}

// endReplies ends the stream for the client after a hang-up or a reset by the server. The client
// can still read bytes that arrived before (a kernel's socket does the same).
func (c *conn) endReplies(err error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	c.end = c.error("read", os.NewSyscallError("read", syscall.ECONNRESET))
	if errors.Is(err, io.EOF) {
		c.end = io.EOF
	}
	c.change.Broadcast()
}

// reset ends both sides at once. link.mu is held; the caller hangs up the server afterwards.
func (c *conn) reset() {
	if c.dead {
		return
	}

	c.dead = true
	c.inbox, c.written = nil, nil
	c.read = 0
	c.toServer.drop()
	c.toClient.drop()
	delete(c.link.conns, c)
	close(c.gone)
	c.change.Broadcast()
}

// finish ends a connection after the last packet towards the server.
func (c *conn) finish() {
	c.link.mu.Lock()
	c.reset()
	c.link.mu.Unlock()
	c.server.Close()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	// Reading again shows that the client has handled earlier answers.
	c.took()
	for {
		switch {
		case c.closed:
			return 0, c.error("read", net.ErrClosed)
		case c.dead:
			return 0, c.error("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case passed(c.readDeadline):
			return 0, c.error("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case c.read < len(c.inbox):
			n := copy(b, c.inbox[c.read:])
			c.taken += int64(n)
			if c.read += n; c.read == len(c.inbox) {
				c.inbox, c.read = c.inbox[:0], 0
			}
			return n, nil
		case c.end != nil:
			return 0, c.end
		}
		c.await()
	}
}

// await waits for a change or the read deadline. link.mu is held.
func (c *conn) await() {
	if !c.readDeadline.IsZero() {
		timer := time.AfterFunc(time.Until(c.readDeadline), func() {
			c.link.mu.Lock()
			defer c.link.mu.Unlock()
			c.change.Broadcast()
		})
		defer timer.Stop()
	}
	c.change.Wait()
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if errors.Is(err, zkwire.ErrFrameSize) {
		hangUp(c.server)
	}
	return n, err
}

func (c *conn) write(b []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	switch {
	case c.closed:
		return 0, c.error("write", net.ErrClosed)
	case c.dead:
		return 0, c.error("write", os.NewSyscallError("write", syscall.ECONNRESET))
	case passed(c.writeDeadline):
		return 0, c.error("write", os.ErrDeadlineExceeded)
	// No packets pass in a stall, and a kernel would still accept the bytes.
	case c.server == nil:
		return len(b), nil
	}

	// Faults hit whole packets, so wait for the end of each.
	c.written = append(c.written, b...)
	for {
		frame, rest, err := zkwire.CutFrame(c.written, maxPacket)
		if err != nil {
			c.reset()
			return 0, c.error("write", err)
		}
		if frame == nil {
			return len(b), nil
		}
		p := newRequest(frame, !c.handshakeSent)
		c.review(&p)
		c.sendLocked(&c.toServer, p)
		c.handshakeSent = true
		c.written = rest
	}
}

// Close implements net.Conn. The server still receives everything that was written before.
func (c *conn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	if c.closed {
		return c.error("close", net.ErrClosed)
	}

	c.closed = true
	c.inbox, c.read = nil, 0
	if c.server == nil {
		c.reset()
		return nil
	}

	// The hang-up follows the requests that are still under way.
	c.sendLocked(&c.toServer, packet{direction: request, end: io.EOF})
	c.change.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return linkAddr{c.addr.network, "link"} }
func (c *conn) RemoteAddr() net.Addr { return c.addr }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.set(func() {
		c.readDeadline = t
		c.change.Broadcast()
	})
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.set(func() { c.writeDeadline = t })
}

func (c *conn) set(change func()) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	if c.closed {
		return c.error("set", net.ErrClosed)
	}
	change()
	return nil
}

func (c *conn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: c.addr.network, Addr: c.addr, Err: err}
}

func passed(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

type linkAddr struct{ network, address string }

func (a linkAddr) Network() string { return a.network }
func (a linkAddr) String() string  { return a.address }

// hangUp closes connections the hard way: over TCP the peer sees a reset.
func hangUp(conns ...net.Conn) {
	for _, c := range conns {
		transport := c
		if recording, ok := c.(*recordingConn); ok {
			transport = recording.Conn
		}
		if secure, ok := transport.(*tls.Conn); ok {
			transport, c = secure.NetConn(), secure.NetConn() // without an alert
		}
		if tcp, ok := transport.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}
