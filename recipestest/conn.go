package recipestest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A conn is the client's end of a connection through a link. Three goroutines
// carry it: one takes requests to the server, one receives what the server
// sends, so that delays overlap, and one takes that to the client.
//
// Its writes never block, as if the kernel's buffer had no end. Everything
// but the immutable fields is guarded by link.mu.
type conn struct {
	link   *Link
	server net.Conn // nil if dialed while the link was silent
	addr   linkAddr
	gone   chan struct{} // closed by reset and finish
	change *sync.Cond    // on link.mu; any change that a goroutine may wait for

	written  []byte // by the client, no whole packet yet
	greeted  bool   // the client has written its handshake
	toServer fifo   // on their way
	toClient fifo
	pending  map[int32]Op // requests passed on, by xid
	inbox    []byte       // arrived
	read     int          // so much of it
	hungUp   bool         // the server has, after inbox
	closed   bool         // the client has
	dead     bool         // nothing passes any more
	torn     bool         // something was lost in a stall

	strict         bool // what its handshake claims is looked at
	welcomed       bool // the server has answered the handshake
	session        int64
	unread         []arrival // answers that the client has not read to their end
	arrived, taken int64     // bytes that the client could read, and has
	relapse        *relapse

	readDeadline  deadline
	writeDeadline deadline
}

func newConn(l *Link, server net.Conn, network, address string) *conn {
	return &conn{
		link:    l,
		server:  server,
		addr:    linkAddr{network, address},
		gone:    make(chan struct{}),
		change:  sync.NewCond(&l.mu),
		pending: make(map[int32]Op),
		torn:    server == nil,
	}
}

// carryRequests takes packets from the client to the server until the connection is gone.
func (c *conn) carryRequests() {
	timer := stoppedTimer()
	for {
		p, ok := c.next(&c.toServer, timer)
		if !ok {
			return
		}
		if c.link.judge(c, &p) != deliver {
			continue
		}
		if p.end != nil {
			c.finish()
			return
		}
		// A failed write needs no care: the way back ends as well, behind the replies still on it.
		if _, err := c.server.Write(p.data); err == nil {
			c.link.wrote(p.op)
		}
	}
}

// receiveReplies takes packets off the server's hands until it hangs up.
func (c *conn) receiveReplies() {
	for first := true; ; first = false {
		frame, err := readPacket(c.server)
		if err != nil {
			c.send(&c.toClient, packet{direction: reply, end: err})
			return
		}
		c.send(&c.toClient, newReply(frame, first))
	}
}

// carryReplies takes packets from the server to the client until the connection is gone.
func (c *conn) carryReplies() {
	timer := stoppedTimer()
	for {
		p, ok := c.next(&c.toClient, timer)
		if !ok {
			return
		}
		switch c.link.judge(c, &p) {
		case dropAndReset:
			hangUp(c.server)
		case deliver:
			if p.end != nil {
				c.endReplies(p.end)
			}
		}
	}
}

// stoppedTimer is for one wait after the other.
func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// next waits for the first packet of a queue to arrive. It returns false once the connection is gone. The timer is the
// caller's own.
func (c *conn) next(queue *fifo, timer *time.Timer) (packet, bool) {
	c.link.mu.Lock()
	for queue.empty() && !c.dead {
		c.change.Wait()
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
		case <-c.link.calmed:
			timer.Stop()
		case <-c.gone:
			timer.Stop()
			return packet{}, false
		}
	}
	return p, true
}

// send puts a packet on its way.
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
	c.change.Broadcast()
}

// deliver hands data to the client. link.mu is held.
func (c *conn) deliver(data []byte) {
	if c.closed {
		return
	}
	if c.read > len(c.inbox)/2 { // or what was read would pile up
		c.inbox, c.read = slices.Delete(c.inbox, 0, c.read), 0
	}
	c.inbox = append(c.inbox, data...)
	c.arrive(data)
	c.change.Broadcast()
}

