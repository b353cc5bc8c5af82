package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Multi is the fenced write: if g is still held, it does all of the operations and otherwise none.
// They are the operations of [zk.Conn] Multi: pointers to [zk.CreateRequest], [zk.SetDataRequest],
// [zk.DeleteRequest] and [zk.CheckVersionRequest]. Their paths have no chroot. A create without an
// ACL gets the view's ACL. The answers are only for ops, and have no chroot either.
//
// Multi blocks until the server has answered, ctx ends or the session ends. It adds [Grant.Check]
// itself and does nothing twice. If g ended before, it returns [Grant.Err] and nothing was done. If
// an operation fails, its error says which and the answers have the errors of all. If ctx or the
// session ends before the outcome is known, the error wraps [protocol.ErrUncertain] (and not
// [protocol.ErrLost]): the operations were perhaps done, or can still be done. Before any I/O it
// returns [zk.ErrInvalidPath], [zk.ErrBadArguments], [protocol.ErrTooLarge] or
// [protocol.ErrSessionFull]. It is safe for concurrent use.
//
// If a reply is lost, a receipt settles the outcome. The receipt is an ephemeral node beside g's
// own node. The first Multi of a grant creates it in its transaction and later Multis set its data.
// It is deleted after the release. So a Multi is one request. It wakes no waiter in line because
// waiters don't watch the receipt. (With the version of g's own node as the receipt, each Multi
// would wake all who watch that node: the next in line, all readers behind a writer, and all
// observers of a leader.) The price is one more node while g is held and one request after the
// release. It is also an event for clients that watch the children of the path. Concurrent calls
// have a receipt each.
//
// After a lost reply, Multi makes a [Session.Fence] and reads the receipt. If the operations were
// done, a Stat has only what the receipt and ops say: Mzxid, Mtime and Version (0 for a Version
// that ops did not ask for). The name of a sequential node is found by its czxid. If another client
// has deleted that node, the error wraps [protocol.ErrUncertain] and says so. If both g's node and
// the receipt are gone, the outcome is not known because an operator can delete both. (An operator
// who deletes only a receipt removes the proof. If the reply was lost as well, the operations can
// be done twice.)
func (g *Grant) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return MultiHeld(ctx, []*Grant{g}, ops...)
}

// MultiHeld is [Grant.Multi] for several grants of one session, which must all be held.
func MultiHeld(ctx context.Context, grants []*Grant, ops ...any) (answers []zk.MultiResponse, err error) {
	g := grants[0]
	if ctx == nil {
		return nil, g.recipe.Wrap(session.ErrNilContext)
	}

	f := &fenced{grants: grants, session: g.session.of(ctx)}
	if err := f.prepare(ops); err != nil {
		return nil, g.recipe.Wrap(err)
	}

	for {
		if err := f.held(); err != nil {
			return nil, err
		}

		// If another client has touched the receipt, the next attempt takes another.
		r := g.takeReceipt()
		answers, err = f.run(ctx, r)
		if !errors.Is(err, errNoReceipt) {
			return answers, g.recipe.Wrap(err)
		}
	}
}

// A fenced is a transaction that needs all of the grants to be held.
type fenced struct {
	grants  []*Grant
	session *Session
	ops     []any // the caller's operations, with absolute paths
}

// errNoReceipt means that another client has touched the transaction's receipt and nothing was
// done.
var errNoReceipt = errors.New("no receipt")

// prepare validates the operations.
func (f *fenced) prepare(ops []any) error {
	if len(ops) == 0 {
		return fmt.Errorf("%w: no operations", zk.ErrBadArguments)
	}

	for _, g := range f.grants {
		if g.session.bound.Session != f.session.bound.Session && g.Err() == nil {
			return fmt.Errorf("%w: %s and %s are held in different sessions", zk.ErrBadArguments, f.grants[0].node, g.node)
		}
	}

	var err error
	if f.ops, err = f.session.Absolute(ops...); err != nil {
		return err
	}

	return f.session.bound.Refuse(MultiSize(f.requests(f.grants[0].newReceipt())...))
}

