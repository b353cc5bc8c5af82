package protocol

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// Create calls Create of c. Call it from the function that is given to [Do] or [DoOnce]. It blocks
// until the server has answered or the connection breaks.
//
// If the flags are [zk.FlagContainer] it creates a container, which zk.Conn's Create does not. A
// request that is too large for the server would cost all users of the session their connection:
// Create refuses it with [ErrTooLarge], by the limit of [WithRequestLimit]. If the node is ephemeral
// and the session has no room for it, it returns [ErrSessionFull]. Then nothing is sent. All other
// errors are those of c. Create is safe for concurrent use.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	s := sessionOf(c)
	if err := s.refuse(headerSize + createSize(path, data, acl)); err != nil {
		return "", err
	}
	d, err := s.draw(&zk.CreateRequest{Path: path, Flags: flags})
	if err != nil {
		return "", err
	}
	made, err := c.Create(path, data, flags, acl)
	if errors.Is(err, zk.ErrNoNode) { // so an earlier attempt has left nothing either
		s.ledger().gone(path)
	}
	return made, d.end(conn.Denied(err, "create", path), made)
}

// Set calls Set of c. It refuses data that is too large as [Create] does.
func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	if err := sessionOf(c).refuse(headerSize + setSize(path, data)); err != nil {
		return nil, err
	}
	stat, err := c.Set(path, data, version)
	return stat, conn.Denied(err, "write", path)
}

// Delete calls Delete of c.
func Delete(c *zk.Conn, path string, version int32) error {
	err := c.Delete(path, version)
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		sessionOf(c).ledger().gone(path)
	}
	return conn.Denied(err, "delete", path)
}

// Multi calls Multi of c. It refuses transactions as [Create] does. One size just above the limit
// would make zk.Conn panic.
func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) {
	s := sessionOf(c)
	if err := s.refuse(MultiSize(ops...)); err != nil {
		return nil, err
	}
	d, err := s.draw(ops...)
	if err != nil {
		return nil, err
	}
	answers, err := c.Multi(ops...)
	names := make([]string, len(ops))
	for i, a := range answers[:min(len(answers), len(ops))] {
		names[i] = a.String
		if op, ok := ops[i].(*zk.DeleteRequest); ok && errors.Is(a.Error, zk.ErrNoNode) {
			s.ledger().gone(op.Path)
		}
	}
	return answers, d.end(conn.DeniedIn(err, answers, ops), names...)
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

// conns has the sessions that are not disposed of yet, by their zk.Conns: a *Session for a *zk.Conn.
var conns sync.Map

// sessionOf returns the session whose zk.Conn c is, or nil if c is none of this package's.
func sessionOf(c *zk.Conn) *Session {
	s, _ := conns.Load(c)
	own, _ := s.(*Session)
	return own
}

// draw is that of the account of a session that may be nil.
func (s *Session) draw(ops ...any) (*draft, error) {
	if s == nil {
		return nil, nil
	}
	d, err := s.account.draw(ops...)
	if err != nil {
		s.recount()
	}
	return d, err
}

// ledger returns the account of a session that may be nil.
func (s *Session) ledger() *account {
	if s == nil {
		return nil
	}
	return &s.account
}

// refuse returns an error if a request of this size is above the limit.
func (s *Session) refuse(size int) error {
	limit := conn.DefaultLimit
	if s != nil {
		limit = s.client.ensemble.Limit
	}
	if size > limit {
		return fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	return nil
}