// endReplies tells the client that the server has hung up, or has reset the connection.
func (c *conn) endReplies(err error) {
	c.link.mu.Lock()
	orderly := errors.Is(err, io.EOF)
	if orderly {
		c.hungUp = true
		c.change.Broadcast()
	} else {
		c.reset()
	}
	c.link.mu.Unlock()
	if !orderly {
		hangUp(c.server)
	}
}

// reset kills both ends at once. link.mu is held; the caller hangs up the server afterwards.
func (c *conn) reset() {
	if c.dead {
		return
	}
	c.dead = true
	c.inbox, c.written, c.toServer, c.toClient = nil, nil, fifo{}, fifo{}
	c.read = 0
	delete(c.link.conns, c)
	close(c.gone)
	c.change.Broadcast()
}

// finish ends a connection that the client has closed.
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
	for {
		switch {
		case c.closed:
			return 0, c.error("read", net.ErrClosed)
		case c.dead:
			return 0, c.error("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case c.readDeadline.passed():
			return 0, c.error("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case c.read < len(c.inbox):
			n := copy(b, c.inbox[c.read:])
			c.took(n)
			if c.read += n; c.read == len(c.inbox) {
				c.inbox, c.read = c.inbox[:0], 0
			}
			return n, nil
		case c.hungUp:
			return 0, io.EOF
		}
		c.change.Wait()
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if errors.Is(err, errNotZooKeeper) {
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
	case c.writeDeadline.passed():
		return 0, c.error("write", os.ErrDeadlineExceeded)
	case c.server == nil:
		return len(b), nil
	}
	c.written = append(c.written, b...)
	for {
		frame, rest, err := cutPacket(c.written)
		if err != nil {
			c.reset()
			return 0, c.error("write", err)
		}
		if frame == nil {
			return len(b), nil
		}
		p := newRequest(slices.Clone(frame), !c.greeted)
		c.review(&p)
		c.sendLocked(&c.toServer, p)
		c.greeted = true
		c.written = rest
	}
}

// Close implements net.Conn. What was written before is still carried to the server.
func (c *conn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.error("close", net.ErrClosed)
	}
	c.closed = true
	c.inbox, c.read = nil, 0
	c.readDeadline.set(c.change, time.Time{})
	c.writeDeadline.set(c.change, time.Time{})
	if c.server == nil {
		c.reset()
		return nil
	}
	c.sendLocked(&c.toServer, packet{direction: request, end: io.EOF})
	c.change.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return linkAddr{c.addr.network, "link"} }
func (c *conn) RemoteAddr() net.Addr { return c.addr }

func (c *conn) SetDeadline(t time.Time) error {
	return c.setDeadline(t, &c.readDeadline, &c.writeDeadline)
}
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(t, &c.readDeadline) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writeDeadline) }

func (c *conn) setDeadline(t time.Time, deadlines ...*deadline) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.error("set", net.ErrClosed)
	}
	for _, d := range deadlines {
		d.set(c.change, t)
	}
	return nil
}

func (c *conn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: c.addr.network, Addr: c.addr, Err: err}
}

// A deadline wakes those who wait on a condition when it passes. The condition's lock guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(change *sync.Cond, t time.Time) {
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
	}
	switch {
	case t.IsZero():
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(t), func() {
			change.L.Lock()
			defer change.L.Unlock()
			change.Broadcast()
		})
	default:
		d.timer.Reset(time.Until(t))
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

type linkAddr struct{ network, address string }

func (a linkAddr) Network() string { return a.network }
func (a linkAddr) String() string  { return a.address }

// hangUp closes connections the hard way: over TCP the peer sees a reset.
func hangUp(conns ...net.Conn) {
	for _, c := range conns {
		transport := c
		if sniffer, ok := c.(*sniffer); ok {
			transport = sniffer.Conn
		}
		if tcp, ok := transport.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}
