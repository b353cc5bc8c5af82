package protocol

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Create is that of zk.Conn, for what is given to [Do] and [Settle]. Unlike that it creates containers, too. What is too
// large for any server it refuses with [ErrTooLarge], before anything is sent: such a request would cost all users of
// the session their connection. What is too large for this server Do and Settle find out. It is safe for concurrent use.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	return send(headerSize+createSize(path, data, acl), func() (string, error) {
		return c.Create(path, data, flags, acl)
	})
}

// Set is that of zk.Conn, and refuses what is too large as [Create] does.
func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	return send(headerSize+setSize(path, data), func() (*zk.Stat, error) { return c.Set(path, data, version) })
}

// Multi is that of zk.Conn, and refuses what is too large as [Create] does. One size above a megabyte would make zk.Conn
// panic.
func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) {
	return send(MultiSize(ops...), func() ([]zk.MultiResponse, error) { return c.Multi(ops...) })
}

// MultiSize returns the size of the request that [Multi] makes of these operations.
func MultiSize(ops ...any) int {
	size := headerSize + multiHeaderSize
	for _, op := range ops {
		size += multiHeaderSize
		switch op := op.(type) {
		case *zk.CreateRequest:
			size += createSize(op.Path, op.Data, op.Acl)
		case *zk.SetDataRequest:
			size += setSize(op.Path, op.Data)
		case *zk.DeleteRequest:
			size += 4 + len(op.Path) + 4
		case *zk.CheckVersionRequest:
			size += 4 + len(op.Path) + 4
		}
	}
	return size
}

// The sizes of what a request consists of. A string and a buffer have their length before them, in four bytes.
const (
	headerSize      = 4 + 4     // xid, operation
	multiHeaderSize = 4 + 1 + 4 // operation, whether it is the last, error
)

func createSize(path string, data []byte, acl []zk.ACL) int {
	return 4 + len(path) + 4 + len(data) + aclSize(acl) + 4
}

func setSize(path string, data []byte) int { return 4 + len(path) + 4 + len(data) + 4 }

func aclSize(acl []zk.ACL) int {
	size := 4
	for _, a := range acl {
		size += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
	}
	return size
}

// maxRequest is the size of the largest request that a server with the default jute.maxbuffer takes.
const maxRequest = sendBuffer - 4

func send[T any](size int, request func() (T, error)) (v T, err error) {
	if size > maxRequest {
		return v, fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, size, maxRequest)
	}
	v, err = request()
	if err != nil && outcomeOf(err) == unknown {
		err = &unanswered{err, size}
	}
	return v, err
}

// An unanswered is the error of a request of this size that got no answer.
type unanswered struct {
	error
	size int
}

func (u *unanswered) Unwrap() error { return u.error }

// A server refuses a request that is larger than its jute.maxbuffer by ending the connection, and so do some that do not
// know the operation. A limits is what a session has seen of that.
type limits struct {
	taken      int  // the size of the largest request that was answered
	refused    int  // of the largest without an answer on the last connection, if that was ended by the server; or 0
	containers int  // connections in a row that were ended with nothing unanswered but a request for a container
	plain      bool // there are no containers
}

// suspicious is the size below which no request is taken for refused: real servers have a limit far above that.
const suspicious = 32 << 10

// ended notes what a connection ended with.
func (l *limits) ended(sent []sentRequest, byServer bool) {
	l.refused = 0
	if !byServer {
		return
	}
	sent = slices.DeleteFunc(slices.Clone(sent), func(r sentRequest) bool { return r.xid <= 0 }) // pings
	for _, r := range sent {
		l.refused = max(l.refused, r.size)
	}
	if l.refused <= max(suspicious, l.taken) {
		l.refused = 0
	}
	if len(sent) == 1 && sent[0].op == zkwire.OpCreateContainer {
		l.containers++
		l.plain = l.plain || l.containers > 1
	}
}

// took notes an answer.
func (l *limits) took(r sentRequest, code zkwire.Code) {
	l.taken = max(l.taken, r.size)
	if r.op == zkwire.OpCreateContainer {
		l.containers = 0
		l.plain = l.plain || code == zkwire.CodeUnimplemented
	}
}

// refuses reports whether the server seems to have ended the last connection because of the request that err is about.
func (s *session) refuses(err error) bool {
	var u *unanswered
	if !errors.As(err, &u) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits.refused == u.size
}

// tooLarge is the error of a request that was refused.
func (s *session) tooLarge(err error) error {
	var u *unanswered
	errors.As(err, &u)
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: the server ends the connection at a request of %d bytes, and has taken one of %d: "+
		"its jute.maxbuffer is in between", ErrTooLarge, u.size, s.limits.taken)
}

// byOtherSide reports whether an error of a connection says that the other side has ended it.
func byOtherSide(err error) bool {
	var broken *net.OpError
	switch {
	case errors.Is(err, net.ErrClosed):
		return false
	case errors.As(err, &broken):
		return !broken.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}
