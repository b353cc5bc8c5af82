package recipestest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// answerTimeout is how long one answer may take.
const answerTimeout = 10 * time.Second

// closeTimeout is how long the answer to a close may take before we look whether the session is
// over. The client may have taken the session back meanwhile.
const closeTimeout = 2 * time.Second

var (
	errNoNode  = serverError(-101)
	errNoAuth  = serverError(-102)
	errExpired = errors.New("session expired")
	errShort   = errors.New("short reply")
)

type serverError int32

func (e serverError) Error() string { return fmt.Sprintf("server error %d", int32(e)) }

// A rawSession is a session without a client: it has no goroutine, no pings and no reconnect. The
// kit uses it to inspect the server at the end of a test, when no client could be started.
type rawSession struct {
	conn    net.Conn
	chroot  string
	xid     int32
	timeout time.Duration // for an answer
}

// connect opens a session of our own with the first server that accepts it. It tries for timeout.
func (s *Server) connect(timeout time.Duration) (*rawSession, error) {
	return s.resume(0, make([]byte, 16), timeout)
}

// resume is connect for an existing session. It fails with errExpired if the session is over.
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

// greet does the handshake with one server.
func (s *Server) handshake(host string, id int64, password []byte) (*rawSession, error) {
	c, err := s.dial("tcp", host, time.Second)
	if err != nil {
		return nil, err
	}

	body := binary.BigEndian.AppendUint32(nil, 0)          // protocol version
	body = binary.BigEndian.AppendUint64(body, 0)          // last zxid seen
	body = binary.BigEndian.AppendUint32(body, 10_000)     // timeout, ms
	body = binary.BigEndian.AppendUint64(body, uint64(id)) // 0: a new session
	body = appendBuffer(body, password)
	c.SetDeadline(time.Now().Add(2 * time.Second))
	var frame []byte
	if _, err = c.Write(appendBuffer(nil, body)); err == nil {
		frame, err = readPacket(c)
	}

	switch {
	case err != nil:
	case len(frame) < 20:
		err = errShort
	case id != 0 && int64(binary.BigEndian.Uint64(frame[12:])) != id:
		err = errExpired
	}

	if err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake with %s: %w", host, err)
	}

	return &rawSession{conn: c, timeout: answerTimeout}, nil
}

// close ends the session.
func (r *rawSession) close() error {
	defer r.conn.Close()
	var refused error
	err := r.do([]call{{OpClose, nil}}, func(_ int, _ []byte, err error) { refused = err })
	return errors.Join(err, refused)
}

// endSession ends a session on behalf of its client.
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
		// The client may take the session back before we close it. Then our request is not
		// answered, and the next handshake shows whether the session is over.
		w.timeout = closeTimeout
		if err = w.close(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// data returns the data of a node, or nil if it cannot be read.
func (r *rawSession) data(path string) (data []byte) {
	r.do([]call{{OpGetData, readRequest(r.chroot + path)}}, func(_ int, body []byte, err error) {
		if err == nil {
			data, _ = cutBuffer(body)
		}
	})
	return data
}

type call struct {
	op   Op
	body []byte
}

const opGetChildren2 Op = 12

// do sends all calls without waiting for answers in between, and passes the answers to each, in
// order. It returns an error if the connection fails.
func (r *rawSession) do(calls []call, each func(i int, body []byte, err error)) error {
	const batch = 256
	for start := 0; start < len(calls); start += batch {
		end := min(start+batch, len(calls))
		if err := r.doBatch(calls[start:end], func(i int, body []byte, err error) { each(start+i, body, err) }); err != nil {
			return err
		}
	}

	return nil
}

func (r *rawSession) doBatch(calls []call, each func(i int, body []byte, err error)) error {
	r.conn.SetDeadline(time.Now().Add(r.timeout))
	var out []byte
	for i, c := range calls {
		head := binary.BigEndian.AppendUint32(nil, uint32(r.xid+int32(i)+1))
		head = binary.BigEndian.AppendUint32(head, uint32(c.op))
		out = appendBuffer(out, append(head, c.body...))
	}

	written := make(chan error, 1)
	go func() { // the server may answer the first call before it reads the last
		_, err := r.conn.Write(out)
		written <- err
	}()

	err := r.answers(len(calls), each)
	if err != nil {
		r.conn.Close()
	}

	return errors.Join(err, <-written)
}

func (r *rawSession) answers(n int, each func(i int, body []byte, err error)) error {
	for i := range n {
		frame, err := readPacket(r.conn)
		if err != nil {
			return err
		}
		if len(frame) < 20 {
			return errShort
		}
		r.xid++
		if xid := int32(binary.BigEndian.Uint32(frame[4:])); xid != r.xid {
			return fmt.Errorf("answer %d to call %d", xid, r.xid)
		}
		var refused error
		if code := int32(binary.BigEndian.Uint32(frame[16:])); code != 0 {
			refused = serverError(code)
		}
		each(i, frame[20:], refused)
	}

	return nil
}

func readRequest(path string) []byte {
	return append(appendBuffer(nil, []byte(path)), 0) // no watch
}

func deleteRequest(path string) []byte {
	return binary.BigEndian.AppendUint32(appendBuffer(nil, []byte(path)), math.MaxUint32) // any version
}

// parseChildren reads the answer to getChildren2: names, then the node's Stat.
func parseChildren(body []byte) (names []string, stat []byte) {
	if len(body) < 4 {
		return nil, nil
	}

	n, rest := binary.BigEndian.Uint32(body), body[4:]
	for range n {
		var name []byte
		if name, rest = cutBuffer(rest); name == nil {
			return nil, nil
		}
		names = append(names, string(name))
	}

	return names, rest
}

// ownerIn returns the session of an ephemeral node's Stat, 0 of other nodes.
func ownerIn(stat []byte) int64 {
	const offset = 44
	if len(stat) < offset+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(stat[offset:]))
}

func appendBuffer(b, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

// cutBuffer cuts the first buffer off b. data is nil if there is none.
func cutBuffer(b []byte) (data, rest []byte) {
	if len(b) < 4 {
		return nil, nil
	}

	size := int32(binary.BigEndian.Uint32(b))
	if size < 0 || int(size) > len(b)-4 {
		return nil, nil
	}

	return b[4 : 4+size], b[4+size:]
}
