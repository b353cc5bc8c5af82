package protocol

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// A deniedError says what a client lacks the permission for. It wraps [zk.ErrNoAuth].
type deniedError struct{ verb, node, guard string }

func (d *deniedError) Error() string {
	return fmt.Sprintf("no permission to %s %s: the ACL of %s does not allow it: %v", d.verb, d.node, d.guard, zk.ErrNoAuth)
}

func (d *deniedError) Unwrap() error { return zk.ErrNoAuth }

// denied returns err, of a request to do something to a node. It adds what that was if the server
// has refused it for lack of a permission.
func denied(err error, verb, node string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	guard := node
	if verb == "create" || verb == "delete" {
		guard = parentOf(node)
	}
	return &deniedError{verb, node, guard}
}

// deniedIn is denied for a transaction with these answers.
func deniedIn(err error, answers []zk.MultiResponse, ops []any) error {
	for i, a := range answers[:min(len(answers), len(ops))] {
		if !errors.Is(a.Error, zk.ErrNoAuth) {
			continue
		}
		switch op := ops[i].(type) {
		case *zk.CreateRequest:
			return denied(err, "create", op.Path)
		case *zk.DeleteRequest:
			return denied(err, "delete", op.Path)
		case *zk.SetDataRequest:
			return denied(err, "write", op.Path)
		case *zk.CheckVersionRequest:
			return denied(err, "read", op.Path)
		}
	}
	return err
}

// explain adds to the error of a request who the client is, if it lacks a permission.
func (c *Client) explain(err error) error {
	switch {
	case !errors.As(err, new(*deniedError)):
		return err
	case len(c.auth) == 0:
		return fmt.Errorf("%w (the client has no credentials: see WithAuth)", err)
	}
	return fmt.Errorf("%w (the client is %s)", err, c.identities())
}
