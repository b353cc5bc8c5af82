package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// What the wire knows of ZooKeeper's protocol: enough to see when the server was last heard of, and by whom.
const (
	opCreate          = 1
	opDelete          = 2
	opSetData         = 5
	opSetACL          = 7
	opSync            = 9
	opMulti           = 14
	opCreateContainer = 19
	opCreateTTL       = 21
	opSetAuth         = 100
	opSetWatches      = 101
	opCloseSession    = -11

	xidEvent = -1
	xidPing  = -2
)

// vouchedBy tells who takes part in an answer to op with this error code. The codes are those that the leader finds when
// it prepares a transaction, and never a follower; a transaction that fails has to be agreed to like any other.
func vouchedBy(op, code int32) voucher {
	switch op {
	case opCreate, opDelete, opSetData, opSetACL, opMulti, opCreateContainer, opCreateTTL:
		switch code {
		case 0, -101, -102, -103, -108, -110, -111, -114:
			// No node, no permission, bad version, ephemeral parent, node exists, not empty, invalid ACL.
			return byQuorum
		}
	case opSync:
		if code == 0 {
			return byLeader
		}
	}
	return byServer
}

// A wire is one connection to one server, between zk.Conn and the network. It sees the handshake, notes when
// requests are sent and answered, gives a silent handshake its own deadline and can be cut at any time.
//
// Read and Write are called by one goroutine each; the rest is safe for concurrent use.
type wire struct {
	net.Conn
	session *Session
	in      *bufio.Reader
	frame   int // bytes of the current frame that were not read yet; Read only

	mu        sync.Mutex // protects what follows; nothing blocks while it is held
	dialled   time.Time
	sent      []sentRequest
	shaken    bool  // the handshake is over
	since     int64 // the last zxid seen on the connections before
	rewatches bool  // watches are to be set again first
	closed    bool
}

type sentRequest struct {
	xid, op int32
	at      time.Time
}

// maxHandshake bounds the answer to a connect request, which is 37 bytes long in practice.
const maxHandshake = 1024

func newWire(s *Session, c net.Conn, patience time.Duration) (_ *wire, err error) {
	now := time.Now()
	if err := c.SetDeadline(now.Add(patience)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	w := &wire{Conn: c, session: s, in: bufio.NewReaderSize(c, 4096), dialled: now}
	if w.since, err = s.greet(w); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

// SetReadDeadline and SetWriteDeadline leave the handshake's deadline alone: zk.Conn would wait for ten times as
// long, and without any end for the second half of the answer.
func (w *wire) SetReadDeadline(t time.Time) error  { return w.setDeadline(w.Conn.SetReadDeadline, t) }
func (w *wire) SetWriteDeadline(t time.Time) error { return w.setDeadline(w.Conn.SetWriteDeadline, t) }

func (w *wire) setDeadline(set func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shaken {
		return nil
	}
	return set(t)
}

// Write sends one frame, as zk.Conn hands it over. It never fails: after an error the connection is cut, and
// zk.Conn hears of that where it reads. An error here would make it report that the request was not sent, and
// would block it for ever if it came while credentials are sent again.
func (w *wire) Write(p []byte) (int, error) {
	w.note(p)
	if _, err := w.Conn.Write(p); err != nil {
		w.cut(err)
	}
	return len(p), nil
}

// note takes down a request. The last zxid that was seen, which two kinds of them tell the server, it puts in itself,
// and keeps it from zk.Conn, which would read and write it without synchronisation.
func (w *wire) note(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.shaken:
		if len(p) >= 4+4+8 { // length, protocol version, last zxid seen
			binary.BigEndian.PutUint64(p[4+4:], uint64(w.since))
		}
	case len(p) >= 4+4+4: // length, xid, operation
		r := sentRequest{int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:])), time.Now()}
		w.sent = append(w.sent, r)
		if r.op == opSetWatches && len(p) >= 4+4+4+8 {
			binary.BigEndian.PutUint64(p[4+4+4:], uint64(w.since))
		}
	}
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.read(p)
	if err != nil {
		w.cut(err)
	}
	return n, err
}

func (w *wire) read(p []byte) (int, error) {
	if w.frame == 0 {
		if err := w.nextFrame(); err != nil {
			return 0, err
		}
	}
	n, err := w.in.Read(p[:min(len(p), w.frame)])
	w.frame -= n
	return n, err
}

// nextFrame waits for a frame and looks at its head, which stays in the buffer. It may change the zxid there.
func (w *wire) nextFrame() error {
	head, err := w.in.Peek(4)
	if err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 16 {
		return fmt.Errorf("frame of %d bytes", size)
	}
	w.mu.Lock()
	shaken := w.shaken
	w.mu.Unlock()
	if !shaken {
		err = w.handshake(size)
	} else if head, err = w.in.Peek(4 + 16); err == nil {
		err = w.answer(head[4:])
	}
	w.frame = 4 + size
	return err
}

// handshake reads the answer to the connect request: protocol version, granted timeout, session, password.
func (w *wire) handshake(size int) error {
	if size < 20 || size > maxHandshake {
		return fmt.Errorf("answer to the connect request has %d bytes", size)
	}
	b, err := w.in.Peek(4 + size)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("handshake: %w", err)
		}
		return err
	}
	b = b[4:]
	h := handshake{
		timeout: time.Duration(int32(binary.BigEndian.Uint32(b[4:]))) * time.Millisecond,
		id:      int64(binary.BigEndian.Uint64(b[8:])),
	}
	n := int(int32(binary.BigEndian.Uint32(b[16:])))
	if n > len(b)-20 {
		return io.ErrUnexpectedEOF
	}
	h.password = append(h.password, b[20:20+max(n, 0)]...)
	if h.id != 0 && h.timeout <= 0 { // zk.Conn would panic
		return fmt.Errorf("granted a timeout of %v", h.timeout)
	}
	if err := w.Conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	rewatches, err := w.session.connected(w, h)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shaken, w.rewatches = true, rewatches
	return nil
}

// answer notes an answer by its head: xid, zxid, error code. An error ends the connection.
func (w *wire) answer(head []byte) error {
	xid := int32(binary.BigEndian.Uint32(head))
	code := int32(binary.BigEndian.Uint32(head[12:]))
	if xid == xidEvent {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.rewatches {
		// Before that, an answer must not move the zxid on: should this connection break too, what happened
		// before the answer would be missed by the watches that are set on the next one.
		w.session.seen(int64(binary.BigEndian.Uint64(head[4:])))
	}
	binary.BigEndian.PutUint64(head[4:], 0)
	for i, r := range w.sent {
		if r.xid != xid {
			continue
		}
		if i == 0 { // answers come in order, but for those to pings and credentials
			w.sent = w.sent[1:]
		} else {
			w.sent = slices.Delete(w.sent, i, i+1)
		}
		if r.op == opSetWatches {
			w.rewatches = false
			if code != 0 { // zk.Conn would only log that
				return fmt.Errorf("watches not set again: error %d", code)
			}
		}
		w.session.answered(r, code)
		return nil
	}
	return nil
}

// cut ends the connection; zk.Conn then looks for another server. It may be called from anywhere, at any time.
func (w *wire) cut(why error) {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	w.mu.Unlock()
	if first {
		w.Conn.Close()
		w.session.disconnected(w, why)
	}
}

// Close is cut as zk.Conn calls it.
func (w *wire) Close() error {
	w.cut(net.ErrClosed)
	return nil
}

// handshake is what a server grants.
type handshake struct {
	timeout  time.Duration
	id       int64
	password []byte
}
