package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// Multi is the fenced write: it does all of the operations if g is still held, or none. They are
// those of [zk.Conn] Multi: pointers to [zk.CreateRequest], [zk.SetDataRequest], [zk.DeleteRequest]
// and [zk.CheckVersionRequest]. Their paths have no chroot. A create without an ACL gets the view's.
// The answers are those of ops alone, and have no chroot either.
//
// Multi blocks until the server has answered, ctx ends or the session is over. It adds [Grant.Check]
// itself, and does nothing twice. If g ended before, it returns [Grant.Err] and nothing was done. If
// an operation fails, its error says which, and the answers have the errors of all. If ctx or the
// session ends before the outcome is known, the error wraps [ErrUncertain] (and not [ErrLost]): the
// operations may have been done, or may yet be. Before any I/O it returns [zk.ErrInvalidPath],
// [zk.ErrBadArguments], [ErrTooLarge] or [ErrSessionFull]. It is safe for concurrent use.
//
// A reply that was lost is settled by a receipt, an ephemeral node beside g's own. The first Multi of
// a grant creates it in its transaction, further ones set its data, and it is deleted after the
// release. So a Multi is one request. It wakes nobody who waits in line, because nobody watches the
// receipt. (The version of g's own node would do as well. But each Multi would then wake whoever
// watches that node: the next in line, all readers behind a writer, and all observers of a leader,
// who would read it again.) The price is a node while g is held, one request after the release, and
// a wake for those who watch the children of the path. Concurrent calls have a receipt each.
//
// After a lost reply, Multi makes a [Session.Fence] and reads the receipt. If the operations were
// done, the answers are put together from what is there. If another client has changed a node since,
// its Stat has Mzxid, Mtime and Version alone (0 for a Version that was not asked for). The name of a
// sequential node is found by its czxid. If another client has deleted that node already, the error
// wraps [ErrUncertain] and says so. If g's node was deleted and there is no receipt, the outcome is
// not known either, because an operator can delete both. (An operator who deletes a receipt alone
// takes away the proof: if the reply was lost as well, the operations may be done twice.)
func (g *Grant) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return MultiHeld(ctx, []*Grant{g}, ops...)
}

// MultiHeld is [Grant.Multi] for several grants of one session, all of which have to be held.
func MultiHeld(ctx context.Context, grants []*Grant, ops ...any) (answers []zk.MultiResponse, err error) {
	g := grants[0]
	if ctx == nil {
		return nil, g.recipe.Wrap(errNilContext)
	}
	defer caught(&err)

	f := &fenced{grants: grants, session: g.session.of(ctx)}
	if err := f.prepare(ops); err != nil {
		return nil, g.recipe.Wrap(err)
	}
	for {
		if err := f.held(); err != nil {
			return nil, err
		}
		r := g.takeReceipt()
		answers, err = f.run(ctx, r)
		if !errors.Is(err, errNoReceipt) {
			return answers, g.recipe.Wrap(err)
		}
	}
}

// A fenced is a transaction that is made only if all of the grants are held.
type fenced struct {
	grants  []*Grant
	session *Session
	ops     []any // the caller's, with absolute paths
}

// errNoReceipt is wrapped by the error of a transaction whose receipt somebody has touched. Nothing
// was done.
var errNoReceipt = errors.New("no receipt")

// prepare validates the operations.
func (f *fenced) prepare(ops []any) error {
	if len(ops) == 0 {
		return fmt.Errorf("%w: no operations", zk.ErrBadArguments)
	}
	for _, g := range f.grants {
		if g.session.session != f.session.session && g.Err() == nil {
			return fmt.Errorf("%w: %s and %s are held in different sessions", zk.ErrBadArguments, f.grants[0].node, g.node)
		}
	}
	var err error
	if f.ops, err = f.session.Absolute(ops...); err != nil {
		return err
	}
	return f.session.refuse(MultiSize(f.requests(f.grants[0].newReceipt())...))
}

// Absolute returns the operations of a transaction, as [Grant.Multi] takes them, with the chroot in
// their paths, and an ACL in each create. A recipe calls it for operations of its caller's, and sends
// them with its own. A bad operation is an error that says which it is.
func (s *Session) Absolute(ops ...any) (absolute []any, err error) {
	for i, op := range ops {
		if err := validateOp(op); err != nil {
			return nil, fmt.Errorf("operation %d of %d: %w", i+1, len(ops), err)
		}
		absolute = append(absolute, s.absolute(op))
	}
	return absolute, nil
}

