package embedded

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	readBuffer  = 4 << 10  // what a connection reads at once
	flushAt     = 64 << 10 // answers are sent at the latest when they amount to this
	keepBuffers = 64 << 10 // larger write buffers are not kept
	maxUnsent   = 16 << 20 // a connection further behind than this loses events and is closed
	maxReply    = 64 << 20 // no answer to multiRead is larger

	// silenceTimeout bounds what a connection without a session may take for
	// its handshake or for reading its last answer.
	silenceTimeout = 10 * time.Second
)

var errBadLength = errors.New("bad packet length")

// A conn is one connection of a client. One goroutine reads it, carries out
// the requests one after the other and sends the answers. Events come from the
// goroutines of other connections, which only append them to what is to be sent:
// as that happens under the server's lock, like every change and every read of
// the tree, a client never sees an answer before the events that led to it.
type conn struct {
	srv     *Server
	nc      net.Conn
	serial  int // order of arrival
	r       *bufio.Reader
	pending int // bytes of the current frame that are still in r's buffer

	tree     *tree     // which it reads and watches: the leader's, or its
	follower *Follower // if it has one

	// Guarded by the server's lock.
	session  *session
	ids      []identity
	gone     bool
	round    uint64 // of the last watch event
	since    time.Time
	received int
	sent     int
	lastOp   opcode
	lastXID  int32
	lastZxid int64
	held     []held // until the follower has caught up
	heldSize int

	mu      sync.Mutex // guards the rest; innermost, nothing blocks while it is held
	idle    sync.Cond  // signalled when writing becomes false
	writing bool       // by one goroutine at a time
	out     []byte     // to be sent
	spare   []byte     // the other buffer, while nobody is writing
	ending  bool       // it is closed when all is sent
	closed  bool
}

func newConn(s *Server, nc net.Conn, serial int, f *Follower) *conn {
	c := &conn{
		srv: s, nc: nc, serial: serial, since: time.Now(), r: bufio.NewReaderSize(nc, readBuffer),
		tree: s.tree, follower: f,
	}
	if f != nil {
		c.tree = f.tree
	}
	c.idle.L = &c.mu
	c.ids = []identity{{"ip", hostOf(nc.RemoteAddr())}}
	return c
}

// serve runs the connection until it ends.
func (c *conn) serve() {
	defer func() {
		c.srv.mu.Lock()
		c.srv.drop(c)
		c.srv.mu.Unlock()
	}()
	c.nc.SetDeadline(time.Now().Add(silenceTimeout))
	if word, err := c.r.Peek(4); err != nil {
		return
	} else if answer := c.srv.fourLetterWord(c, string(word)); answer != nil {
		c.r.Discard(4)
		c.nc.Write(answer)
		return
	}
	frame, err := c.readFrame()
	if err != nil {
		return
	}
	again := c.srv.connect(c, frame)
	for again && err == nil {
		if !c.frameReady() && !c.flush() {
			return
		}
		if frame, err = c.readFrame(); err == nil {
			again = c.srv.request(c, frame)
		}
	}
	c.nc.SetWriteDeadline(time.Now().Add(silenceTimeout))
	c.flush()
}

// readFrame returns the next frame without its length. It is valid until the
// next call. Its length is believed only as far as the bytes arrive.
func (c *conn) readFrame() ([]byte, error) {
	c.r.Discard(c.pending)
	c.pending = 0
	head, err := c.r.Peek(4)
	if err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(head)))
	if n < 0 || n > c.srv.cfg.MaxPacket {
		return nil, errBadLength
	}
	c.r.Discard(4)
	if n <= c.r.Size() {
		frame, err := c.r.Peek(n)
		c.pending = len(frame)
		return frame, err
	}
	var frame bytes.Buffer
	_, err = io.CopyN(&frame, c.r, int64(n))
	return frame.Bytes(), err
}

// frameReady reports whether readFrame has a whole frame to return, so that
// sending answers can wait for the next one.
func (c *conn) frameReady() bool {
	have := c.r.Buffered() - c.pending
	if have < 4 {
		return false
	}
	head, _ := c.r.Peek(c.pending + 4)
	n := int32(binary.BigEndian.Uint32(head[c.pending:]))
	if have-4 < int(n) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) < flushAt
}

// send appends a frame to what is to be sent. The caller holds the server's lock.
func (c *conn) send(frame []byte) {
	c.sent++
	c.srv.sent++
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.out = append(c.out, frame...)
	}
}

// sendAfter is send for the answer to what a transaction has done, which the connection's server may have yet to hear of.
func (c *conn) sendAfter(zxid int64, frame []byte) {
	if zxid > c.tree.zxid {
		c.hold(held{after: zxid, answer: bytes.Clone(frame)})
		return
	}
	c.send(frame)
}

