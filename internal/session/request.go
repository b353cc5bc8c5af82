package session

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// Create, Set, Delete, Multi and MultiSize are those of package protocol/recipe.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	s := sessionOf(c)
	if err := s.Refuse(headerSize + createSize(path, data, acl)); err != nil {
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
	if err := sessionOf(c).Refuse(headerSize + setSize(path, data)); err != nil {
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
	if err := s.Refuse(MultiSize(ops...)); err != nil {
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
	return 4 + len(path) + 4 + len(data) + ACLSize(acl) + 4
}

func setSize(path string, data []byte) int { return 4 + len(path) + 4 + len(data) + 4 }

// ACLSize returns the size of an ACL in a request.
func ACLSize(acl []zk.ACL) int {
	size := 4
	for _, a := range acl {
		size += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
	}
	return size
}

// conns has the sessions that are not disposed of yet, by their zk.Conns: a *Bound for a *zk.Conn.
var conns sync.Map

// sessionOf returns the session whose zk.Conn c is, or nil if c is none of this package's.
func sessionOf(c *zk.Conn) *Bound {
	s, _ := conns.Load(c)
	own, _ := s.(*Bound)
	return own
}

// draw is that of the account of a session that may be nil.
func (b *Bound) draw(ops ...any) (*draft, error) {
	if b == nil {
		return nil, nil
	}
	d, err := b.account.draw(ops...)
	if err != nil {
		b.recount()
	}
	return d, err
}

// ledger returns the account of a session that may be nil.
func (b *Bound) ledger() *account {
	if b == nil {
		return nil
	}
	return &b.account
}

// Refuse returns an error if a request of this size is above the limit.
func (b *Bound) Refuse(size int) error {
	limit := conn.DefaultLimit
	if b != nil {
		limit = b.Limit
	}
	if size > limit {
		return fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	return nil
}
