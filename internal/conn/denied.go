package conn

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A DeniedError says which permission a client lacks, and at which node. It wraps [zk.ErrNoAuth].
type DeniedError struct{ verb, node, guard string }

func (d *DeniedError) Error() string {
	return fmt.Sprintf("no permission to %s %s: the ACL of %s does not allow it: %v", d.verb, d.node, d.guard, zk.ErrNoAuth)
}

func (d *DeniedError) Unwrap() error { return zk.ErrNoAuth }

// Denied returns err, the error of a request to do verb to a node. If the server refused the
// request for lack of a permission, the error says which verb and which node.
func Denied(err error, verb, node string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	guard := node
	if verb == "create" || verb == "delete" {
		guard = layout.Parent(node)
	}

	return &DeniedError{verb, node, guard}
}

// DeniedIn is Denied for a transaction with these answers.
func DeniedIn(err error, answers []zk.MultiResponse, ops []any) error {
	for i, a := range answers[:min(len(answers), len(ops))] {
		if verb, node := OpOf(ops[i]); verb != "" && errors.Is(a.Error, zk.ErrNoAuth) {
			return Denied(err, verb, node)
		}
	}

	return err
}

// OpOf returns what an operation of a transaction does, and the path of its node.
func OpOf(op any) (verb, node string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return "create", op.Path
	case *zk.DeleteRequest:
		return "delete", op.Path
	case *zk.SetDataRequest:
		return "write", op.Path
	case *zk.CheckVersionRequest:
		return "read", op.Path
	}

	return "", ""
}
