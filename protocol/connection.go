package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// firstOwnXid is the xid of the first request that zk.Conn knows nothing of. The next 1<<30 numbers
// are for those, too.
const firstOwnXid = math.MinInt32

// confirmationOf returns which members took part in an answer to op with this error code.
//
// For writes, the codes listed are those that the leader finds when it prepares a transaction. A
// follower never finds them itself. A transaction that fails is voted on like any other.
func confirmationOf(op zkwire.Op, code zkwire.Code) confirmation {
	switch op {
	case zkwire.OpCreate, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpMulti,
		zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		switch code {
		case zkwire.CodeOK, zkwire.CodeNoNode, zkwire.CodeNoAuth, zkwire.CodeBadVersion,
			zkwire.CodeNoChildrenForEphemerals, zkwire.CodeNodeExists, zkwire.CodeNotEmpty, zkwire.CodeInvalidACL:
			return byQuorum
		}
	case zkwire.OpSync:
		if code == zkwire.CodeOK {
			return byLeader
		}
	}
	return byServer
}

// A connection is one connection to one server, between zk.Conn and the network. It sees the
// handshake and notes when requests are sent and answered. It has deadlines of its own for the
// handshake, and can be cut at any time.
//
// zk.Conn calls Read and Write from one goroutine each. All other methods are safe for concurrent
// use.
type connection struct {
	net.Conn
	session *session
	in      *bufio.Reader

	// The frame that is being read. Only Read uses these.
	unread   int         // bytes of it that were not read yet
	progress bool        // its bytes count as progress: it answers a request that waits its turn, unlike a ping
	watched  sentRequest // it answers this request, which has set a watch of this kind, unless kind is 0
	kind     watchKinds

	writing sync.Mutex // held while a frame is written
	ownXids int32      // how many xids of our own were used; protected by writing

	mu           sync.Mutex // protects what follows; nothing blocks while it is held
	dialled      time.Time
	sent         []sentRequest // not answered yet, oldest first
	lastSent     time.Time     // when the last request was sent
	established  bool          // the handshake is over
	lastZxid     int64         // the newest that was seen on earlier connections
	rewatch      [][]byte      // packets that set watches again and were not sent yet
	rewatching   int           // how many of these were not answered yet
	lastProgress time.Time     // when a piece of a long frame last got through, in either direction
	authErr      error         // the server has refused a credential
	closed       bool
}

// A sentRequest is a request without an answer so far.
type sentRequest struct {
	xid   int32
	op    zkwire.Op
	at    time.Time
	watch string                 // the path on which it sets a watch, or empty
	zxid  *atomic.Int64          // where to note the zxid of the answer, or nil
	size  int                    // of its payload
	done  func(code zkwire.Code) // not nil for a request of our own
}

// maxHandshake bounds the answer to a connect request, which has 37 bytes in practice.
const maxHandshake = 1024

// newConnection wraps c, over which the handshake may take this long.
func newConnection(s *session, c net.Conn, timeout time.Duration) (_ *connection, err error) {
	now := time.Now()
	if err := c.SetDeadline(now.Add(timeout)); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	w := &connection{Conn: c, session: s, in: bufio.NewReaderSize(c, 4096), dialled: now}
	if w.lastZxid, err = s.beginHandshake(w); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

// SetReadDeadline and SetWriteDeadline leave the deadline of the handshake alone. zk.Conn would
// wait ten times as long, and without a limit for the second half of the answer.
func (w *connection) SetReadDeadline(t time.Time) error {
	return w.setDeadline(w.Conn.SetReadDeadline, t)
}

func (w *connection) SetWriteDeadline(t time.Time) error {
	return w.setDeadline(w.Conn.SetWriteDeadline, t)
}

func (w *connection) setDeadline(set func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.established {
		return nil
	}
	return set(t)
}

// Write sends one frame of zk.Conn's. It never fails: after an error the connection is cut, and
// zk.Conn learns of that where it reads. An error here would make zk.Conn report that the request
// was not sent. If the error came while zk.Conn sends credentials again, zk.Conn would block for
// ever.
func (w *connection) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.write(p, nil)
	return len(p), nil
}

