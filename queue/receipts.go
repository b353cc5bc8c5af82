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

// Receipts are ephemeral nodes beside the queue that tell which transactions of a session were
// executed. Each transaction writes its number to a receipt, which it has for itself. If its answer
// is lost, the number is read from there. Receipts are used again, and deleted when they were not
// needed for a while.
type receipts struct {
	session *protocol.Session
	path    string // of the directory, without the chroot
	acl     []zk.ACL

	mu       sync.Mutex // protects what follows
	free     []*receipt // the one that was used last comes last
	sweeping bool
}

type receipt struct {
	kind    string
	node    string // absolute
	created bool   // it exists, as far as we know
	number  int64  // of the latest transaction
	used    time.Time
}

// idleReceipt is how long a receipt is kept without use.
const idleReceipt = time.Second

// What a receipt is for. Consumers are counted by theirs.
const (
	forOffers   = "offer-"
	forRemovals = "take-"
	forItems    = "item-"
)

// borrow returns a receipt for one transaction. It goes back by giveBack.
func (r *receipts) borrow(kind string) *receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.free) - 1; i >= 0; i-- {
		if receipt := r.free[i]; receipt.kind == kind {
			r.free = slices.Delete(r.free, i, i+1)
			return receipt
		}
	}
	return &receipt{kind: kind, node: r.session.Path(r.path) + "/" + kind + r.session.NewOwner().String()}
}

func (r *receipts) giveBack(receipt *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	receipt.used = time.Now()
	r.free = append(r.free, receipt)
	if !r.sweeping {
		r.sweeping = true
		time.AfterFunc(idleReceipt, r.sweep)
	}
}

// keep creates a node beside the receipts, which is deleted like them when it was not touched for a
// while.
func (r *receipts) keep(life context.Context, name string) error {
	kept := &receipt{kind: ticketPrefix, node: r.session.Path(r.path) + "/" + name}
	_, err := protocol.Do(life, r.session, func(c *zk.Conn) (string, error) {
		return protocol.Create(c, kept.node, nil, zk.FlagEphemeral, r.acl)
	})

	ours := err == nil
	if errors.Is(err, zk.ErrNodeExists) { // perhaps by an attempt of ours whose answer was lost
		ours, err = protocol.Do(life, r.session, func(c *zk.Conn) (bool, error) {
			there, stat, err := c.Exists(kept.node)
			return there && stat.EphemeralOwner == r.session.ID(), err
		})
	}
	if ours {
		r.giveBack(kept)
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err
}

// touch notes that a node is still of use, if it is one of those that are kept here.
func (r *receipts) touch(node string) {
	r.mu.Lock()
	i := slices.IndexFunc(r.free, func(kept *receipt) bool { return kept.node == node })
	if i < 0 {
		r.mu.Unlock()
		return
	}
	kept := r.free[i]
	r.free = slices.Delete(r.free, i, i+1)
	r.mu.Unlock()

	r.giveBack(kept)
}

// sweep deletes the receipts that were not used for a while.
func (r *receipts) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var idle []*receipt
	now := time.Now()
	r.free = slices.DeleteFunc(r.free, func(receipt *receipt) bool {
		old := now.Sub(receipt.used) >= idleReceipt
		if old {
			idle = append(idle, receipt)
		}
		return old
	})

	if r.sweeping = len(r.free) > 0; r.sweeping {
		time.AfterFunc(r.free[0].used.Add(idleReceipt).Sub(now), r.sweep)
	}
	r.session.Go(func(life context.Context) {
		for _, receipt := range idle {
			remove(life, r.session, receipt.node)
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

// A transaction consists of the operations that prepare returns just before it is sent, which may
// be several times. If prepare returns nil, transact returns errNothingToDo. unsent is called
// whenever it turns out that the transaction was not executed; unanswered reports whether the
// server did not say so.
type transaction struct {
	prepare func() []any
	unsent  func(unanswered bool)
}

// transact blocks until a transaction was executed or has failed. The answers then tell at which
// operation. If that cannot be found out, the error wraps [protocol.ErrUncertain]. life must be the
// session's.
func (r *receipts) transact(life context.Context, kind string, t transaction) (result, error) {
	receipt := r.borrow(kind)
	for {
		done, err := r.attempt(life, receipt, t)
		own := len(done.answers) - 2 // the receipt's first operation
		if receipt.created {
			own++
		}

		switch {
		case errors.Is(err, protocol.ErrUncertain):
			r.session.Go(func(life context.Context) { remove(life, r.session, receipt.node) })
			return done, err
		case err != nil && own >= 0 && failedAt(done.answers, err) == own:
			if errors.Is(err, zk.ErrNoNode) {
				receipt.created = false
				_, err = r.session.EnsurePath(life, r.path)
			} else if errors.Is(err, zk.ErrNodeExists) {
				receipt.created, err = true, nil
			}
			if err == nil {
				continue
			}
		}
		r.giveBack(receipt)
		return done, err
	}
}

// failedAt returns the operation that a transaction died of, or -1.
func failedAt(answers []zk.MultiResponse, err error) int {
	return slices.IndexFunc(answers, func(a zk.MultiResponse) bool {
		return a.Error != nil && errors.Is(err, a.Error)
	})
}

// attempt sends a transaction until its outcome is known. It returns the outcome of the latest one
// that was sent.
func (r *receipts) attempt(life context.Context, receipt *receipt, t transaction) (result, error) {
	open := false // it was sent, and nothing more is known

	send := func(c *zk.Conn) (result, error) {
		ops := t.prepare()
		if ops == nil {
			return result{}, errNothingToDo
		}

		receipt.number++
		ops = append(ops, r.write(receipt)...)
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
	}

	settle := func(ctx context.Context) (result, bool, error) {
		zxid, executed, err := r.read(ctx, receipt)
		if err == nil && !executed {
			open = false
			t.unsent(true)
		}
		return result{zxid: zxid}, executed, err
	}

	done, err := protocol.DoOnce(life, r.session, send, settle)
	switch {
	case err == nil:
		receipt.created = true
	case open:
		err = uncertain(err)
	}
	return done, err
}

// write returns the operations that write a transaction's number to its receipt. The last one is
// always answered with a Stat.
func (r *receipts) write(receipt *receipt) []any {
	number := strconv.AppendInt(nil, receipt.number, 10)
	set := &zk.SetDataRequest{Path: receipt.node, Data: number, Version: -1}
	if receipt.created {
		return []any{set}
	}
	return []any{&zk.CreateRequest{Path: receipt.node, Acl: r.acl, Flags: zk.FlagEphemeral}, set}
}

// read reports whether the latest transaction with this receipt was executed, and its number at the
// server.
func (r *receipts) read(ctx context.Context, receipt *receipt) (zxid int64, executed bool, err error) {
	if err := r.session.Sync(ctx, r.path); err != nil {
		return 0, false, err
	}

	number := ""
	zxid, err = protocol.Do(ctx, r.session, func(c *zk.Conn) (int64, error) {
		data, stat, err := c.Get(receipt.node)
		if err != nil {
			return 0, err
		}
		number = string(data)
		return stat.Mzxid, nil
	})

	switch {
	case errors.Is(err, zk.ErrNoNode) && receipt.created:
		return 0, false, errNoReceipt
	case errors.Is(err, zk.ErrNoNode):
		return 0, false, nil
	}
	return zxid, number == strconv.FormatInt(receipt.number, 10), err
}