// notify sends a watch event without waiting for anything. The caller holds the
// server's lock. A client too slow to take its events is cut off: it will hear of
// them when it comes back and sets its watches again.
func (c *conn) notify(event eventType, path string) {
	if c.gone {
		return
	}
	frame := c.srv.eventBuf[:0]
	frame = append(frame, make([]byte, headerSize)...)
	frame = appendInt32(frame, int32(event))
	frame = appendInt32(frame, 3) // connected, the only state there is
	frame = appendString(frame, path)
	putHeader(frame, xidNotification, -1, codeOK)
	c.srv.eventBuf = frame
	c.send(frame)
	c.startWriting()
}

// endWhenSent closes the connection once everything is sent. The caller calls startWriting.
func (c *conn) endWhenSent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
}

// startWriting has what there is sent by a goroutine of its own, if none is sending. The caller holds the server's lock.
func (c *conn) startWriting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) > maxUnsent {
		c.closed = true
		c.nc.Close() // its own goroutine does the rest
		return
	}
	if !c.writing && !c.closed {
		c.writing = true
		c.srv.conns.Go(c.write)
	}
}

// flush sends what there is, after another goroutine that is sending has
// finished, and reports whether the connection still works.
func (c *conn) flush() bool {
	c.mu.Lock()
	for c.writing {
		c.idle.Wait()
	}
	if len(c.out) == 0 || c.closed {
		ok := !c.closed
		c.mu.Unlock()
		return ok
	}
	c.writing = true
	c.mu.Unlock()
	c.write()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// write sends until there is nothing to send. The caller has set writing.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 && !c.closed {
		full := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.nc.Write(full)
		c.mu.Lock()
		if cap(full) <= keepBuffers {
			c.spare = full
		}
		if err != nil {
			c.closed = true
			c.nc.Close()
		}
	}
	if c.ending && !c.closed {
		c.closed = true
		c.nc.Close()
	}
	c.writing = false
	c.idle.Broadcast()
}

// drop ends a connection. Its session, if it has one, goes on without it.
func (s *Server) drop(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	delete(s.open, c)
	c.tree.data.removeAll(c)
	c.tree.child.removeAll(c)
	c.held = nil
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.nc.Close()
}

// connect answers the first frame of a connection, which starts a session or
// resumes one, and reports whether the connection goes on.
func (s *Server) connect(c *conn, frame []byte) bool {
	d := decoder{b: frame}
	d.int32() // protocol version
	seen := d.int64()
	timeout := time.Duration(d.int32()) * time.Millisecond
	id := d.int64()
	password := d.buffer()
	if d.bad {
		return false
	}
	aware := len(d.b) > 0 // of the read-only mode: old clients send no such field

	s.mu.Lock()
	defer s.mu.Unlock()
	c.received++
	s.received++
	if c.gone || seen > c.tree.zxid {
		return false // a client that knows more than its server must go elsewhere
	}
	timeout = min(max(timeout, s.cfg.MinSessionTimeout), s.cfg.MaxSessionTimeout)
	var ss *session
	var begun int64 // the transaction that a new session begins with
	if id == 0 {
		ss = s.newSession(timeout)
		begun = s.tree.zxid
	} else if ss = s.sessions[id]; ss != nil {
		if ss.conn != nil {
			s.drop(ss.conn)
		}
		if subtle.ConstantTimeCompare(ss.password[:], password) == 0 {
			ss = nil
		} else {
			ss.timeout = timeout
			s.touch(ss)
		}
	}

	reply := make([]byte, 4, 64)
	reply = appendInt32(reply, 0) // protocol version
	if ss != nil {
		reply = appendInt32(reply, int32(timeout/time.Millisecond))
		reply = appendInt64(reply, ss.id)
		reply = appendBuffer(reply, ss.password[:])
	} else {
		reply = appendInt32(reply, 0)
		reply = appendInt64(reply, 0)
		reply = appendBuffer(reply, make([]byte, passwordSize))
	}
	if aware {
		reply = appendBool(reply, false)
	}
	binary.BigEndian.PutUint32(reply, uint32(len(reply)-4))
	c.sendAfter(begun, reply)
	if ss == nil {
		return false
	}
	c.session, ss.conn = ss, c
	c.nc.SetDeadline(time.Time{})
	s.log.Debug("session connected", "session", ss.id, "timeout", timeout, "client", c.nc.RemoteAddr())
	return true
}

// hostOf returns the host of an address without port and zone.
func hostOf(addr net.Addr) string {
	host, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host.Addr().Unmap().WithZone("").String()
}
