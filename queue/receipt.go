package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
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

// A receipt is a node that says which transactions of a batcher were executed because each of them
// writes its number there. If an answer is lost, the receipt is read. All attempts at a transaction
// expect the same version of the node, so at most one attempt can succeed.
type receipt struct {
	node    string // its path, without the chroot
	number  int64  // of the latest transaction
	version int32  // of the node
	doubt   bool   // the version is unknown
}

// transact is the function transact with the receipt. life must be the session's. If the receipt is
// gone, transact returns errNoReceipt and nothing was executed.
func (r *receipt) transact(life context.Context, s *recipe.Session, prepare func() []any, unsent func()) (result, error) {
	if r.doubt {
		stat, err := s.Exists(life, r.node)
		if err != nil {
			return nil, err
		} else if stat != nil {
			r.version = stat.Version
		}
	}

	operations := 0
	// The write of the number comes last, so operations keep their index.
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
	case err == nil && done != nil:
		r.version++
	// An attempt was executed after all.
	case itself && errors.Is(err, zk.ErrBadVersion):
		err = uncertain(err)
	case itself && errors.Is(err, zk.ErrNoNode):
		err = errNoReceipt
	}

	r.doubt = errors.Is(err, protocol.ErrUncertain)
	return done, err
}

// read reports whether the latest transaction was executed.
func (r *receipt) read(ctx context.Context, s *recipe.Session) (executed bool, err error) {
	data, stat, err := s.Get(ctx, r.node)
	if errors.Is(err, zk.ErrNoNode) {
		return false, fmt.Errorf("%w: %w", protocol.ErrUncertain, errNoReceipt)
	} else if err != nil {
		return false, err
	}
	r.version = stat.Version
	return string(data) == strconv.FormatInt(r.number, 10), nil
}

// A presence is an ephemeral node that exists while a goroutine works, and for a moment after. Its
// name is never used again. Only that goroutine uses the presence.
type presence struct {
	*site
	dir  string // of the node, below the queue's path
	name string // empty if there is no node
}

// idlePresence is how long an unused presence stays. (A presence costs the server about a hundred
// bytes.)
const idlePresence = time.Second

// use makes sure that the node exists. It returns the node's path, without the chroot.
func (p *presence) use(life context.Context) (node string, err error) {
	for p.name == "" {
		name := p.session.NewOwner().String()
		path := p.path + p.dir + "/" + name
		// Nothing of a caller depends on the node yet, so an unknown outcome concerns no caller.
		_, err := recipe.Do(life, p.session, func(c *zk.Conn) (string, error) {
			return recipe.Create(c, p.session.Path(path), nil, zk.FlagEphemeral, p.recipe.ACL(path))
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := p.ensure(life, p.session, p.dir); err != nil {
				return "", err
			}
		// If the node exists, an attempt whose answer was lost has created it.
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			p.name = name
		default:
			// An attempt before may have created it, and nobody uses it.
			p.name = name
			p.discard()
			return "", err
		}
	}

	return p.path + p.dir + "/" + p.name, nil
}

// leave deletes the node. If it can't be deleted (for lack of a permission), it is used again.
func (p *presence) leave(life context.Context) error {
	err := p.deleteNode(life, p.session, p.dir+"/"+p.name)
	if err == nil {
		p.name = ""
	}
	return err
}

// discard drops a node that must not be used any more.
func (p *presence) discard() {
	node := p.dir + "/" + p.name
	p.name = ""
	p.session.Go(func(life context.Context, s *recipe.Session) { p.deleteNode(life, s, node) })
}