// validateOp reports what is wrong with an operation of the caller's.
func validateOp(op any) error {
	path := ""
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op == nil {
			return fmt.Errorf("%w: nil %T", zk.ErrBadArguments, op)
		}
		if op.Flags&^(zk.FlagEphemeral|zk.FlagSequence) != 0 {
			return fmt.Errorf("%w: a transaction creates no node with flags %d", zk.ErrBadArguments, op.Flags)
		}
		if path = op.Path; op.Flags&zk.FlagSequence != 0 {
			path += "0"
		}
	case *zk.SetDataRequest:
		if op == nil {
			return fmt.Errorf("%w: nil %T", zk.ErrBadArguments, op)
		}
		path = op.Path
	case *zk.DeleteRequest:
		if op == nil {
			return fmt.Errorf("%w: nil %T", zk.ErrBadArguments, op)
		}
		path = op.Path
	case *zk.CheckVersionRequest:
		if op == nil {
			return fmt.Errorf("%w: nil %T", zk.ErrBadArguments, op)
		}
		path = op.Path
	default:
		return fmt.Errorf("%w: a %T is none: give a *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest or *zk.CheckVersionRequest",
			zk.ErrBadArguments, op)
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
	if r.version < 0 {
		acl := f.session.client.acl(f.session.relative(r.path))
		all = append(all, &zk.CreateRequest{Path: r.path, Acl: acl, Flags: zk.FlagEphemeral})
	} else {
		all = append(all, &zk.SetDataRequest{Path: r.path, Version: r.version})
	}
	return append(all, f.ops...)
}

// run makes the transaction with a receipt, which it gives back.
func (f *fenced) run(ctx context.Context, r *receipt) ([]zk.MultiResponse, error) {
	s, g, all, before := f.session, f.grants[0], f.requests(r), len(f.grants)+1
	answers, err := DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		if err := f.held(); err != nil {
			return nil, err
		}
		return Multi(c, all...)
	}, func(ctx context.Context) ([]zk.MultiResponse, bool, error) {
		stat, err := s.exists(ctx, r.path)
		switch {
		case err != nil || stat != nil:
		case r.version >= 0:
			err = fmt.Errorf("%w: %s was deleted", zk.ErrNoNode, r.path)
		case !errors.Is(g.Err(), ErrReleased):
			// Whoever has deleted all nodes of the line, by hand, has also deleted the receipt.
			var own *zk.Stat
			if own, err = s.exists(ctx, g.node); err == nil && (own == nil || !g.owns(own)) {
				err = fmt.Errorf("%w: %s, and no receipt", ErrNodeDeleted, g.node)
			}
		}
		if err != nil || stat == nil || stat.Version == r.version {
			return nil, false, unknownIf(err)
		}
		recalled, err := s.recall(ctx, stat, f.ops)
		return append(make([]zk.MultiResponse, before), recalled...), true, err
	})

	failed := slices.IndexFunc(answers, func(a zk.MultiResponse) bool { return a.Error != nil })
	switch {
	case err == nil:
		g.keepReceipt(&receipt{r.path, r.version + 1}, false)
		return s.inView(answers[before:]), nil
	case errors.Is(err, ErrUncertain):
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
		f.grants[failed].deleted()
		return nil, cmp.Or(f.held(), err)
	case failed < before-1:
		return nil, fmt.Errorf("whether it is held: %w", err)
	case failed == before-1:
		return nil, fmt.Errorf("its receipt: %w", err)
	}
	return s.inView(answers[before:]), fmt.Errorf("operation %d of %d: %w", failed-before+1, len(f.ops), err)
}

// unsettled returns an error that wraps [ErrUncertain]. It hides [ErrLost], with which nothing was
// done.
func unsettled(err error) error {
	if errors.Is(err, ErrLost) {
		return unsettledError{err}
	}
	return err
}

type unsettledError struct{ error }

func (u unsettledError) Is(target error) bool { return target == ErrUncertain }

// inView removes the chroot from the answers' paths.
func (s *Session) inView(answers []zk.MultiResponse) []zk.MultiResponse {
	for i := range answers {
		if answers[i].String != "" {
			answers[i].String = s.relative(answers[i].String)
		}
	}
	return answers
}

