package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// What the wire knows of ZooKeeper's protocol: enough to see when the server was last heard of, and by whom.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSetACL          = 7
	opGetChildren     = 8
	opSync            = 9
	opGetChildren2    = 12
	opMulti           = 14
	opRemoveWatches   = 18
	opCreateContainer = 19
	opCreateTTL       = 21
	opSetAuth         = 100
	opSetWatches      = 101
	opCloseSession    = -11

	xidEvent   = -1
	xidRewatch = -8
	xidOwn     = math.MinInt32 // and the next 1<<30: requests that zk.Conn knows nothing of

	codeConnectionLoss = -4
	codeUnimplemented  = -6
	codeNoNode         = -101
	codeNoWatcher      = -121
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
// zk.Conn calls Read and Write from one goroutine each; the rest is safe for concurrent use.
type wire struct {
	net.Conn
	session *session
	in      *bufio.Reader

	// Of the frame that is being read; Read only.
	frame   int         // bytes that were not read yet
	answers bool        // it answers a request that waits its turn at the server, unlike a ping
	watched sentRequest // it answers a request that has set a watch of this kind, unless that is 0
	kind    watchKinds

	writing sync.Mutex // held while a frame is written
	asked   int32      // the number of the next request of our own; protected by writing

	mu         sync.Mutex // protects what follows; nothing blocks while it is held
	dialled    time.Time
	sent       []sentRequest
	shaken     bool      // the handshake is over
	newest     int64     // the last zxid seen on the connections before
	rewatch    [][]byte  // packets that set the watches of those again, to be sent in place of zk.Conn's
	rewatching int       // how many of them were not answered yet
	moved      time.Time // when a piece of a long frame last got through, in either direction
	refused    error     // the server has refused a credential
	closed     bool
}

type sentRequest struct {
	xid, op int32
	at      time.Time
	watch   string           // the path on which it sets a watch, or empty
	size    int              // without its length
	done    func(code int32) // not nil for a request of our own
}

// maxHandshake bounds the answer to a connect request, which is 37 bytes long in practice.
const maxHandshake = 1024

func newWire(s *session, c net.Conn, patience time.Duration) (_ *wire, err error) {
	now := time.Now()
	if err := c.SetDeadline(now.Add(patience)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	w := &wire{Conn: c, session: s, in: bufio.NewReaderSize(c, 4096), dialled: now}
	if w.newest, err = s.greet(w); err != nil {
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
	w.writing.Lock()
	defer w.writing.Unlock()
	w.write(p, nil)
	return len(p), nil
}

// write is for callers that hold writing.
func (w *wire) write(p []byte, done func(code int32)) {
	instead, replaced := w.note(p, done)
	if !replaced {
		instead = [][]byte{p}
	}
	for _, frame := range instead {
		if err := w.send(frame); err != nil {
			w.cut(err)
			return
		}
	}
}

// ask sends a request that zk.Conn knows nothing of. A request of zk.Conn must have been answered over w before: then the
// credentials have been sent, and the watches are set again or about to be. It blocks while the network does not take the request. Once the
// request is sent, done is called with the error code of the answer, in order with the events that zk.Conn is told of.
// It is called with codeConnectionLoss if the connection ends first, and not at all if the connection had ended before.
func (w *wire) ask(op int32, path string, arg []byte, done func(code int32)) {
	w.writing.Lock()
	defer w.writing.Unlock()
	p := binary.BigEndian.AppendUint32(nil, uint32(4+4+4+len(path)+len(arg)))
	p = binary.BigEndian.AppendUint32(p, uint32(xidOwn+w.asked))
	p = binary.BigEndian.AppendUint32(p, uint32(op))
	p = binary.BigEndian.AppendUint32(p, uint32(len(path)))
	w.asked = (w.asked + 1) % (1 << 30) // the numbers that follow have a meaning
	w.write(append(append(p, path...), arg...), done)
}

// piece is how much of a long frame is sent at once. Each piece that gets through is a sign of life.
const piece = 16 << 10

func (w *wire) send(frame []byte) error {
	for len(frame) > piece {
		if _, err := w.Conn.Write(frame[:piece]); err != nil {
			return err
		}
		frame = frame[piece:]
		w.moves()
	}
	_, err := w.Conn.Write(frame)
	return err
}

func (w *wire) moves() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = time.Now()
}

// lastMoved returns when a piece of a long frame last got through.
func (w *wire) lastMoved() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moved
}

