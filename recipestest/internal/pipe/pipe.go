// Package pipe makes connections in memory for the embedded server.
package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Address is the address that both ends of a connection in memory report.
const Address = "127.0.0.1:2181"

// capacity is the number of bytes that a connection in memory buffers in each direction.
const capacity = 64 << 10

// New returns the two ends of a connection in memory. They have buffers (those of net.Pipe don't),
// so a writer needn't wait for the reader. They wait only on condition variables and on timers of
// the waiting goroutine, so they can be used in a testing/synctest bubble.
func New() (client, server *Conn) {
	up, down := newStream(), newStream()
	return &Conn{in: down, out: up}, &Conn{in: up, out: down}
}

// A Conn is one end of a connection in memory. It is safe for concurrent use.
type Conn struct{ in, out *stream }

// Read implements net.Conn.
func (p *Conn) Read(b []byte) (int, error) { return p.in.read(b) }

// Write implements net.Conn.
func (p *Conn) Write(b []byte) (int, error) { return p.out.write(b) }

// Close implements net.Conn. The other end still reads what was written before.
func (p *Conn) Close() error {
	p.out.closeWriter()
	p.in.closeReader()
	return nil
}

// CloseWrite ends the stream in this end's direction, like CloseWrite of net.TCPConn.
func (p *Conn) CloseWrite() error {
	p.out.closeWriter()
	return nil
}

// LocalAddr implements net.Conn.
func (p *Conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (p *Conn) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn.
func (p *Conn) SetDeadline(t time.Time) error {
	p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (p *Conn) SetReadDeadline(t time.Time) error {
	p.in.setDeadline(&p.in.readDeadline, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *Conn) SetWriteDeadline(t time.Time) error {
	p.out.setDeadline(&p.out.writeDeadline, t)
	return nil
}

type address struct{}

func (address) Network() string { return "tcp" }
func (address) String() string  { return Address }

// A stream is one direction of a pipe.
type stream struct {
	mu            sync.Mutex // protects the fields below
	changed       sync.Cond
	buf           []byte
	off           int // offset of the first unread byte in buf
	readDeadline  time.Time
	writeDeadline time.Time
	readerClosed  bool
	writerClosed  bool
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for {
		switch {
		case s.readerClosed:
			return 0, net.ErrClosed
		case expired(s.readDeadline):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case s.off < len(s.buf):
			n := copy(b, s.buf[s.off:])
			if s.off += n; s.off == len(s.buf) {
				s.buf, s.off = s.buf[:0], 0
			}
			s.changed.Broadcast()
			return n, nil
		case s.writerClosed:
			return 0, io.EOF
		}
		s.wait(s.readDeadline)
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	written := 0

	for {
		switch {
		case s.writerClosed:
			return written, net.ErrClosed
		case s.readerClosed:
			return written, io.ErrClosedPipe
		case expired(s.writeDeadline):
			return written, os.ErrDeadlineExceeded
		case written == len(b):
			return written, nil
		}

		if n := min(len(b)-written, capacity-(len(s.buf)-s.off)); n > 0 {
			if s.off > 0 { // moves less than was read, in the long run
				s.buf, s.off = s.buf[:copy(s.buf, s.buf[s.off:])], 0
			}
			s.buf = append(s.buf, b[written:written+n]...)
			written += n
			s.changed.Broadcast()
			continue
		}
		s.wait(s.writeDeadline)
	}
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// wait waits for a change or the deadline. The caller holds mu.
func (s *stream) wait(deadline time.Time) {
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
		defer timer.Stop()
	}
	s.changed.Wait()
}

func (s *stream) setDeadline(field *time.Time, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*field = t
	s.changed.Broadcast()
}

func (s *stream) closeWriter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writerClosed = true
	s.changed.Broadcast()
}

// closeReader closes the stream for reading and discards the unread bytes.
func (s *stream) closeReader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readerClosed = true
	s.buf, s.off = nil, 0
	s.changed.Broadcast()
}