// Absolute returns the operations of a transaction (as [Grant.Multi] takes them) with the chroot in
// their paths and an ACL in each create. A recipe calls it for its caller's operations and sends
// them with its own. The error of a bad operation says which it is.
func (s *Session) Absolute(ops ...any) (absolute []any, err error) {
	for i, op := range ops {
		if err := validateOp(op); err != nil {
			return nil, fmt.Errorf("operation %d of %d: %w", i+1, len(ops), err)
		}
	}
	return s.absolute(ops), nil
}

// validateOp reports whether something is wrong with an operation of the caller's.
func validateOp(op any) error {
	if v := reflect.ValueOf(op); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: nil %T", zk.ErrBadArguments, op)
	}

	verb, path := conn.OpOf(op)
	if verb == "" {
		return fmt.Errorf("%w: a %T is none: give a *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest or *zk.CheckVersionRequest",
			zk.ErrBadArguments, op)
	}
	if create, ok := op.(*zk.CreateRequest); ok {
		if create.Flags&^(zk.FlagEphemeral|zk.FlagSequence) != 0 {
			return fmt.Errorf("%w: a transaction creates no node with flags %d", zk.ErrBadArguments, create.Flags)
		}
		if create.Flags&zk.FlagSequence != 0 {
			path += "0"
		}
	}

	return ValidatePath(path)
}

// held returns an error if one of the grants has ended.
func (f *fenced) held() error {
	for _, g := range f.grants {
		if err := g.Err(); err != nil {
			return err
		}
	}
	return nil
}

// requests returns the whole transaction: the checks, the receipt, and the caller's operations.
func (f *fenced) requests(r *receipt) []any {
	all := make([]any, 0, len(f.grants)+1+len(f.ops))

	for _, g := range f.grants {
		all = append(all, g.Check())
	}

	return append(append(all, r.write(f.session)), f.ops...)
}

// run makes the transaction with a receipt and then keeps the receipt for the next call.
func (f *fenced) run(ctx context.Context, r *receipt) ([]zk.MultiResponse, error) {
	s, g, all := f.session, f.grants[0], f.requests(r)
	before := len(f.grants) + 1 // operations of our own
	answers, err := DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		if err := f.held(); err != nil {
			return nil, err
		}

		return Multi(c, all...)
	}, func(ctx context.Context) ([]zk.MultiResponse, bool, error) {
		answers, done, err := r.settle(ctx, s, all)
		if done || err != nil || r.version >= 0 || errors.Is(g.Err(), protocol.ErrReleased) {
			return answers, done, err
		}

		// An operator who deletes all nodes of the line by hand also deletes the receipt.
		own, err := s.bound.Exists(ctx, g.node)
		if err == nil && (own == nil || !g.owns(own)) {
			err = fmt.Errorf("%w: %s, and no receipt", protocol.ErrNodeDeleted, g.node)
		}
		return nil, false, unknownIf(err)
	})

	// Keep the receipt. If its version isn't certain, it can't serve another transaction.
	failed := slices.IndexFunc(answers, func(a zk.MultiResponse) bool { return a.Error != nil })
	switch {
	case err == nil:
		g.keepReceipt(&receipt{r.path, r.version + 1}, false)
		return s.inView(answers[before:]), nil
	case errors.Is(err, protocol.ErrUncertain):
		g.keepReceipt(r, true)
		return nil, unsettled(err)
	case failed == before-1 && r.version >= 0 && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)):
		g.keepReceipt(r, true)
		return nil, errNoReceipt
	case r.version >= 0:
		g.keepReceipt(r, false)
	}

	switch {
	case failed < 0: // nothing was sent, or all was refused
		return nil, cmp.Or(f.held(), err)
	case failed < before-1 && errors.Is(err, zk.ErrNoNode):
		f.grants[failed].deleted(ctx)
		return nil, cmp.Or(f.held(), Ended(ctx), err)
	case failed < before:
		return nil, fmt.Errorf("its node or receipt: %w", err)
	}

	return s.inView(answers[before:]), fmt.Errorf("operation %d of %d: %w", failed-before+1, len(f.ops), err)
}