// note takes down a request, and returns what is to be sent in its place, if replaced is true.
//
// A connect request tells the server the newest zxid seen, which the wire puts in: zk.Conn would read and write
// it without synchronisation. The first request of zk.Conn to set watches again is replaced by the packets
// that were prepared when the handshake was answered. Further ones, which it sends if it has very many watches,
// are emptied.
func (w *wire) note(p []byte, done func(code int32)) (instead [][]byte, replaced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}
	if !w.shaken {
		if len(p) >= 4+4+8 { // length, protocol version, last zxid seen
			binary.BigEndian.PutUint64(p[4+4:], uint64(w.newest))
		}
		return nil, false
	}
	if len(p) < 4+4+4 { // length, xid, operation
		return nil, false
	}
	if binary.BigEndian.Uint32(p[8:]) == opCreate && binary.BigEndian.Uint32(p[len(p)-4:]) == zk.FlagContainer {
		// Servers make an ordinary node of that. CreateContainer of zk.Conn must not be used, as it reads the
		// answer while that may be written.
		binary.BigEndian.PutUint32(p[8:], opCreateContainer)
	}
	r := sentRequest{
		xid:  int32(binary.BigEndian.Uint32(p[4:])),
		op:   int32(binary.BigEndian.Uint32(p[8:])),
		at:   time.Now(),
		size: len(p) - 4,
		done: done,
	}
	switch r.op {
	case opGetData, opExists, opGetChildren, opGetChildren2:
		if done != nil {
			break // zk.Conn has no watch then
		}
		if rest := p[12:]; len(rest) > 5 && rest[len(rest)-1] != 0 { // length, path, whether to watch it
			r.watch = string(rest[4 : len(rest)-1])
		}
	case opSetWatches:
		if instead = w.rewatch; instead == nil {
			instead = [][]byte{emptyRewatch()}
		}
		w.rewatch = nil
		for range len(instead) - 1 {
			w.sent = append(w.sent, sentRequest{xid: xidRewatch, op: opSetWatches, at: r.at})
		}
		last := instead[len(instead)-1]
		copy(last[4:8], p[4:8]) // its answer is zk.Conn's
		r.size, replaced = len(last)-4, true
	}
	w.sent = append(w.sent, r)
	return instead, replaced
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
	arriving := w.answers && w.frame > w.in.Buffered()
	n, err := w.in.Read(p[:min(len(p), w.frame)])
	w.frame -= n
	if arriving && n > 0 {
		w.moves()
	}
	if w.frame == 0 && w.kind != 0 { // not before: zk.Conn sets no watch if the rest does not come
		w.session.watching(w.watched.watch, w.kind)
	}
	return n, err
}

// nextFrame waits for a frame that is for zk.Conn, and swallows those before it that are not.
func (w *wire) nextFrame() error {
	for {
		done, code, err := w.peekFrame()
		if done == nil {
			return err
		}
		_, err = w.in.Discard(w.frame)
		w.frame = 0
		if err != nil {
			done(codeConnectionLoss)
			return err
		}
		done(code)
	}
}

// peekFrame waits for a frame and looks at its head, which stays in the buffer. It may change the zxid there. If the
// frame answers a request of our own it returns what to call with which error code.
func (w *wire) peekFrame() (done func(code int32), code int32, err error) {
	head, err := w.in.Peek(4)
	if err != nil {
		return nil, 0, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 16 {
		return nil, 0, fmt.Errorf("frame of %d bytes", size)
	}
	w.mu.Lock()
	shaken := w.shaken
	w.mu.Unlock()
	w.answers, w.kind = false, 0
	if !shaken {
		err = w.handshake(size)
	} else if head, err = w.in.Peek(4 + 16); err == nil {
		code = int32(binary.BigEndian.Uint32(head[4+12:]))
		done, err = w.answer(head[4:], code)
	}
	w.frame = 4 + size
	return done, code, err
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
	rewatch, err := w.session.connected(w, h)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shaken, w.rewatch, w.rewatching = true, rewatch, len(rewatch)
	return nil
}

// answer notes an answer by its head: xid, zxid, error code. An error ends the connection.
func (w *wire) answer(head []byte, code int32) (done func(code int32), err error) {
	xid := int32(binary.BigEndian.Uint32(head))
	zxid := int64(binary.BigEndian.Uint64(head[4:]))
	binary.BigEndian.PutUint64(head[4:], 0) // see note

	w.mu.Lock()
	defer w.mu.Unlock()
	if xid == xidEvent {
		w.session.seen(zxid, false)
		return nil, nil
	}
	w.answers = xid >= 0
	i := slices.IndexFunc(w.sent, func(r sentRequest) bool { return r.xid == xid })
	if i < 0 {
		w.session.seen(zxid, w.rewatching == 0)
		return nil, nil
	}
	r := w.sent[i]
	if i == 0 { // answers come in order, but for those to pings and credentials
		w.sent = w.sent[1:]
	} else {
		w.sent = slices.Delete(w.sent, i, i+1)
	}
	switch {
	case r.op == opSetWatches && code != 0: // zk.Conn would only log that
		return nil, fmt.Errorf("watches not set again: error %d", code)
	case r.op == opSetWatches && w.rewatching > 0:
		w.rewatching--
	case r.op == opSetAuth && code != 0:
		w.refused = fmt.Errorf("%w: error %d", zk.ErrAuthFailed, code)
	}
	if r.watch != "" {
		w.watched, w.kind = r, setBy(r.op, code)
	}
	w.session.seen(zxid, w.rewatching == 0)
	w.session.answered(w, r, code)
	w.session.warn(code)
	return r.done, nil
}

// cut ends the connection; zk.Conn then looks for another server. It may be called from anywhere, at any time.
func (w *wire) cut(why error) {
	w.mu.Lock()
	first, sent := !w.closed, w.sent
	w.closed = true
	if w.refused != nil {
		why = w.refused
	}
	if first {
		w.session.ceased(sent, why)

		// Answers may have arrived that were not looked at yet. They count still: zk.Conn gets them, and sets watches
		// which the session has to know. Our own requests are told below.
		w.sent = slices.Clone(sent)
		for i := range w.sent {
			if w.sent[i].done != nil {
				w.sent[i].done = func(int32) {}
			}
		}
	}
	w.mu.Unlock()
	if !first {
		return
	}
	w.Conn.Close()
	w.session.disconnected(w, why)
	for _, r := range sent {
		if r.done != nil {
			r.done(codeConnectionLoss)
		}
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