// write sends one frame. The caller holds writing.
func (w *connection) write(p []byte, done func(code zkwire.Code)) {
	instead, replaced := w.note(p, done)
	if !replaced {
		instead = [][]byte{p}
	}
	w.sendAll(instead)
}

// sendAll sends frames that were noted. The caller holds writing.
func (w *connection) sendAll(frames [][]byte) {
	for _, frame := range frames {
		if err := w.send(frame); err != nil {
			w.cut(err)
			return
		}
	}
}

// request sends a request that zk.Conn knows nothing of: an operation, a path, and the fields after
// the path. It blocks while the network does not take the request.
//
// The caller must have seen an answer to a request of zk.Conn over w. Then the credentials were
// sent, and the watches are set again or about to be.
//
// done is called with the error code of the answer, in order with the events that zk.Conn is told
// of. If the connection ends first, done gets CodeConnectionLoss. If it had ended before, done is
// not called at all.
func (w *connection) request(op zkwire.Op, path string, fields []byte, done func(code zkwire.Code)) {
	w.writing.Lock()
	defer w.writing.Unlock()
	p := make([]byte, 0, zkwire.RequestBody+4+len(path)+len(fields))
	p = zkwire.AppendRequest(p, zkwire.RequestHeader{Xid: firstOwnXid + w.ownXids, Op: op})
	p = append(zkwire.AppendString(p, path), fields...)
	w.ownXids = (w.ownXids + 1) % (1 << 30) // the numbers after these have a meaning
	w.write(zkwire.SetLength(p), done)
}

// piece is how much of a long frame is sent at once. Each piece that gets through is a sign of
// life.
const piece = 16 << 10

func (w *connection) send(frame []byte) error {
	for len(frame) > piece {
		if _, err := w.Conn.Write(frame[:piece]); err != nil {
			return err
		}
		frame = frame[piece:]
		w.noteProgress()
	}
	_, err := w.Conn.Write(frame)
	return err
}

func (w *connection) noteProgress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastProgress = time.Now()
}

// progressed returns when a piece of a long frame last got through.
func (w *connection) progressed() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastProgress
}

// note records a request. If replaced is true, the packets that it returns are to be sent in place
// of p.
//
// In a connect request it writes the newest zxid seen, which zk.Conn would read and write without
// synchronisation.
//
// The first request of zk.Conn to set watches again is replaced by the packets that were prepared
// when the handshake was answered, the first few of them now: see sendRewatch. If zk.Conn has very
// many watches it sends further such requests, which are emptied. So is one that was left over from
// the connection before.
//
// A ping is left out where requests that renew trust take its place. For zk.Conn the answer to any
// request is as good as that to a ping.
func (w *connection) note(p []byte, done func(code zkwire.Code)) (instead [][]byte, replaced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}
	if !w.established {
		zkwire.SetLastZxid(p, w.lastZxid)
		return nil, false
	}
	head, ok := zkwire.ParseRequestHeader(p)
	if !ok {
		return nil, false
	}

	if head.Op == zkwire.OpPing && w.session.replacesPing(w.lastSent, w.sent) {
		return nil, true
	}

	// Servers create an ordinary node if the operation is create and the flags ask for a container.
	// CreateContainer of zk.Conn must not be used, as it reads the answer while that may be
	// written.
	if head.Op == zkwire.OpCreate && binary.BigEndian.Uint32(p[len(p)-4:]) == zk.FlagContainer {
		head.Op = zkwire.OpCreateContainer
		zkwire.SetOp(p, head.Op)
	}

	r := sentRequest{xid: head.Xid, op: head.Op, at: time.Now(), size: len(p) - 4, done: done}
	switch r.op {
	case zkwire.OpCreate:
		fields := zkwire.Decoder{Rest: p[zkwire.RequestBody:]}
		r.zxid = w.session.creations.of(fields.String())
	case zkwire.OpGetData, zkwire.OpExists, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		if done != nil {
			break // zk.Conn has no watch then
		}
		// The fields are the path, with its length before it, and whether to watch the path.
		if fields := p[zkwire.RequestBody:]; len(fields) > 5 && fields[len(fields)-1] != 0 {
			r.watch = string(fields[4 : len(fields)-1])
		}
	case zkwire.OpSetWatches:
		if n := len(w.rewatch); n == 0 || !ownRewatch(w.rewatch[n-1]) { // another request waits for its answer
			w.rewatch = append(w.rewatch, emptyRewatch())
			w.rewatching++
		}
		zkwire.SetXid(w.rewatch[len(w.rewatch)-1], r.xid) // its answer is zk.Conn's
		return w.takeRewatch(rewatchWindow), true
	}
	w.sent, w.lastSent = append(w.sent, r), r.at
	return instead, replaced
}

