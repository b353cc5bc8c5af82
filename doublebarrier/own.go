package doublebarrier

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An own is the present node of an arrival, with all that we know about it. The zero own is no
// node.
type own struct {
	member
	czxid  int64   // of the transaction that created it; 0 if unknown
	seen   *record // the last record read since the node was created; nil if none
	spared *record // no gate up to this record has counted the node; nil if unknown
}

// A fate is whether a round has counted a node.
type fate int

const (
	unknown fate = iota
	uncounted
	counted
)

// judge decides whether a gate has counted our node, by a record that was read after the node was
// created. in says that the node was in line at that record. Nothing else decides that.
//
// A gate is a change of the record and stays there until all its members have left or died. It has
// a higher From than its members' numbers, so a node in line with From or a higher number was never
// counted. If another client replaces the record, that holds again once the members have agreed
// again, with higher numbers (see agree).
//
// A record that is older than the node spares it, whether the node is in line or not. So does a
// record that is one change away from a record that spares it, because opening and closing a gate
// takes two changes.
func (a *arrival) judge(r record, in bool) fate {
	o := &a.own
	switch {
	case r.gate.hasOwner(a.owner):
		return counted
	case r.creation == 0:
		return unknown
	case in && (r.version == 0 || r.Size > 0 && o.Sequence >= r.From):
	case r.mzxid < o.czxid:
	case o.spared != nil && r.creation == o.spared.creation && r.version <= o.spared.version+1:
	default:
		return unknown
	}
	o.spared = &r
	return uncounted
}

// vanished notes that our node is gone, with all that we know about it.
func (a *arrival) vanished(f fate) {
	a.own = own{}
	a.earlier = a.earlier || f != uncounted
	a.doubt.Store(a.earlier)
}

// join creates our node. It does not create one after Enter's caller has stopped waiting, because a
// gate might count it. If it has created process, it deletes process then, because no server
// deletes a container that never had a child.
func (a *arrival) join(ctx context.Context, s *recipe.Session) (*Entry, error) {
	b := a.barrier
	a.nodes++
	a.own = own{}
	missing := false

	node, err := s.CreateOwn(ctx, recipe.OwnNode{
		Dir:    b.process(),
		Prefix: layout.DoublePrefix(a.owner, a.nodes, b.n),
		Create: func(c *zk.Conn, prefix string) (string, error) {
			// Note first that there may be a node, then ask whether the caller still waits: a
			// caller that stops waiting looks at the note.
			before := a.doubt.Swap(true)
			if err := s.Abandoned(); err != nil {
				a.doubt.Store(before)
				return "", err
			}

			return recipe.Create(c, prefix, s.NodeData(b.data), zk.FlagEphemeralSequential, s.ACL(b.member(path.Base(prefix))))
		},
		Missing: func(ctx context.Context, s *recipe.Session) error {
			a.doubt.Store(a.earlier)
			missing = true
			return b.create(ctx, s)
		},
	})

	switch {
	case err == nil:
		a.own.member, _ = layout.ParseDouble(node.Name()) // we have made this name
		a.own.czxid = node.Czxid()
	case s.Err() == nil && !errors.Is(err, protocol.ErrSequenceExhausted):
		a.doubt.Store(a.earlier) // it was deleted, and may have been counted earlier
	}

	if err != nil && missing && !b.keeps {
		s.Multi(ctx, &zk.DeleteRequest{Path: b.process(), Version: -1}) // which is refused if another member has come
	}
	return nil, err
}

// withdraw deletes our node unless it was counted. Then it returns the gate.
func (a *arrival) withdraw(ctx context.Context, s *recipe.Session) (*gate, error) {
	r, err := a.remove(ctx, s, a.own.Node, a.own.seen)
	in := err == nil
	if errors.Is(err, zk.ErrNoNode) {
		// The answer to a first attempt was lost, or another client has deleted the node. It may
		// have been counted before. A server that has answered a write has applied everything
		// before that write.
		r, err = a.barrier.read(ctx, s)
	}
	if err != nil {
		return nil, err
	}

	f := a.judge(r, in)
	if f != counted {
		a.vanished(f)
		return nil, nil
	}

	// A member that was counted and has lost its node has no place inside.
	stat, err := s.Exists(ctx, r.gate.member(a.own.Node))
	if err == nil && stat == nil {
		err = errCounted
	}
	if err != nil {
		return nil, err
	}
	return r.gate, nil
}

// resolve finds out about a node that was lost with its session and may still be at the server. If
// no gate has counted it, no gate may count it later.
func (a *arrival) resolve(ctx context.Context, s *recipe.Session) error {
	if !a.doubt.Load() {
		return nil
	}

	b := a.barrier
	if err := s.Sync(ctx, b.recipe.Path()); err != nil {
		return err
	}
	line, err := b.line(ctx, s)
	if err != nil {
		return err
	}

	// Remove all nodes of this arrival that no gate has counted.
	f := unknown
	for _, m := range line {
		if m.Owner != a.owner {
			continue
		}
		r, err := a.remove(ctx, s, m.Node, nil)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return err
		case r.gate.has(m.Node):
			return errCounted
		case m.Node == a.own.Node:
			f = a.judge(r, true)
		}
	}

	// If a node is gone, only the record can say that it was counted.
	r, err := b.read(ctx, s)
	if err == nil && r.gate.hasOwner(a.owner) {
		err = errCounted
	}
	if err == nil {
		a.vanished(f)
	}
	return err
}

// remove deletes a node of this arrival unless a gate has counted it. It returns the record of that
// moment (with the gate), or [zk.ErrNoNode] if there is no such node. It begins with the given
// record, if there is one.
func (a *arrival) remove(ctx context.Context, s *recipe.Session, node string, r *record) (record, error) {
	b := a.barrier
	for ; ; r = nil {
		if r == nil {
			now, err := b.read(ctx, s)
			if err != nil && !errors.Is(err, zk.ErrNodeExists) { // a ready that is not ours has counted no member
				return now, err
			}
			r = &now
		}
		if r.gate.has(node) {
			return *r, nil
		}

		// The record has changed if a gate has counted the node meanwhile.
		_, err := s.Multi(ctx,
			&zk.DeleteRequest{Path: b.member(node), Version: -1},
			&zk.CheckVersionRequest{Path: b.process(), Version: r.version})
		if !errors.Is(err, zk.ErrBadVersion) {
			return *r, err
		}
	}
}

// write replaces the record, which was read as r, and does the rest in the same transaction. It
// returns [zk.ErrBadVersion] if the record has changed, and errGone if our node is gone.
//
// Our own node must exist. While it does, process cannot be removed and created again with the same
// version. So no gate has opened since r was read.
func (a *arrival) write(ctx context.Context, s *recipe.Session, r record, data []byte, rest ...any) (record, error) {
	b := a.barrier
	ops := append([]any{
		&zk.CheckVersionRequest{Path: b.member(a.own.Node), Version: -1},
		&zk.SetDataRequest{Path: b.process(), Data: data, Version: r.version},
	}, rest...)

	answers, err := multiOf(ctx, s, 2, ops)
	if errors.Is(err, zk.ErrNoNode) {
		return r, errGone
	} else if err != nil {
		return r, err
	}

	// Our node was in line when the record changed, so the new record spares it if the old one did.
	f := a.judge(r, true)
	r.version, r.mzxid = answers[1].Stat.Version, answers[1].Stat.Mzxid
	if f == uncounted {
		a.own.spared = &r
	}
	return r, nil
}
