package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A receipt is an ephemeral node that says which transactions of its session were executed. Each
// batcher has one, and each of its transactions writes its number there. If the answer is lost, the
// number is read.
//
// The receipt exists before anything is read that a transaction relies on, and its name is never
// used again. So a transaction that finds it also finds the queue's node that was read: had that
// been deleted, and created again with the same numbers, the receipt would be gone.
type receipt struct {
	session *protocol.Session
	prefix  string // of its path, without the chroot

	node   string      // its path; empty if there is none
	number int64       // of the latest transaction
	busy   func() bool // keeps an idle receipt; may be nil

	mu     sync.Mutex  // protects what follows
	idle   *time.Timer // deletes the node
	others []string    // nodes that go with it
}

// idleReceipt is how long a receipt stays without use. It costs the server a hundred bytes.
const idleReceipt = time.Second

var (
	errNothingToDo = errors.New("nothing to do")
	errNoReceipt   = errors.New("the receipt was deleted")
)

// use makes sure that there is a receipt until rest is called. It returns [zk.ErrNoNode] if there
// is no directory for it.
func (r *receipt) use(life context.Context) (created bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	if r.node != "" {
		return false, nil
	}

	node := r.prefix + r.session.NewOwner().String()
	err = r.session.Create(life, node, nil, zk.FlagEphemeral)
	if err != nil && !errors.Is(err, zk.ErrNodeExists) { // by an attempt whose answer was lost
		return false, err
	}
	r.node, r.number = node, 0
	return true, nil
}

// also makes another node go with the receipt.
func (r *receipt) also(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = append(r.others, node)
}

// rest lets the receipt be deleted once it was not used for a while.
func (r *receipt) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node != "" {
		r.idle = time.AfterFunc(idleReceipt, r.expire)
	}
}

// expire deletes a receipt that is idle.
func (r *receipt) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.idle == nil: // it is in use again
	case r.session.Err() != nil: // it is gone
		r.idle = nil
	case r.busy != nil && r.busy():
		r.idle.Reset(idleReceipt)
	default:
		r.idle = nil
		r.delete()
	}
}

// discard gives up the receipt, as its number is of no use any more.
func (r *receipt) discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delete()
}

// delete deletes the nodes in the background. The caller holds mu.
func (r *receipt) delete() {
	nodes := r.others
	if r.node != "" {
		nodes = append(nodes, r.node)
	}
	r.node, r.others = "", nil
	r.session.Go(func(life context.Context) {
		for _, node := range nodes {
			r.session.Delete(life, node, -1)
		}
	})
}

// A result is that of a transaction that was executed, or was refused.
type result struct {
	answers []zk.MultiResponse // nil if they were lost
	zxid    int64              // of the transaction
}

// failed returns the operation that the transaction died of, or -1.
func (r result) failed(err error) int {
	return slices.IndexFunc(r.answers, func(a zk.MultiResponse) bool {
		return a.Error != nil && errors.Is(err, a.Error)
	})
}

// transact blocks until the operations that prepare returns were executed, all or none. It calls
// prepare just before they are sent, which may be several times. If prepare returns none, transact
// returns errNothingToDo. It calls unsent whenever it turns out that nothing was executed;
// unanswered reports whether the server did not say so.
//
// If the receipt is gone, transact returns errNoReceipt, and nothing was executed. If it cannot be
// found out whether it was, the error wraps [protocol.ErrUncertain]. Either way what was read
// before counts for nothing. life must be the session's.
func (r *receipt) transact(life context.Context, prepare func() []any, unsent func(unanswered bool)) (result, error) {
	open := false // it was sent, and nothing more is known
	operations := 0

	send := func(c *zk.Conn) (result, error) {
		ops := prepare()
		if ops == nil {
			return result{}, errNothingToDo
		}

		r.number++
		operations = len(ops)
		ops = append(ops, &zk.SetDataRequest{
			Path: r.session.Path(r.node), Data: strconv.AppendInt(nil, r.number, 10), Version: -1,
		})
		open = true
		answers, err := protocol.Multi(c, ops...)
		if err == nil {
			return result{answers, answers[operations].Stat.Mzxid}, nil
		}
		if !protocol.OutcomeUnknown(err) {
			open = false
			unsent(false)
		}
		return result{answers: answers}, err
	}

	settle := func(ctx context.Context) (result, bool, error) {
		zxid, executed, err := r.read(ctx)
		if err == nil && !executed {
			open = false
			unsent(true)
		}
		return result{zxid: zxid}, executed, err
	}

	done, err := protocol.DoOnce(life, r.session, send, settle)
	switch {
	case err == nil:
	case open:
		err = uncertain(err)
		r.discard()
	case errors.Is(err, zk.ErrNoNode) && done.failed(err) == operations:
		err = errNoReceipt
		r.discard()
	}
	return done, err
}

// read reports whether the latest transaction was executed, and its number at the server.
func (r *receipt) read(ctx context.Context) (zxid int64, executed bool, err error) {
	if err := r.session.Sync(ctx, r.node); err != nil {
		return 0, false, err
	}
	data, stat, err := r.session.Get(ctx, r.node)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, false, fmt.Errorf("%w: %w", protocol.ErrUncertain, errNoReceipt)
	} else if err != nil {
		return 0, false, err
	}
	return stat.Mzxid, string(data) == strconv.FormatInt(r.number, 10), nil
}