// Read hands zk.Conn the next bytes of the next frame that is meant for it. After an error the
// connection is cut.
func (w *connection) Read(p []byte) (int, error) {
	n, err := w.read(p)
	if err != nil {
		w.cut(err)
	}
	return n, err
}

func (w *connection) read(p []byte) (int, error) {
	if w.unread == 0 {
		if err := w.nextFrame(); err != nil {
			return 0, err
		}
	}

	arriving := w.progress && w.unread > w.in.Buffered()
	n, err := w.in.Read(p[:min(len(p), w.unread)])
	w.unread -= n
	if arriving && n > 0 {
		w.noteProgress()
	}
	if w.unread == 0 && w.kind != 0 { // not before: zk.Conn sets no watch if the rest does not come
		w.session.watching(w.watched.watch, w.kind)
	}
	return n, err
}

// nextFrame waits for a frame that is meant for zk.Conn. It takes the answers to our own requests
// out of the stream.
func (w *connection) nextFrame() error {
	for {
		done, code, err := w.peekFrame()
		if done == nil {
			return err
		}
		_, err = w.in.Discard(w.unread)
		w.unread = 0
		if err != nil {
			done(zkwire.CodeConnectionLoss)
			return err
		}
		done(code)
	}
}

// peekFrame waits for a frame and looks at its head, which stays in the buffer. It may change the
// zxid there. If the frame answers a request of our own, it returns what to call with which error
// code.
func (w *connection) peekFrame() (done func(code zkwire.Code), code zkwire.Code, err error) {
	w.mu.Lock()
	established := w.established
	w.mu.Unlock()

	head, err := w.in.Peek(4)
	if err != nil && !established && errors.Is(err, io.EOF) {
		err = fmt.Errorf("the server hangs up during the handshake, as one does that is out of its quorum: %w", err)
	}
	if err != nil {
		return nil, 0, err
	}
	size, err := zkwire.PayloadSize(head, maxFrame)
	if err != nil {
		return nil, 0, fmt.Errorf("%w, of at most %d", err, maxFrame)
	}
	if size < zkwire.ReplyBody-4 {
		return nil, 0, fmt.Errorf("frame of %d bytes", size)
	}

	w.progress, w.kind = false, 0
	if !established {
		err = w.handshake(size)
	} else if err = w.checkFrame(size); err == nil {
		head, _ = w.in.Peek(zkwire.ReplyBody) // it is there
		done, code, err = w.answer(head)
	}
	w.unread = 4 + size
	return done, code, err
}

