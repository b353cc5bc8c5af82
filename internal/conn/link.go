package conn

import (
	"bufio"
	"cmp"
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

	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Our own requests, which zk.Conn does not know about, have the xids from firstOwnXid on. (The xids
// after these have a meaning.)
const (
	firstOwnXid = math.MinInt32
	ownXids     = 1 << 30
)

// ownXid returns the xid of a request of our own. No connection of the session uses the xid of an
// earlier one: a server takes the commit of an earlier write with the same xid, which came through
// another server, for the commit of this one.
func (c *Conn) ownXid() int32 { return firstOwnXid + int32(c.ownXids.Add(1)%ownXids) }

// A Link is one connection to one server, between zk.Conn and the network. It sees the handshake,
// and notes when requests are sent and answered. It has its own deadline for the handshake, and can
// be cut at any time.
//
// zk.Conn calls Read from one goroutine and Write from another. All other methods are safe for
// concurrent use.
type Link struct {
	net.Conn
	conn *Conn
	in   *bufio.Reader

	// The frame being read. Only Read uses these fields.
	unread int // how many of its bytes weren't read yet
	// progress is set if the frame's bytes count as progress: it answers a request that waits its
	// turn (a ping doesn't).
	progress bool
	// If kind isn't 0, the frame answers the request watched, and sets a watch of this kind.
	watched sentRequest
	kind    watchKinds

	writing     turn        // held while a frame is written
	single      [1][]byte   // for note; protected by writing
	established atomic.Bool // the handshake has ended

	dialled    time.Time
	former     bool          // the address may belong to another server today (see target)
	probed     bool          // the server has just answered another handshake
	identified chan struct{} // closed once all credentials were sent, or the connection has ended

	mu           sync.Mutex    // protects the fields below; nothing blocks while it is held
	unsent       int           // how many credentials weren't sent yet
	proved       int           // how many credentials the server has accepted
	sent         []sentRequest // requests without an answer, oldest first
	lastSent     time.Time     // when the last request was sent
	lastZxid     int64         // the highest zxid of earlier connections
	rewatch      [][]byte      // packets that set watches again and weren't sent yet
	rewatching   int           // how many of these packets weren't answered yet
	lastProgress time.Time     // when a piece of a long frame last got through, in either direction
	authErr      error         // set if the server has refused a credential
	closed       bool
}

// A turn is a mutex that is held while a frame is written to the network. Its waiters count as
// blocked in a testing/synctest bubble (waiters of a sync.Mutex don't).
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// A sentRequest is a request that wasn't answered yet.
type sentRequest struct {
	xid   int32
	op    zkwire.Op
	at    time.Time
	watch string        // the path on which it sets a watch, or empty
	zxid  *atomic.Int64 // gets the zxid of the answer, or nil
	done  func(Reply)   // not nil for a request of our own
}

// A Reply is the answer to a request of our own.
type Reply struct {
	Code zkwire.Code // CodeConnectionLoss if the connection ended before the answer
	By   trust.Witness
	Body []byte // nil if it is unusually long
}

var lostReply = Reply{Code: zkwire.CodeConnectionLoss}

// MaxFrame bounds a frame of a server, because zk.Conn allocates a whole frame before it reads it.
// The longest answers are listings (a listing of five million contenders fits).
const MaxFrame = 256 << 20

// firstBuffer is how much room for answers zk.Conn makes for a new connection. It makes more when a
// frame needs it, see nextFrame.
const firstBuffer = 4096

// newLink wraps c. The handshake may take this long.
func newLink(owner *Conn, c net.Conn, timeout time.Duration) (_ *Link, err error) {
	now := time.Now()
	if err := c.SetDeadline(now.Add(timeout)); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	w := &Link{
		Conn: c, conn: owner, in: bufio.NewReaderSize(c, 4096), dialled: now,
		writing: make(turn, 1), identified: make(chan struct{}), unsent: len(owner.ensemble.Credentials),
	}
	if w.unsent == 0 {
		close(w.identified)
	}

	if w.lastZxid, err = owner.beginHandshake(w); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	return w, nil
}

// SetReadDeadline and SetWriteDeadline keep the handshake's own deadline. zk.Conn would wait ten
// times as long, and for ever for the second half of the answer.
func (w *Link) SetReadDeadline(t time.Time) error {
	if !w.established.Load() {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

func (w *Link) SetWriteDeadline(t time.Time) error {
	if !w.established.Load() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}

// Write sends one frame of zk.Conn's. It never fails: after an error it cuts the connection, so
// that zk.Conn gets the error from Read. If Write returned the error, zk.Conn would report that the
// request wasn't sent (it may have been). And if the error came while zk.Conn sends credentials
// again, zk.Conn would block for ever.
func (w *Link) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.write(p, nil)
	return len(p), nil
}

// write sends one frame, or frames instead of it: see note. The caller holds writing.
func (w *Link) write(p []byte, done func(Reply)) {
	frames, open := w.note(p, done)
	if !open && done != nil {
		done(lostReply)
	}
	w.sendAll(frames)
}

// sendAll sends frames that were noted. The caller holds writing.
func (w *Link) sendAll(frames [][]byte) {
	for _, frame := range frames {
		if err := w.send(frame); err != nil {
			w.Cut(err)
			return
		}
	}
}

// Send sends a request of our own: an operation, a path, and the fields after the path. It blocks
// until the credentials were sent (some servers end a session that asks for something before) and
// until the network takes the request.
//
// done gets the answer, in order with the events that zk.Conn receives, or CodeConnectionLoss when
// the connection ends. It must not block or keep the body.
func (w *Link) Send(op zkwire.Op, path string, fields []byte, done func(Reply)) {
	<-w.identified
	w.writing.Lock()
	defer w.writing.Unlock()
	p := make([]byte, 0, zkwire.RequestBody+4+len(path)+len(fields))
	p = zkwire.AppendRequest(p, zkwire.RequestHeader{Xid: w.conn.ownXid(), Op: op})
	if op != zkwire.OpWhoAmI {
		p = append(zkwire.AppendString(p, path), fields...)
	}
	w.write(zkwire.SetLength(p), done)
}

// Ask is a Send that waits for the answer.
func (w *Link) Ask(op zkwire.Op, path string, fields []byte) Reply {
	answered := make(chan Reply, 1)
	w.Send(op, path, fields, func(r Reply) {
		r.Body = slices.Clone(r.Body)
		answered <- r
	})
	return <-answered
}

// piece is how much of a long frame is sent at once. Each piece that gets through is a sign of
// life.
const piece = 16 << 10

func (w *Link) send(frame []byte) error {
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

func (w *Link) noteProgress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastProgress = time.Now()
}

// Dialled returns when the connection was made.
func (w *Link) Dialled() time.Time { return w.dialled }

// Progressed returns when a piece of a long frame last got through.
func (w *Link) Progressed() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastProgress
}

// note records a request, unless the connection has ended. It returns the frames to send for it.
//
// In a connect request, note writes the highest zxid seen (zk.Conn would read and write it without
// synchronisation).
//
// zk.Conn's first request to set watches again is replaced by the packets that were prepared when
// the handshake was answered. Only the first few are sent now (see sendRewatch). If zk.Conn has
// very many watches it sends more such requests, and they are emptied. So is a request that was
// left over from the previous connection.
//
// A ping is left out if requests that renew trust take its place. To zk.Conn, any answer is as good
// as the answer to a ping.
func (w *Link) note(p []byte, done func(Reply)) (frames [][]byte, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.single[0] = p
	frames = w.single[:]
	if w.closed {
		return nil, false
	}
	if !w.established.Load() {
		zkwire.SetLastZxid(p, w.lastZxid)
		return frames, true
	}

	head, ok := zkwire.ParseRequestHeader(p)
	if !ok {
		return frames, true
	}

	if head.Op == zkwire.OpPing && w.needsNoPing() {
		return nil, true
	}

	// Don't use zk.Conn.CreateContainer: it reads the answer without a lock (a data race). Callers
	// use Create with the container flag instead. Servers would create an ordinary node for that,
	// so the operation is changed here.
	if head.Op == zkwire.OpCreate && binary.BigEndian.Uint32(p[len(p)-4:]) == zk.FlagContainer {
		head.Op = zkwire.OpCreateContainer
		zkwire.SetOp(p, head.Op)
	}

	r := sentRequest{xid: head.Xid, op: head.Op, at: time.Now(), done: done}
	switch r.op {
	case zkwire.OpCreate:
		path := p[zkwire.RequestBody+4:] // behind its length
		r.zxid = w.conn.creation(path[:binary.BigEndian.Uint32(p[zkwire.RequestBody:])])
	case zkwire.OpGetData, zkwire.OpExists, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		if done != nil {
			break // no watch of zk.Conn
		}
		// The fields are the length of the path, the path, and whether to watch it.
		if fields := p[zkwire.RequestBody:]; len(fields) > 5 && fields[len(fields)-1] != 0 {
			r.watch = string(fields[4 : len(fields)-1])
		}
	case zkwire.OpAuth:
		if w.unsent--; w.unsent == 0 {
			close(w.identified)
		}
	case zkwire.OpSetWatches:
		if n := len(w.rewatch); n == 0 || !ownRewatch(w.rewatch[n-1]) { // the last packet is another request of zk.Conn
			w.rewatch = append(w.rewatch, emptyRewatch())
			w.rewatching++
		}
		zkwire.SetXid(w.rewatch[len(w.rewatch)-1], r.xid) // zk.Conn waits for this answer
		return w.takeRewatch(rewatchWindow), true
	}

	w.sent, w.lastSent = append(w.sent, r), r.at
	return frames, true
}

// needsNoPing reports whether the host's own requests replace a ping. The caller holds mu.
func (w *Link) needsNoPing() bool {
	timeout := w.conn.Timeout()
	late := len(w.sent) > 0 && time.Since(w.sent[0].at) > trust.Prompt.Of(timeout)
	return !late && time.Since(w.lastSent) < trust.Silence.Of(timeout) && w.conn.host.Holds()
}

// Read gives zk.Conn the next bytes of the next frame. After an error it cuts the connection.
func (w *Link) Read(p []byte) (n int, err error) {
	if w.unread == 0 {
		if err := w.nextFrame(); err != nil {
			w.Cut(err)
			return 0, err
		}
	}

	arriving := w.progress && w.unread > w.in.Buffered()
	n, err = w.in.Read(p[:min(len(p), w.unread)])
	w.unread -= n
	if arriving && n > 0 {
		w.noteProgress()
	}

	if w.unread == 0 && w.kind != 0 { // not before: if the rest never arrives, zk.Conn sets no watch
		w.conn.watching(w.watched.watch, w.kind)
	}
	if err != nil {
		w.Cut(err)
	}

	return n, err
}

// nextFrame waits for the next frame and looks at its head, which stays in the buffer. It can
// change the zxid there. It also changes the xid of an answer to our own request, so that zk.Conn
// takes it for the answer to a ping and ignores it.
func (w *Link) nextFrame() error {
	established := w.established.Load()
	head, err := w.in.Peek(4)
	if err != nil && !established && errors.Is(err, io.EOF) {
		if w.probed {
			w.conn.refusedAgain()
		}
		err = fmt.Errorf("the server hangs up during the handshake: it is out of its quorum, has too many connections "+
			"from this host (maxClientCnxns) or altogether, is behind this client, or expects TLS at this port: %w", err)
	}

	if err != nil {
		return err
	}
	most := cmp.Or(w.conn.ensemble.Incoming, MaxFrame)
	size, err := zkwire.PayloadSize(head, most)
	if err != nil {
		return fmt.Errorf("%w, of at most %d", err, most)
	}
	if size > firstBuffer { // zk.Conn looks at this limit next, in this goroutine
		zk.WithMaxBufferSize(most)(w.conn.zk)
	}

	if size < zkwire.ReplyBody-4 {
		return fmt.Errorf("frame of %d bytes", size)
	}

	w.progress, w.kind = false, 0
	if !established {
		err = w.handshake(size)
	} else if head, err = w.in.Peek(min(4+size, zkwire.ReplyBody+4)); err == nil {
		var done func()
		if done, err = w.answer(head, size); done != nil {
			done()
		}
	}

	w.unread = 4 + size
	return err
}

// handshake reads the answer to the connect request (size bytes).
func (w *Link) handshake(size int) error {
	b, err := w.in.Peek(4 + size) // which fails if that is more than the buffer has room for
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

	// This comes before the session sends its own requests, because note would take the first of
	// them for the connect request.
	w.established.Store(true)
	rewatch, err := w.conn.connected(w, granted)
	if err != nil {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.rewatch, w.rewatching = rewatch, len(rewatch)
	return nil
}

// answer handles an answer or an event by the head of its frame. It sets the head's zxid to 0: see
// note. If the frame (size bytes) answers a request of our own, the caller must call done. An error
// ends the connection.
func (w *Link) answer(frame []byte, size int) (done func(), err error) {
	head, ok := zkwire.ParseReplyHeader(frame)
	if !ok {
		return nil, zkwire.ErrMalformed
	}
	zkwire.SetReplyZxid(frame, 0)

	w.mu.Lock()
	defer w.mu.Unlock()
	if head.Xid == zkwire.XidEvent {
		w.conn.seen(head.Zxid, false)
		return nil, nil
	}

	w.progress = head.Xid >= 0

	r, ok := w.take(head.Xid)
	if !ok {
		w.conn.seen(head.Zxid, w.rewatching == 0)
		return nil, nil
	}

	switch {
	case r.op == zkwire.OpSetWatches && head.Code != zkwire.CodeOK: // zk.Conn would only log that
		w.conn.seen(head.Zxid, false)
		return nil, fmt.Errorf("watches not set again: error %d", head.Code)
	case r.op == zkwire.OpSetWatches:
		w.rewatching--
		if len(w.rewatch) > 0 {
			w.conn.ensemble.Spawn(w.sendRewatch)
		}
	case r.op == zkwire.OpCloseSession && head.Code == zkwire.CodeOK: // the user closed it, unless the session has ended
		w.conn.ensemble.Spawn(func() { w.conn.host.Gone(ErrUserClosed) })
	case r.op == zkwire.OpAuth && head.Code != zkwire.CodeOK:
		w.authErr = fmt.Errorf("%w: error %d", zk.ErrAuthFailed, head.Code)
	}

	if r.watch != "" {
		w.watched, w.kind = r, setBy(r.op, head.Code)
	}
	if r.zxid != nil && head.Code == zkwire.CodeOK {
		r.zxid.Store(head.Zxid)
	}

	code := head.Code
	first := zkwire.Decoder{Rest: frame[zkwire.ReplyBody:]}
	if r.op == zkwire.OpMulti && zkwire.Op(first.Int32()) == zkwire.OpError {
		code = zkwire.CodeRuntimeInconsistency
	}
	by := trust.WitnessOf(r.op, code, head.Zxid)
	w.conn.seen(head.Zxid, w.rewatching == 0)
	w.conn.answered(w, r, head.Code, by)
	w.conn.warn(head.Code)

	if r.done == nil {
		return nil, nil
	}
	zkwire.SetXid(frame, zkwire.XidPing)
	if w.closed { // Cut has answered it
		return nil, nil
	}

	return func() {
		answer := Reply{Code: head.Code, By: by}
		if whole, err := w.in.Peek(4 + size); err == nil {
			answer.Body = whole[zkwire.ReplyBody:]
		}
		r.done(answer)
	}, nil
}

// take removes the oldest request with this xid from sent. The caller holds mu.
func (w *Link) take(xid int32) (r sentRequest, ok bool) {
	i := slices.IndexFunc(w.sent, func(r sentRequest) bool { return r.xid == xid })
	if i < 0 {
		return r, false
	}
	r = w.sent[i]
	if i == 0 && len(w.sent) > 1 { // answers come in order, except to pings and credentials
		w.sent = w.sent[1:]
	} else {
		w.sent = slices.Delete(w.sent, i, i+1) // if none is left, the next request uses the same memory
	}

	return r, true
}

// Cut ends the connection. zk.Conn then looks for another server. Any goroutine may call it at any
// time.
func (w *Link) Cut(why error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	if w.authErr != nil { // a server that refuses a credential then hangs up
		why = w.authErr
	}
	if w.unsent > 0 {
		w.unsent = 0
		close(w.identified)
	}
	// Answers may have arrived that Read hasn't looked at yet. They still count (except to our own
	// requests): zk.Conn gets them and sets watches, and the session must know those.
	sent := slices.Clone(w.sent)
	w.mu.Unlock()

	w.Conn.Close()
	w.conn.disconnected(w, why)

	for _, r := range sent {
		if r.done != nil {
			r.done(lostReply)
		}
	}
}

// Close is Cut. zk.Conn calls it.
func (w *Link) Close() error {
	w.Cut(net.ErrClosed)
	return nil
}

// sendRewatch sends the next packet that sets watches again, after another packet was answered.
func (w *Link) sendRewatch() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	next := w.takeRewatch(1)
	w.mu.Unlock()
	w.sendAll(next)
}

// takeRewatch returns at most n of the packets that set watches again, and notes them as sent. The
// caller holds mu and writing.
func (w *Link) takeRewatch(n int) (next [][]byte) {
	if w.closed {
		return nil
	}
	n = min(n, len(w.rewatch))
	next, w.rewatch = w.rewatch[:n], w.rewatch[n:]

	for _, p := range next {
		head, _ := zkwire.ParseRequestHeader(p)
		w.sent = append(w.sent, sentRequest{xid: head.Xid, op: head.Op, at: time.Now()})
	}

	return next
}
