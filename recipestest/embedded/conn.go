package embedded

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

const (
	readBuffer  = 4 << 10  // bytes a connection reads at once
	flushAt     = 64 << 10 // unsent bytes at which answers no longer wait for more requests
	keepBuffers = 64 << 10 // larger write buffers are not reused
	maxUnsent   = 16 << 20 // unsent bytes at which a connection is closed
	maxReply    = 64 << 20 // size of the largest answer to multiRead

	// silenceTimeout bounds the handshake of a connection without a session, and the writing of a
	// connection's last answers.
	silenceTimeout = 10 * time.Second
)

// A conn is one connection of a client. One goroutine reads from it, executes the requests one
// after the other and sends the answers.
//
// Events come from the goroutines of other connections, which only append them to out. They hold
// the server's lock, as does every read and write of the tree. So a client always gets the events
// that led to an answer before the answer.
type conn struct {
	srv     *Server
	nc      net.Conn
	r       *bufio.Reader
	pending int // bytes of the current frame that are still in r's buffer

	tree     *tree     // the tree that it reads and watches (its follower's or the leader's)
	follower *Follower // nil for a connection to the leader

	// The server's lock protects these.
	watcher
	session      *session
	gone         bool
	since        time.Time
	received     int
	sent         int
	answered     time.Time // when it last got an answer
	lastOp       zkwire.Op
	lastXID      int32
	lastZxid     int64
	deferred     []deferred // waiting for the follower to catch up
	deferredSize int
	stuck        bool // its follower waits for the leader and answers nothing more

	mu      sync.Mutex // protects the fields below; taken last, and nothing blocks while it is held
	idle    sync.Cond  // signalled when writing becomes false
	writing bool       // a goroutine is writing (one at most)
	out     []byte     // to be sent
	spare   []byte     // a second buffer, in use while writing
	ending  bool       // the connection closes once out is sent
	closed  bool
}

func newConn(s *Server, nc net.Conn, serial int, f *Follower) *conn {
	c := &conn{
		srv: s, nc: nc, since: time.Now(), r: bufio.NewReaderSize(nc, readBuffer),
		tree: s.tree, follower: f,
		watcher: watcher{serial: serial, addsUp: s.cfg.is39(), ids: []identity{{"ip", hostOf(nc.RemoteAddr())}}},
	}
	c.watcher.notify = c.sendEvent
	if f == nil && s.front != nil {
		c.follower = s.front
	}

	if c.follower != nil {
		c.tree = c.follower.tree
	}

	c.idle.L = &c.mu
	return c
}

// serve runs the connection until it ends.
func (c *conn) serve() {
	defer func() {
		c.srv.mu.Lock()
		c.srv.drop(c)
		c.srv.mu.Unlock()
	}()

	// A client can send a four-letter word instead of the handshake.
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
		// Requests that have arrived are executed first, so that one write sends all their answers.
		if !c.frameReady() && !c.flush() {
			return
		}
		if frame, err = c.readFrame(); err == nil {
			again = c.srv.request(c, frame)
		}
	}

	// The last answer says why the connection ends. A client that doesn't read can't hold it up for
	// long.
	c.nc.SetWriteDeadline(time.Now().Add(silenceTimeout))
	c.flush()
}

// readFrame returns the next frame without its length. The frame is valid until the next call.
// Memory grows with the bytes that arrive, whatever length the frame announces.
func (c *conn) readFrame() ([]byte, error) {
	c.r.Discard(c.pending)
	c.pending = 0

	head, err := c.r.Peek(4)
	if err != nil {
		return nil, err
	}
	n, err := zkwire.PayloadSize(head, c.srv.cfg.MaxPacket)
	if err != nil {
		return nil, err
	}

	c.r.Discard(4)
	// A frame that fits into the buffer isn't copied. The next call discards it.
	if n <= c.r.Size() {
		frame, err := c.r.Peek(n)
		c.pending = len(frame)
		return frame, err
	}

	return zkwire.ReadLong(c.r, nil, n)
}

// frameReady reports whether readFrame can return the next frame without blocking, so that the
// answers can wait and be sent together. It reports false once flushAt bytes are unsent.
func (c *conn) frameReady() bool {
	have := c.r.Buffered() - c.pending
	if have < 4 {
		return false
	}

	head, _ := c.r.Peek(c.pending + 4)
	n := int32(binary.BigEndian.Uint32(head[c.pending:]))
	// A negative length counts as ready, because readFrame refuses it at once.
	if have-4 < int(n) {
		return false
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) < flushAt
}

// send appends a frame to the unsent bytes. The caller holds the server's lock.
func (c *conn) send(frame []byte) {
	c.sent++
	c.answered = time.Now()
	c.srv.sent++
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.out = append(c.out, frame...)
	}
}

// sendAfter sends an answer that reflects the transactions up to zxid. If the connection's follower
// hasn't applied them yet, the answer is deferred.
func (c *conn) sendAfter(zxid int64, frame []byte) {
	if zxid > c.tree.zxid {
		c.postpone(deferred{after: zxid, answer: bytes.Clone(frame)})
		return
	}
	c.send(frame)
}

// noZxid is the zxid of an event without a transaction.
const noZxid = -1