// recall puts together what a transaction was answered that has written a receipt. The operations have
// absolute paths.
func (s *Session) recall(ctx context.Context, receipt *zk.Stat, ops []any) ([]zk.MultiResponse, error) {
	answers := make([]zk.MultiResponse, len(ops))
	numbered := make(map[string][]string) // the nodes of sequential creates that are not in answers yet, by their prefixes
	for i, op := range ops {
		var err error
		switch op := op.(type) {
		case *zk.SetDataRequest:
			var stat *zk.Stat
			stat, err = s.exists(ctx, op.Path)
			if errors.Is(err, zk.ErrNoAuth) {
				err = nil
			}
			if stat == nil || stat.Mzxid != receipt.Mzxid { // another client has changed it since
				stat = &zk.Stat{Mzxid: receipt.Mzxid, Mtime: receipt.Mtime, Version: op.Version + 1}
			}
			answers[i].Stat = stat
		case *zk.CreateRequest:
			if answers[i].String = op.Path; op.Flags&zk.FlagSequence == 0 {
				continue
			}
			nodes, known := numbered[op.Path]
			if !known {
				nodes, err = s.created(ctx, op.Path, receipt.Mzxid)
			}
			if err == nil && len(nodes) == 0 {
				err = zk.ErrNoNode
			}
			if err == nil {
				answers[i].String, numbered[op.Path] = nodes[0], nodes[1:]
				if op.Flags&zk.FlagEphemeral != 0 {
					s.account.found(op.Path, nodes[0])
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%w: it was done, but the result of operation %d of %d is not known: %w",
				ErrUncertain, i+1, len(ops), err)
		}
	}
	return answers, nil
}

// created returns the sequential nodes with this prefix that a transaction has created, in order.
func (s *Session) created(ctx context.Context, prefix string, zxid int64) (nodes []string, err error) {
	dir := layout.Parent(prefix)
	children, _, err := s.children(ctx, dir)
	if err != nil {
		return nil, err
	}

	// Numbers grow with the numbers of transactions, so the latest come first.
	base := prefix[strings.LastIndexByte(prefix, '/')+1:]
	children = slices.DeleteFunc(children, func(child string) bool {
		number, ok := strings.CutPrefix(child, base)
		_, isNumber := ParseSequence(number)
		return !ok || !isNumber
	})
	slices.Sort(children)
	for _, child := range slices.Backward(children) {
		node := strings.TrimSuffix(dir, "/") + "/" + child
		stat, err := s.exists(ctx, node)
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

// Receipt returns a path for a receipt below dir, for [Session.MultiOnce]. It is nobody else's.
func (s *Session) Receipt(dir string) string {
	return dir + "/" + layout.Receipt(s.NewOwner().String(), "")
}

// MultiOnce is [Session.Multi] that does the operations exactly once: a lost reply is settled by an
// ephemeral node, as that of [Grant.Multi]. The transaction creates the receipt, and MultiOnce
// deletes it in the background. If the caller has made it, the transaction only sets it, and the
// caller deletes it: until then nobody can delete the node above. An error that leaves open whether
// the operations were done wraps [ErrUncertain].
func (s *Session) MultiOnce(ctx context.Context, receipt string, made bool, ops ...any) ([]zk.MultiResponse, error) {
	var sign any = &zk.CreateRequest{Path: receipt, Flags: zk.FlagEphemeral}
	if made {
		sign = &zk.SetDataRequest{Path: receipt}
	}
	all := make([]any, 0, len(ops)+1)
	for _, op := range append(ops[:len(ops):len(ops)], sign) {
		all = append(all, s.absolute(op))
	}
	answers, err := DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return Multi(c, all...) },
		func(ctx context.Context) (recalled []zk.MultiResponse, done bool, err error) {
			stat, err := s.Exists(ctx, receipt)
			if err == nil && stat == nil && made {
				err = fmt.Errorf("%w: %s was deleted", zk.ErrNoNode, receipt)
			}
			if err != nil || stat == nil || made && stat.Version == 0 {
				return nil, false, unknownIf(err)
			}
			recalled, err = s.recall(ctx, stat, all)
			return recalled, true, err
		})
	if !made && (err == nil || errors.Is(err, ErrUncertain)) {
		s.Go(func(ctx context.Context, s *Session) { s.Delete(ctx, receipt, -1) })
	}
	return s.inView(answers[:min(len(answers), len(ops))]), err
}

// unknownIf is the error of a look that should have settled an outcome.
func unknownIf(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
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

// keepReceipt keeps a receipt for the next call. One that is spent is only deleted in the end.
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
