package recipestest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// answerTimeout is how long one answer may take.
const answerTimeout = 10 * time.Second

// endTimeout is how long ending a session may take, if its client may have resumed it. After that
// we check whether the session has ended.
const endTimeout = 2 * time.Second

var (
	errNoNode  = serverError(zkwire.CodeNoNode)
	errNoAuth  = serverError(zkwire.CodeNoAuth)
	errExpired = errors.New("session expired")
	errShort   = errors.New("short reply")
)

// A serverError is the code with which the server refused a call.
type serverError zkwire.Code

func (e serverError) Error() string { return zkwire.Code(e).String() }

// A rawSession is a session without a client: it has no goroutine, no pings, no reconnects. It
// inspects a test from outside, even if no client could be started. It is not safe for concurrent
// use.
type rawSession struct {
	conn    net.Conn
	id      int64
	chroot  string
	xid     int32
	timeout time.Duration // for an answer
}

// connect opens a session of our own with the first server that accepts it. It blocks until a
// server does, for at most timeout.
func (s *Server) connect(timeout time.Duration) (*rawSession, error) {
	return s.resume(0, make([]byte, zkwire.PasswordSize), timeout)
}

// resume is connect for an existing session. If the session doesn't exist, it fails with
// errExpired.
func (s *Server) resume(id int64, password []byte, timeout time.Duration) (*rawSession, error) {
	deadline := time.Now().Add(timeout)
	hosts, chroot := s.addresses()
	for {
		var errs []error
		for _, host := range hosts {
			w, err := s.handshake(host, id, password)
			if err == nil {
				w.chroot = chroot
				return w, nil
			}
			// Every server would say the same.
			if errors.Is(err, errExpired) {
				return nil, err
			}
			errs = append(errs, err)
		}
		if !time.Now().Before(deadline) {
			return nil, fmt.Errorf("the server cannot be reached: %w", errors.Join(errs...))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// handshake opens or resumes a session at one server.
func (s *Server) handshake(host string, id int64, password []byte) (*rawSession, error) {
	c, err := s.dial("tcp", host, time.Second)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(2 * time.Second))

	var granted zkwire.ConnectResponse
	frame := zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		Timeout: 10 * time.Second, SessionID: id, Password: password,
	})
	if _, err = c.Write(frame); err == nil {
		frame, err = zkwire.ReadFrame(c, maxPacket)
	}

	if err == nil {
		granted, err = zkwire.ParseConnectResponse(frame[4:])
	}
	if err == nil && id != 0 && granted.SessionID != id {
		err = errExpired
	}

	if err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake with %s: %w", host, err)
	}
	return &rawSession{conn: c, id: granted.SessionID, timeout: answerTimeout}, nil
}

// close ends the session.
func (w *rawSession) close() error {
	defer w.conn.Close()
	var refused error
	err := w.do([]call{{zkwire.OpCloseSession, nil}}, func(_ int, _ []byte, err error) { refused = err })
	return errors.Join(err, refused)
}

// endSession ends a client's session on the client's behalf.
func (s *Server) endSession(id int64, password []byte) error {
	deadline := time.Now().Add(answerTimeout)
	for {
		w, err := s.resume(id, password, time.Until(deadline))
		if errors.Is(err, errExpired) {
			return nil
		}
		if err != nil {
			return err
		}
		// The client can win the session back before we end it, and then our request gets no
		// answer. The next handshake shows what happened.
		w.timeout = endTimeout
		if err = w.close(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// absolute returns path with the chroot in front.
func (w *rawSession) absolute(path string) string {
	if path == "/" && w.chroot != "" {
		return w.chroot
	}
	return w.chroot + path
}

// data returns the data of a node for a report, or nil if it cannot be read.
func (w *rawSession) data(path string) (data []byte) {
	w.do([]call{{zkwire.OpGetData, readRequest(w.absolute(path))}}, func(_ int, body []byte, err error) {
		if err == nil {
			d := zkwire.Decoder{Rest: body}
			data = d.Buffer()
		}
	})
	return data
}

// A call is one request.
type call struct {
	op   zkwire.Op
	body []byte
}

// do sends calls without waiting for each answer, and hands the answers to each, in order. It
// returns an error if the connection fails.
func (w *rawSession) do(calls []call, each func(i int, body []byte, err error)) error {
	// Answers have a deadline, so a batch must be small enough for it.
	const batch = 256
	for start := 0; start < len(calls); start += batch {
		end := min(start+batch, len(calls))
		if err := w.doBatch(calls[start:end], func(i int, body []byte, err error) { each(start+i, body, err) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *rawSession) doBatch(calls []call, each func(i int, body []byte, err error)) error {
	w.conn.SetDeadline(time.Now().Add(w.timeout))
	var out []byte
	for i, c := range calls {
		frame := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: w.xid + int32(i) + 1, Op: c.op})
		out = append(out, zkwire.SetLength(append(frame, c.body...))...)
	}

	written := make(chan error, 1)
	go func() { // a server may answer the first call before it reads the last
		_, err := w.conn.Write(out)
		written <- err
	}()
	err := w.answers(len(calls), each)
	if err != nil {
		// This also ends a Write that blocks.
		w.conn.Close()
	}

	return errors.Join(err, <-written)
}

func (w *rawSession) answers(n int, each func(i int, body []byte, err error)) error {
	for i := range n {
		frame, err := zkwire.ReadFrame(w.conn, maxPacket)
		if err != nil {
			return err
		}
		head, ok := zkwire.ParseReplyHeader(frame)
		if !ok {
			return errShort
		}

		w.xid++
		if head.Xid != w.xid {
			return fmt.Errorf("answer %d to call %d", head.Xid, w.xid)
		}
		var refused error
		if head.Code != zkwire.CodeOK {
			refused = serverError(head.Code)
		}
		each(i, frame[zkwire.ReplyBody:], refused)
	}

	return nil
}

func readRequest(path string) []byte {
	return zkwire.AppendBool(zkwire.AppendString(nil, path), false) // no watch
}

func deleteRequest(path string) []byte {
	return zkwire.AppendInt32(zkwire.AppendString(nil, path), -1) // any version
}

// parseChildren reads the answer to getChildren2: the names, and the node's Stat.
func parseChildren(body []byte) (names []string, stat zk.Stat) {
	d := zkwire.Decoder{Rest: body}
	names = d.Strings()
	return names, statIn(d.Rest)
}

// statIn returns the Stat of a node as answers have it. Without the whole of it, all fields are 0.
func statIn(b []byte) (stat zk.Stat) {
	_, _ = binary.Decode(b, binary.BigEndian, &stat) // which decodes all of it or nothing
	return stat
}
