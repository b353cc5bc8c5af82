package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

var (
	errNothingToDo = errors.New("nothing to do")
	errNoReceipt   = errors.New("the receipt was deleted")
)

// A result is the answer to a transaction that was executed or refused. It is nil if the answer was
// lost.
type result []zk.MultiResponse

// failed returns the index of the operation that failed, or -1. (Later operations have errors too.)
func (r result) failed(err error) int {
	if err == nil {
		return -1
	}
	return slices.IndexFunc(r, func(a zk.MultiResponse) bool { return a.Error != nil })
}

// blame returns which of all parts of a transaction an operation belongs to (-1 if none), and the
// operation's index in that part. operations returns how many operations a part has.
func blame[T any](all []T, operations func(part T) int, failed int) (part, index int) {
	part = slices.IndexFunc(all, func(t T) bool {
		index, failed = failed, failed-operations(t)
		return failed < 0 && index >= 0
	})
	return part, index
}

// transact blocks until the operations that prepare returns were executed (all or none). It calls
// prepare just before each attempt. If prepare returns no operations, transact returns
// errNothingToDo. If an answer is lost, transact asks executed whether the attempt was executed. It
// calls unsent after each attempt that was not executed. If the outcome can't be found out, the
// error wraps [protocol.ErrUncertain].
func transact(life context.Context, s *recipe.Session, prepare func() []any, unsent func(),
	executed func(ctx context.Context) (bool, error)) (result, error) {
	return recipe.DoOnce(life, s, func(c *zk.Conn) (result, error) {
		ops := prepare()
		if ops == nil {
			return nil, errNothingToDo
		}

		answers, err := recipe.Multi(c, ops...)
		if err != nil && !recipe.OutcomeUnknown(err) {
			unsent()
		}

		return answers, err
	}, func(ctx context.Context) (result, bool, error) {
		yes, err := executed(ctx)
		switch {
		case err != nil:
			err = uncertain(err)
		case !yes:
			unsent()
		}

		return nil, yes, err
	})
}

// A receipt is an ephemeral node that says which transactions of a batcher were executed because
// each of them writes its number there. If an answer is lost, the receipt is read (behind a fence,
// so an attempt that has not written it never will).
//
// A receipt exists while a goroutine works, and for a moment after. Its name is never used again.
type receipt struct {
	*site
	node   string // its path below the queue's path
	number int64  // of the latest attempt at a transaction
}

// idleReceipt is how long an unused receipt stays. (It costs the server about a hundred bytes.)
const idleReceipt = time.Second

// newReceipt creates a receipt in a directory of the queue.
func (p *site) newReceipt(life context.Context, dir string) (*receipt, error) {
	r := &receipt{site: p, node: dir + "/" + p.session.NewOwner().String()}
	path := p.path + r.node
	for {
		// Nothing of a caller depends on the node yet, so an unknown outcome concerns no caller.
		_, err := recipe.Do(life, p.session, func(c *zk.Conn) (string, error) {
			return recipe.Create(c, p.session.Path(path), nil, zk.FlagEphemeral, p.recipe.ACL(path))
		})
		switch {
		// If the node exists, an attempt whose answer was lost has created it.
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return r, nil
		case errors.Is(err, zk.ErrNoNode):
			err = p.ensure(life, p.session, dir)
		default:
			// An attempt before may have created it, and nobody uses it.
			r.discard()
		}
		if err != nil {
			return nil, err
		}
	}
}

// discard deletes a receipt that must not be used any more, in the background.
func (r *receipt) discard() {
	r.session.Go(func(life context.Context, s *recipe.Session) { r.deleteNode(life, s, r.node) })
}

// transact is the function transact with the receipt. life must be the session's. If the receipt is
// gone, transact returns errNoReceipt and nothing was executed.
func (r *receipt) transact(life context.Context, s *recipe.Session, prepare func() []any, unsent func()) (result, error) {
	operations := 0
	// The write of the number comes last, so operations keep their index.
	done, err := transact(life, s, func() []any {
		ops := prepare()
		if ops == nil {
			return nil
		}

		r.number++
		operations = len(ops)
		return append(ops, r.setting(s, r.node, strconv.AppendInt(nil, r.number, 10)))
	}, unsent, func(ctx context.Context) (bool, error) { return r.read(ctx, s) })

	if done.failed(err) == operations && errors.Is(err, zk.ErrNoNode) {
		err = errNoReceipt
	}
	return done, err
}

// read reports whether the latest attempt was executed.
func (r *receipt) read(ctx context.Context, s *recipe.Session) (executed bool, err error) {
	data, _, err := s.Get(ctx, r.path+r.node)
	if errors.Is(err, zk.ErrNoNode) {
		err = errNoReceipt
	}
	return string(data) == strconv.FormatInt(r.number, 10), err
}