// handshake reads the answer to the connect request, which has this many bytes.
func (w *connection) handshake(size int) error {
	if size > maxHandshake {
		return fmt.Errorf("answer to the connect request has %d bytes", size)
	}
	b, err := w.in.Peek(4 + size)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}

	granted, err := zkwire.ParseConnectResponse(b[4:])
	if err != nil {
		return fmt.Errorf("answer to the connect request: %w", err)
	}
	if granted.SessionID != 0 && granted.Timeout <= 0 { // zk.Conn would panic
		return fmt.Errorf("granted a timeout of %v", granted.Timeout)
	}

	if err := w.Conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	rewatch, err := w.session.connected(w, granted)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.established, w.rewatch, w.rewatching = true, rewatch, len(rewatch)
	return nil
}

// answer notes an answer or an event by the head of its frame, in which it clears the zxid: see
// note. If it answers a request of our own, done is what to call with the code. An error ends the
// connection.
func (w *connection) answer(frame []byte) (done func(code zkwire.Code), code zkwire.Code, err error) {
	head, ok := zkwire.ParseReplyHeader(frame)
	if !ok {
		return nil, 0, zkwire.ErrMalformed
	}
	zkwire.SetReplyZxid(frame, 0)

	w.mu.Lock()
	defer w.mu.Unlock()
	if head.Xid == zkwire.XidEvent {
		w.session.seen(head.Zxid, false)
		return nil, 0, nil
	}
	w.progress = head.Xid >= 0

	r, ok := w.take(head.Xid)
	if !ok {
		w.session.seen(head.Zxid, w.rewatching == 0)
		return nil, 0, nil
	}
	switch {
	case r.op == zkwire.OpSetWatches && head.Code != zkwire.CodeOK: // zk.Conn would only log that
		return nil, 0, fmt.Errorf("watches not set again: error %d", head.Code)
	case r.op == zkwire.OpSetWatches:
		w.rewatching--
		if len(w.rewatch) > 0 {
			w.session.client.spawn(w.sendRewatch)
		}
	case r.op == zkwire.OpAuth && head.Code != zkwire.CodeOK:
		w.authErr = fmt.Errorf("%w: error %d", zk.ErrAuthFailed, head.Code)
	}

	if r.watch != "" {
		w.watched, w.kind = r, setBy(r.op, head.Code)
	}
	if r.zxid != nil && head.Code == zkwire.CodeOK {
		r.zxid.Store(head.Zxid)
	}
	w.session.seen(head.Zxid, w.rewatching == 0)
	w.session.answered(w, r, head.Code)
	w.session.warn(head.Code)
	return r.done, head.Code, nil
}

// take removes the oldest request with this number from sent. The caller holds mu.
func (w *connection) take(xid int32) (r sentRequest, ok bool) {
	i := slices.IndexFunc(w.sent, func(r sentRequest) bool { return r.xid == xid })
	if i < 0 {
		return r, false
	}
	r = w.sent[i]
	if i == 0 && len(w.sent) > 1 { // answers come in order, but for those to pings and credentials
		w.sent = w.sent[1:]
	} else {
		w.sent = slices.Delete(w.sent, i, i+1) // if none is left, the next one takes the same memory
	}
	return r, true
}

// cut ends the connection. zk.Conn then looks for another server. It may be called from anywhere,
// at any time.
func (w *connection) cut(why error) {
	w.mu.Lock()
	first, sent := !w.closed, w.sent
	w.closed = true
	if w.authErr != nil {
		why = w.authErr
	}
	if first {
		w.session.ceased(sent, why)

		// Answers may have arrived that were not looked at yet. They still count: zk.Conn gets
		// them, and sets watches which the session has to know. Our own requests are answered
		// below.
		w.sent = slices.Clone(sent)
		for i := range w.sent {
			if w.sent[i].done != nil {
				w.sent[i].done = func(zkwire.Code) {}
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
			r.done(zkwire.CodeConnectionLoss)
		}
	}
}

// Close is cut, as zk.Conn calls it.
func (w *connection) Close() error {
	w.cut(net.ErrClosed)
	return nil
}