// unsettled returns an error that wraps [protocol.ErrUncertain]. It hides [protocol.ErrLost], which
// says that nothing was done.
func unsettled(err error) error {
	if errors.Is(err, protocol.ErrLost) {
		return unsettledError{err}
	}
	return err
}

type unsettledError struct{ error }

func (u unsettledError) Is(target error) bool { return target == protocol.ErrUncertain }

// inView removes the chroot from the answers' paths.
func (s *Session) inView(answers []zk.MultiResponse) []zk.MultiResponse {
	for i := range answers {
		if answers[i].String != "" {
			answers[i].String = s.bound.Relative(answers[i].String)
		}
	}
	return answers
}

// Receipt returns a new path for a receipt below dir, for [Session.MultiOnce].
func (s *Session) Receipt(dir string) string {
	return dir + "/" + layout.Receipt(s.NewOwner().String(), "")
}

// MultiOnce is [Session.Multi] that does the operations exactly once. If a reply is lost, a receipt
// (the ephemeral node at a path of [Session.Receipt]) settles the outcome as in [Grant.Multi]. The
// transaction creates the receipt, and MultiOnce deletes it in the background. If made is true, the
// caller has created the receipt and deletes it. The transaction sets its data. (Until then no
// client can delete the node above.) If the outcome isn't known, the error wraps
// [protocol.ErrUncertain].
func (s *Session) MultiOnce(ctx context.Context, node string, made bool, ops ...any) ([]zk.MultiResponse, error) {
	r := &receipt{s.Path(node), -1}
	if made {
		r.version = 0
	}

	all := append(s.absolute(ops), r.write(s))
	answers, err := DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return Multi(c, all...) },
		func(ctx context.Context) ([]zk.MultiResponse, bool, error) { return r.settle(ctx, s, all) })
	if !made && (err == nil || errors.Is(err, protocol.ErrUncertain)) {
		s.Go(func(ctx context.Context, s *Session) { s.Delete(ctx, node, -1) })
	}

	return s.inView(answers[:min(len(answers), len(ops))]), err
}

// unknownIf returns the error of a read that should have settled an outcome.
func unknownIf(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}
	return err
}

// A receipt is a node that transactions change, one after the other. So it shows which of them were
// executed.
type receipt struct {
	path    string // absolute
	version int32  // -1: it is not created yet
}

// write returns the operation of the next transaction that changes the receipt.
func (r *receipt) write(s *Session) any {
	if r.version >= 0 {
		return &zk.SetDataRequest{Path: r.path, Version: r.version}
	}
	acl := s.bound.View.ACL(s.bound.Relative(r.path))
	return &zk.CreateRequest{Path: r.path, Acl: acl, Flags: zk.FlagEphemeral}
}

