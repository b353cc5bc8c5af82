package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

var (
	errNothingToDo = errors.New("nothing to do")
	errNoReceipt   = errors.New("the receipt was deleted")
)

// A result is that of a transaction that was executed, or was refused.
type result struct {
	answers []zk.MultiResponse // nil if they were lost
}

// failed returns the operation that the transaction died of, or -1. Those after it have errors, too.
func (r result) failed(err error) int {
	if err == nil {
		return -1
	}
	return slices.IndexFunc(r.answers, func(a zk.MultiResponse) bool { return a.Error != nil })
}

// transact blocks until the operations that prepare returns were executed, all or none. It calls
// prepare just before they are sent, which may be several times. If prepare returns none, transact
// returns errNothingToDo. If an answer is lost, executed finds out whether they were. transact calls
// unsent whenever it turns out that nothing was executed. If it cannot be found out, the error wraps
// [protocol.ErrUncertain].
func transact(life context.Context, s *protocol.Session, prepare func() []any, unsent func(),
	executed func(ctx context.Context) (bool, error)) (result, error) {
	var open atomic.Bool // it was sent, and nothing more is known; an attempt may outlast life
	done, err := protocol.DoOnce(life, s, func(c *zk.Conn) (result, error) {
		ops := prepare()
		if ops == nil {
			return result{}, errNothingToDo
		}
		open.Store(true)
		answers, err := protocol.Multi(c, ops...)
		if err != nil && !protocol.OutcomeUnknown(err) {
			open.Store(false)
			unsent()
		}
		return result{answers}, err
	}, func(ctx context.Context) (result, bool, error) {
		yes, err := executed(ctx)
		if err == nil && !yes {
			open.Store(false)
			unsent()
		}
		return result{}, yes, err
	})
	if err != nil && open.Load() {
		err = uncertain(err)
	}
	return done, err
}

// A receipt is a node of a session's own that says which transactions of a batcher were executed:
// each writes its number there. If the answer is lost, the number is read. Of two attempts at a
// transaction one can succeed at most, as they expect the same version of the node.
type receipt struct {
	node    string // its path, without the chroot
	number  int64  // of the latest transaction
	version int32  // of the node
	doubt   bool   // the version is not known
}

// begin makes r work with this node, which is new unless r has used it before.
func (r *receipt) begin(ctx context.Context, s *protocol.Session, node string) error {
	next := receipt{node: node, number: r.number}
	if node == r.node {
		stat, err := s.Exists(ctx, node)
		if err == nil && stat == nil {
			err = errNoReceipt
		}
		if err != nil {
			return err
		}
		next.version = stat.Version
	}
	*r = next
	return nil
}

// transact is the function transact with the receipt, for a life that is the session's. If the
// receipt is gone it returns errNoReceipt, and nothing was executed. After an error that wraps
// [protocol.ErrUncertain], the receipt is of no use any more.
func (r *receipt) transact(life context.Context, s *protocol.Session, prepare func() []any, unsent func()) (result, error) {
	operations := 0
	done, err := transact(life, s, func() []any {
		ops := prepare()
		if ops == nil {
			return nil
		}
		r.number++
		operations = len(ops)
		return append(ops, &zk.SetDataRequest{
			Path: s.Path(r.node), Data: strconv.AppendInt(nil, r.number, 10), Version: r.version,
		})
	}, unsent, func(ctx context.Context) (bool, error) { return r.read(ctx, s) })

	itself := done.failed(err) == operations
	switch {
	case err == nil && done.answers != nil:
		r.version++
	case itself && errors.Is(err, zk.ErrBadVersion): // an attempt was executed after all
		err = uncertain(err)
	case itself && errors.Is(err, zk.ErrNoNode):
		err = errNoReceipt
	}
	r.doubt = errors.Is(err, protocol.ErrUncertain)
	return done, err
}

// read reports whether the latest transaction was executed.
func (r *receipt) read(ctx context.Context, s *protocol.Session) (executed bool, err error) {
	data, stat, err := s.Get(ctx, r.node)
	if errors.Is(err, zk.ErrNoNode) {
		return false, fmt.Errorf("%w: %w", protocol.ErrUncertain, errNoReceipt)
	} else if err != nil {
		return false, err
	}
	r.version = stat.Version
	return string(data) == strconv.FormatInt(r.number, 10), nil
}
