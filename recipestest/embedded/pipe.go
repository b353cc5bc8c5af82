package embedded

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memoryAddress is the address that both ends of a connection in memory report.
const memoryAddress = "127.0.0.1:2181"

// pipeCapacity is the number of bytes that a connection in memory buffers in each direction.
const pipeCapacity = 64 << 10

// newPipe returns the two ends of a connection in memory. Unlike those of net.Pipe they buffer, so
// a writer need not wait for the reader. All waiting is on condition variables and on timers that
// the waiting goroutine creates. So it stays within a testing/synctest bubble.
func newPipe() (client, server *pipe) {
	up, down := newStream(), newStream()
	return &pipe{in: down, out: up}, &pipe{in: up, out: down}
}

// A pipe is one end of a connection in memory.
type pipe struct{ in, out *stream }

func (p *pipe) Read(b []byte) (int, error)  { return p.in.read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.out.write(b) }

func (p *pipe) Close() error {
	p.out.closeWriter()
	p.in.closeReader()
	return nil
}

// CloseWrite ends the stream in this end's direction, as net.TCPConn's CloseWrite does.
func (p *pipe) CloseWrite() error {
	p.out.closeWriter()
	return nil
}

func (p *pipe) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *pipe) RemoteAddr() net.Addr { return pipeAddr{} }

func (p *pipe) SetDeadline(t time.Time) error {
	p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

func (p *pipe) SetReadDeadline(t time.Time) error {
	p.in.setDeadline(&p.in.readDeadline, t)
	return nil
}

func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.out.setDeadline(&p.out.writeDeadline, t)
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "tcp" }
func (pipeAddr) String() string  { return memoryAddress }

// A stream is one direction of a pipe.
type stream struct {
	mu            sync.Mutex // guards the fields below
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

		if n := min(len(b)-written, pipeCapacity-(len(s.buf)-s.off)); n > 0 {
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