// sendEvent sends a watch event and never blocks. If a client is too slow to read its events, it is
// disconnected, and gets them when it reconnects and sets its watches again. The caller holds the
// server's lock.
//
// zxid is the transaction that caused the event (or noZxid). Clients get it from 3.9 on.
func (c *conn) sendEvent(event eventType, path string, zxid int64) {
	if c.gone {
		return
	}
	if !c.srv.cfg.is39() {
		zxid = noZxid
	}

	frame := c.srv.eventBuf[:0]
	frame = append(frame, make([]byte, zkwire.ReplyBody)...)
	frame = zkwire.AppendInt32(frame, int32(event))
	frame = zkwire.AppendInt32(frame, 3) // the state is always "connected"
	frame = zkwire.AppendString(frame, path)
	zkwire.PutReplyHeader(frame, zkwire.ReplyHeader{Xid: zkwire.XidEvent, Zxid: zxid, Code: zkwire.CodeOK})
	c.srv.eventBuf = frame

	// This is the goroutine of another client, so a goroutine of c's must do the writing.
	c.send(frame)
	c.startWriting()
}

// endWhenSent closes the connection once everything is sent, or the client has stopped reading. The
// caller must call startWriting.
func (c *conn) endWhenSent() {
	c.nc.SetWriteDeadline(time.Now().Add(silenceTimeout))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
}

// startWriting starts a goroutine that sends the unsent bytes, unless one is running. If too much
// is unsent, it closes the connection. The caller holds the server's lock.
func (c *conn) startWriting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) > maxUnsent {
		c.closed = true
		c.nc.Close() // serve sees the error and drops the connection
		return
	}

	if !c.writing && !c.closed {
		c.writing = true
		c.srv.conns.Go(c.write)
	}
}

// flush waits until no other goroutine is writing, and then sends the unsent bytes. It reports
// whether the connection still works.
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

	// The goroutine that reads also writes. So a client that reads no answers can't send more
	// requests.
	c.writing = true
	c.mu.Unlock()
	c.write()

	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// write sends until out is empty. The caller has set writing.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()

	for len(c.out) > 0 && !c.closed {
		// Swap the buffers, so that others can append to out during the write.
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

// drop ends a connection. Its session (if any) goes on. The caller holds mu.
func (s *Server) drop(c *conn) {
	if c.gone {
		return
	}

	c.gone = true
	delete(s.open, c)

	c.tree.data.removeAll(&c.watcher)
	c.tree.child.removeAll(&c.watcher)
	c.deferred = nil
	// A session that has moved already belongs to another connection.
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}

	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.nc.Close()
	s.settled.Broadcast() // its goroutine can be waiting in admit or connect
}

// connect answers the first frame of a connection, which starts or resumes a session. It reports
// whether the connection goes on.
func (s *Server) connect(c *conn, frame []byte) bool {
	r, err := zkwire.ParseConnectRequest(frame)
	if err != nil {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	c.received++
	s.received++
	if c.gone || r.LastZxid > c.tree.zxid {
		return false // the client has seen later transactions, so it must try another server
	}
	// A server that is cut off can't ask the leader. A deposed leader looks in the list it had.
	cutOff, sessions := c.follower != nil && c.follower.contact != whole, s.sessions
	if cutOff {
		if r.SessionID == 0 || c.follower.contact == isolated {
			c.stuck = true // only the leader could answer
			return true
		}
		sessions = c.follower.alive
	}

	timeout := min(max(r.Timeout, s.cfg.MinSessionTimeout), s.cfg.MaxSessionTimeout)

	var ss *session
	var begun int64 // the zxid of a new session's first transaction
	if r.SessionID == 0 {
		ss = s.newSession(timeout)
		ss.conn, begun = c, s.tree.zxid
	} else if ss = sessions[r.SessionID]; ss != nil {
		// Like a real server, end the old connection before the password is checked.
		if ss.conn != nil && !cutOff {
			s.drop(ss.conn)
		}
		if subtle.ConstantTimeCompare(ss.password[:], r.Password) == 0 {
			ss = nil
		} else if !cutOff {
			ss.timeout, ss.conn = timeout, c
			s.touch(ss)
		}
	}

	// Session 0 with timeout 0 means that the session has expired.
	granted := zkwire.ConnectResponse{Password: make([]byte, zkwire.PasswordSize), ReadOnlyField: r.ReadOnlyField}
	if ss != nil {
		granted.Timeout, granted.SessionID, granted.Password = timeout, ss.id, ss.password[:]
	}
	reply := zkwire.AppendConnectResponse(make([]byte, 0, 64), granted)

	c.session = ss
	if s.journal != nil {
		s.await(s.tree.zxid) // even if the session has ended: a crash must not bring it back
	}
	if c.gone {
		return false
	}

	c.sendAfter(begun, reply)
	if ss == nil {
		return false
	}

	// From here on the session's timeout is the limit.
	c.nc.SetDeadline(time.Time{})
	s.log.Debug("session connected", "session", ss.id, "timeout", timeout, "client", c.nc.RemoteAddr())
	return true
}

// hostOf returns the host of an address, without port and zone.
func hostOf(addr net.Addr) string {
	host, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host.Addr().Unmap().WithZone("").String()
}
