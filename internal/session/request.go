package session

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// Create, Set, Delete, Multi and MultiSize are documented in package protocol/recipe.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	s := sessionOf(c)
	if err := s.Refuse(headerSize + createSize(path, data, acl)); err != nil {
		return "", err
	}

	d, _, err := s.draw(&zk.CreateRequest{Path: path, Acl: acl, Flags: flags})
	if err != nil {
		return "", err
	}

	made, err := c.Create(path, data, flags, acl)
	if errors.Is(err, zk.ErrNoNode) { // an earlier attempt hasn't left a node either
		s.account.gone(path)
	}

	return made, d.end(conn.Denied(err, "create", path), made)
}

func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	if err := sessionOf(c).Refuse(headerSize + setSize(path, data)); err != nil {
		return nil, err
	}
	stat, err := c.Set(path, data, version)
	return stat, conn.Denied(err, "write", path)
}

func Delete(c *zk.Conn, path string, version int32) error {
	err := c.Delete(path, version)
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		sessionOf(c).account.gone(path)
	}
	return conn.Denied(err, "delete", path)
}

func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) {
	s := sessionOf(c)
	if err := s.Refuse(MultiSize(ops...)); err != nil {
		return nil, err
	}

	d, culprit, err := s.draw(ops...)
	if err != nil {
		// As if the server had refused that operation: several callers can share the transaction.
		answers := make([]zk.MultiResponse, len(ops))
		answers[culprit].Error = err
		return answers, err
	}

	answers, err := c.Multi(ops...)
	names := make([]string, len(ops))

	for i, a := range answers[:min(len(answers), len(ops))] {
		names[i] = a.String
		if errors.Is(a.Error, zk.ErrNoNode) {
			s.account.missing(ops, ops[i])
		}
	}

	return answers, d.end(conn.DeniedIn(err, answers, ops), names...)
}

func MultiSize(ops ...any) int {
	size := headerSize + multiHeaderSize

	for _, op := range ops {
		size += multiHeaderSize
		switch op := op.(type) {
		case *zk.CreateRequest:
			size += createSize(op.Path, op.Data, op.Acl)
		case *zk.SetDataRequest:
			size += setSize(op.Path, op.Data)
		default:
			_, path := conn.OpOf(op)
			size += 4 + len(path) + 4
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

// conns has the sessions that aren't disposed of yet: a *Session for each *zk.Conn.
var conns sync.Map

// sessionOf returns the session of a zk.Conn. For a zk.Conn that isn't ours, it returns a session
// without nodes and with the default limit.
func sessionOf(c *zk.Conn) *Session {
	if s, ours := conns.Load(c); ours {
		return s.(*Session)
	}
	return &Session{Setup: &Setup{Ensemble: &conn.Ensemble{Limit: conn.DefaultLimit}}}
}

// draw enters the creates of a transaction into the account. If there is no room, or an ACL
// function has failed, it returns which operation is the culprit: the last that needs room, or the
// first with such an ACL.
func (s *Session) draw(ops ...any) (d *draft, culprit int, err error) {
	for i, op := range ops {
		create, ok := op.(*zk.CreateRequest)
		if !ok {
			continue
		}
		if err := failureOf(create.Acl); err != nil {
			return nil, i, err
		}
		if create.Flags&zk.FlagEphemeral != 0 {
			culprit = i
		}
	}

	d, err = s.account.draw(ops...)
	// Begin early, because a full session refuses calls until that is done.
	if err != nil || d != nil && s.EphemeralBytes() > maxEphemeral/2 {
		s.client.recount(s)
	}
	return d, culprit, err
}

// Refuse returns an error if a request of this size exceeds the limit.
func (s *Session) Refuse(size int) error {
	if size > s.Limit {
		return fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, size, s.Limit)
	}
	return nil
}
