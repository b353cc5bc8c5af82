package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Receipts are the ephemeral nodes that say which transactions of a session were executed. One is used by one transaction
// at a time, which writes its number there: whoever has lost the answer reads it. They live beside the queue, are used
// again, and go when nobody has needed them for a while.
type receipts struct {
	session *protocol.Session
	path    string // of the directory, without the chroot
	acl     []zk.ACL

	mu       sync.Mutex // protects what follows
	free     []*receipt // the one that was used last comes last
	sweeping bool
}

type receipt struct {
	kind   string
	node   string // absolute
	made   bool   // it exists, as far as we know
	number int64  // of the latest transaction
	used   time.Time
}

// idleReceipt is how long a receipt is kept that nobody uses.
const idleReceipt = time.Second

// What a receipt is for. Those who remove entries are counted by theirs.
const (
	forOffers   = "offer-"
	forRemovals = "take-"
	forItems    = "item-"
)

func (r *receipts) borrow(kind string) *receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.free) - 1; i >= 0; i-- {
		if one := r.free[i]; one.kind == kind {
			r.free = slices.Delete(r.free, i, i+1)
			return one
		}
	}
	return &receipt{kind: kind, node: r.session.Path(r.path) + "/" + kind + r.session.NewOwner().String()}
}

func (r *receipts) giveBack(one *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.used = time.Now()
	r.free = append(r.free, one)
	if !r.sweeping {
		r.sweeping = true
		time.AfterFunc(idleReceipt, r.sweep)
	}
}

// keep makes a node beside the receipts, which goes like them when it was not touched for a while.
func (r *receipts) keep(life context.Context, name string) error {
	one := &receipt{kind: forTurns, node: r.session.Path(r.path) + "/" + name}
	_, err := protocol.Do(life, r.session, func(c *zk.Conn) (string, error) {
		return protocol.Create(c, one.node, nil, zk.FlagEphemeral, r.acl)
	})
	made := err == nil
	if errors.Is(err, zk.ErrNodeExists) { // it may have been an attempt of ours whose answer was lost
		made, err = protocol.Do(life, r.session, func(c *zk.Conn) (bool, error) {
			there, stat, err := c.Exists(one.node)
			return there && stat.EphemeralOwner == r.session.ID(), err
		})
	}
	if made {
		r.giveBack(one)
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err
}

// touch notes that a node is still of use, if it is one of those that were kept.
func (r *receipts) touch(node string) {
	r.mu.Lock()
	i := slices.IndexFunc(r.free, func(one *receipt) bool { return one.node == node })
	if i < 0 {
		r.mu.Unlock()
		return
	}
	one := r.free[i]
	r.free = slices.Delete(r.free, i, i+1)
	r.mu.Unlock()
	r.giveBack(one)
}

// sweep deletes the receipts that are not in use any more.
func (r *receipts) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var idle []*receipt
	now := time.Now()
	r.free = slices.DeleteFunc(r.free, func(one *receipt) bool {
		old := now.Sub(one.used) >= idleReceipt
		if old {
			idle = append(idle, one)
		}
		return old
	})
	if r.sweeping = len(r.free) > 0; r.sweeping {
		time.AfterFunc(r.free[0].used.Add(idleReceipt).Sub(now), r.sweep)
	}
	r.session.Go(func(life context.Context) {
		for _, one := range idle {
			remove(life, r.session, one.node)
		}
	})
}

// remove deletes a node whose name is never used again.
func remove(ctx context.Context, s *protocol.Session, node string) error {
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(node, -1) })
	return err
}

// A result is that of a transaction that was executed.
type result struct {
	answers []zk.MultiResponse // nil if they were lost
	zxid    int64              // of the transaction
}

var (
	errNothingToDo = errors.New("nothing to do")
	errNoReceipt   = errors.New("the receipt was deleted")
)

// A transaction is what prepare returns just before it is sent, which may be several times; nil ends it with
// errNothingToDo. unsent is called whenever it turns out that it was not executed: unknown says that
// the server had not answered it.
type transaction struct {
	prepare func() []any
	unsent  func(unknown bool)
}

// transact blocks until a transaction was executed, has failed, in which case the answers tell at which operation, or
// nobody can tell: then the error wraps [protocol.ErrUncertain]. life must be the session's.
func (r *receipts) transact(life context.Context, kind string, t transaction) (result, error) {
	one := r.borrow(kind)
	for {
		done, err := r.attempt(life, one, t)
		mine := len(done.answers) - 2 // where the receipt is
		if one.made {
			mine++
		}
		switch {
		case errors.Is(err, protocol.ErrUncertain):
			r.session.Go(func(life context.Context) { remove(life, r.session, one.node) })
			return done, err
		case err != nil && mine >= 0 && failedAt(done.answers, err) == mine:
			if errors.Is(err, zk.ErrNoNode) {
				one.made = false
				_, err = r.session.EnsurePath(life, r.path)
			} else if errors.Is(err, zk.ErrNodeExists) {
				one.made, err = true, nil
			}
			if err == nil {
				continue
			}
		}
		r.giveBack(one)
		return done, err
	}
}

// failedAt is the operation that a transaction died of.
func failedAt(answers []zk.MultiResponse, err error) int {
	return slices.IndexFunc(answers, func(a zk.MultiResponse) bool { return a.Error != nil && errors.Is(err, a.Error) })
}

func (r *receipts) attempt(life context.Context, one *receipt, t transaction) (result, error) {
	open := false // it was sent, and nothing more is known
	done, err := protocol.DoOnce(life, r.session, func(c *zk.Conn) (result, error) {
		ops := t.prepare()
		if ops == nil {
			return result{}, errNothingToDo
		}
		one.number++
		ops = append(ops, r.mark(one)...)
		open = true
		answers, err := protocol.Multi(c, ops...)
		if err == nil {
			return result{answers, answers[len(answers)-1].Stat.Mzxid}, nil
		}
		if !protocol.OutcomeUnknown(err) {
			open = false
			t.unsent(false)
		}
		return result{answers: answers}, err
	}, func(ctx context.Context) (result, bool, error) {
		zxid, executed, err := r.settle(ctx, one)
		if err == nil && !executed {
			open = false
			t.unsent(true)
		}
		return result{zxid: zxid}, executed, err
	})
	switch {
	case err == nil:
		one.made = true
	case open:
		err = uncertain(err)
	}
	return done, err
}

// mark has a transaction leave its number. The last operation is always one that is answered with a Stat.
func (r *receipts) mark(one *receipt) []any {
	number := strconv.AppendInt(nil, one.number, 10)
	set := &zk.SetDataRequest{Path: one.node, Data: number, Version: -1}
	if one.made {
		return []any{set}
	}
	return []any{&zk.CreateRequest{Path: one.node, Acl: r.acl, Flags: zk.FlagEphemeral}, set}
}

// settle tells whether the latest transaction was executed.
func (r *receipts) settle(ctx context.Context, one *receipt) (zxid int64, executed bool, err error) {
	if err := r.session.Sync(ctx, r.path); err != nil {
		return 0, false, err
	}
	number := ""
	zxid, err = protocol.Do(ctx, r.session, func(c *zk.Conn) (int64, error) {
		data, stat, err := c.Get(one.node)
		if err != nil {
			return 0, err
		}
		number = string(data)
		return stat.Mzxid, nil
	})
	switch {
	case errors.Is(err, zk.ErrNoNode) && one.made:
		return 0, false, errNoReceipt
	case errors.Is(err, zk.ErrNoNode):
		return 0, false, nil
	}
	return zxid, number == strconv.FormatInt(one.number, 10), err
}