// settle reports whether a transaction was executed that writes the receipt, for [DoOnce]. It
// returns the answers as far as the receipt and the operations say them, and the names of
// sequential nodes.
func (r *receipt) settle(ctx context.Context, s *Session, ops []any) (answers []zk.MultiResponse, done bool, err error) {
	stat, err := s.bound.Exists(ctx, r.path)
	if err == nil && stat == nil && r.version >= 0 {
		err = fmt.Errorf("%w: %s was deleted", zk.ErrNoNode, r.path)
	}
	if err != nil || stat == nil || stat.Version == r.version {
		return nil, false, unknownIf(err)
	}

	answers = make([]zk.MultiResponse, len(ops))
	numbered := make(map[string][]string) // by prefix: sequential nodes that aren't in answers yet
	for i, op := range ops {
		switch op := op.(type) {
		case *zk.SetDataRequest:
			answers[i].Stat = &zk.Stat{Mzxid: stat.Mzxid, Mtime: stat.Mtime, Version: op.Version + 1}
		case *zk.CreateRequest:
			answers[i].String = op.Path
			if op.Flags&zk.FlagSequence == 0 {
				continue
			}

			// One listing serves all creates with this prefix.
			nodes, known := numbered[op.Path]
			if !known {
				nodes, err = s.created(ctx, op.Path, stat.Mzxid)
			}
			if err == nil && len(nodes) == 0 {
				err = zk.ErrNoNode
			}
			if err != nil {
				return nil, true, fmt.Errorf("%w: it was done, but the name of a sequential node is not known: %w",
					protocol.ErrUncertain, err)
			}
			answers[i].String, numbered[op.Path] = nodes[0], nodes[1:]
			if op.Flags&zk.FlagEphemeral != 0 {
				s.bound.Found(op.Path, nodes[0])
			}
		}
	}
	return answers, true, nil
}

// created returns the sequential nodes with this prefix that a transaction created, in order.
func (s *Session) created(ctx context.Context, prefix string, zxid int64) (nodes []string, err error) {
	dir := layout.Parent(prefix)
	children, _, err := s.bound.Children(ctx, dir)
	if err != nil {
		return nil, err
	}

	// The receipts and other nodes of the directory have other names.
	base := prefix[strings.LastIndexByte(prefix, '/')+1:]
	children = slices.DeleteFunc(children, func(child string) bool {
		number, ok := strings.CutPrefix(child, base)
		_, isNumber := ParseSequence(number)
		return !ok || !isNumber
	})

	// Numbers grow with the numbers of transactions, so the latest come first.
	slices.Sort(children)
	for _, child := range slices.Backward(children) {
		node := strings.TrimSuffix(dir, "/") + "/" + child
		stat, err := s.bound.Exists(ctx, node)
		switch {
		case err != nil:
			return nil, err
		case stat == nil || stat.Czxid > zxid:
			continue
		case stat.Czxid < zxid:
			return nodes, nil
		}

		nodes = slices.Insert(nodes, 0, node)
	}
	return nodes, nil
}

// receipts are the receipts of a grant that no call uses.
type receipts struct {
	free  []*receipt
	spent []*receipt // used by transactions of unknown outcome
}

func (g *Grant) newReceipt() *receipt {
	name := layout.Receipt(g.session.NewOwner().String(), g.Node())
	return &receipt{layout.Parent(g.node) + "/" + name, -1}
}

// takeReceipt returns a receipt that no other call uses.
func (g *Grant) takeReceipt() *receipt {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.receipts.free); n > 0 {
		r := g.receipts.free[n-1]
		g.receipts.free = g.receipts.free[:n-1]
		return r
	}
	return g.newReceipt()
}

// keepReceipt keeps a receipt for the next call, or only for its deletion if it is spent.
func (g *Grant) keepReceipt(r *receipt, spent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if spent {
		g.receipts.spent = append(g.receipts.spent, r)
	} else {
		g.receipts.free = append(g.receipts.free, r)
	}
	if g.life.Err() != nil {
		g.dropReceipts()
	}
}

// dropReceipts deletes the receipts in the background, after the grant's node. The caller holds mu.
func (g *Grant) dropReceipts() {
	all, s, removal := slices.Concat(g.receipts.free, g.receipts.spent), g.session.Background(), g.removal
	if g.receipts = (receipts{}); len(all) == 0 {
		return
	}

	g.session.bound.Spawn(func() {
		if removal != nil {
			select {
			case <-removal.done:
			case <-s.Done():
			}
		}

		// A create that is still under way is executed before this, or refused because the session
		// has moved.
		for _, r := range all {
			s.remove(s.bound.Life, r.path)
		}
	})
}
