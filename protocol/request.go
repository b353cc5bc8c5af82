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

// Create calls Create of c. Call it from the function that is given to [Do] or [DoOnce]. It blocks
// until the server has answered or the connection breaks.
//
// If the flags are [zk.FlagContainer] it creates a container, which zk.Conn's Create does not. A
// request that is too large for any server would cost all users of the session their connection:
// Create refuses it with [ErrTooLarge] and sends nothing. Do and DoOnce find out what is too large
// for this server. All other errors are those of c. Create is safe for concurrent use.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	size := headerSize + createSize(path, data, acl)
	if err := refuse(size); err != nil {
		return "", err
	}
	made, err := c.Create(path, data, flags, acl)
	return made, denied(withSize(err, size), "create", path)
}

// Set calls Set of c. It refuses data that is too large as [Create] does.
func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	size := headerSize + setSize(path, data)
	if err := refuse(size); err != nil {
		return nil, err
	}
	stat, err := c.Set(path, data, version)
	return stat, denied(withSize(err, size), "write", path)
}

// Multi calls Multi of c. It refuses transactions that are too large as [Create] does. One size
// above a megabyte would make zk.Conn panic.
func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) {
	size := MultiSize(ops...)
	if err := refuse(size); err != nil {
		return nil, err
	}
	answers, err := c.Multi(ops...)
	return answers, deniedIn(withSize(err, size), answers, ops)
}

// MultiSize returns the size in bytes of the request that [Multi] sends for these operations.
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

// The sizes of the parts of a request. Strings and buffers have a length of four bytes before them.
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

// maxRequest is the size of the largest request that a server with the default jute.maxbuffer
// accepts.
const maxRequest = sendBuffer - 4

// refuse returns an error if a request of this size is above maxRequest.
func refuse(size int) error {
	if size > maxRequest {
		return fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, size, maxRequest)
	}
	return nil
}

// withSize returns err, of a request of this size, with the size if the request got no answer.
func withSize(err error, size int) error {
	if err != nil && outcomeOf(err) == unknown {
		err = &unanswered{err, size}
	}
	return err
}

// An unanswered is the error of a request that got no answer, with the size of that request.
type unanswered struct {
	error
	size int
}

func (u *unanswered) Unwrap() error { return u.error }

// A limits is what a session has learnt about the requests that its servers refuse. A server ends
// the connection at a request that is larger than its jute.maxbuffer. Some servers end it at an
// operation that they do not know.
type limits struct {
	taken int // the size of the largest request that was answered

	// refused is the size of the largest request without an answer on the last connection, if the
	// server has ended that connection, and 0 otherwise.
	refused int

	containers int  // connections in a row that were ended with one request unanswered, which was for a container
	plain      bool // the servers have no containers
}

// suspicious is the size up to which no request is taken for refused, as the limits of real servers
// are far above that.
const suspicious = 32 << 10

// ended notes the requests that were unanswered when a connection ended.
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

// took notes an answer to r.
func (l *limits) took(r sentRequest, code zkwire.Code) {
	l.taken = max(l.taken, r.size)
	if r.op == zkwire.OpCreateContainer {
		l.containers = 0
		l.plain = l.plain || code == zkwire.CodeUnimplemented
	}
}

// refuses reports whether the server seems to have ended the last connection because of the request
// with this error.
func (s *session) refuses(err error) bool {
	var u *unanswered
	if !errors.As(err, &u) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits.refused == u.size
}

// tooLarge returns the error of a call whose request was refused with err.
func (s *session) tooLarge(err error) error {
	var u *unanswered
	errors.As(err, &u)

	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: the server ends the connection at a request of %d bytes, and has taken one of %d: "+
		"its jute.maxbuffer is in between", ErrTooLarge, u.size, s.limits.taken)
}

// byOtherSide reports whether an error says that the other side has ended the connection.
func byOtherSide(err error) bool {
	var broken *net.OpError
	if errors.As(err, &broken) {
		return !broken.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}
