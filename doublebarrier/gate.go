package doublebarrier

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A gate lets a round in. It is over when none of its members has a node any more.
//
// The transaction that counts the members writes the record to two places. The data of process,
// which lasts as long as one of the members, are what members read. The node "ready" is
// what the documentation's recipe has, for other clients to see. Beside ready is an ID node, whose
// name is never used again: a removal that names it cannot hit a later gate. Ready and the ID node
// are ephemeral nodes of the opener.
//
// If the opener's session ends before the round does, only the record is left. Members that leave
// do not remove it: without an ID node they cannot tell it from a later one. The next member to
// come does that, see clear. If none comes, the server removes process, a container.
type gate struct {
	barrier *Barrier
	id      string // of the ID node
	token   int64  // the number of the transaction
	round   int64  // its number
	members []string

	version int32  // of the record; 0 if the gate was read from ready
	closed  []byte // data of process when the gate is removed
}

func (b *Barrier) process() string           { return b.recipe.Path() + "/process" }
func (b *Barrier) member(name string) string { return b.process() + "/" + name }
func (b *Barrier) ready() string             { return b.recipe.Path() + "/ready" }
func (g *gate) idNode() string               { return g.barrier.ready() + "-" + g.id }

func (g *gate) data() string {
	return g.id + "\n" + strings.Join(g.members, "\n")
}

// parseGate reads what data wrote. It returns nil if that is not a gate.
func (b *Barrier) parseGate(data string) *gate {
	id, members, _ := strings.Cut(data, "\n")
	g := &gate{barrier: b, id: id, members: strings.Split(members, "\n")}

	if slices.ContainsFunc(g.members, func(m string) bool { return !isMember(m) }) {
		return nil
	}
	return g
}

// has reports whether the gate has counted this node. No gate has.
func (g *gate) has(node string) bool { return g != nil && slices.Contains(g.members, node) }

// hasOwner reports whether the gate has counted a node of this arrival. No gate has.
func (g *gate) hasOwner(owner string) bool {
	return g != nil && slices.ContainsFunc(g.members, func(m string) bool { return strings.HasPrefix(m, owner) })
}

// open opens the gate for the first n in line. It returns no gate if there are fewer. It returns
// [zk.ErrBadVersion] if another member was faster, or one has just gone.
//
// A member lists the line only if n-1 numbers before its own may be in line. Of any n members, the
// last to come is such a one, and it sees the others. So most members need not look.
func (a *arrival) open(ctx context.Context, r record) (*gate, error) {
	b, s := a.barrier, a.session
	if int(a.sequence-r.from) < b.n-1 {
		return nil, nil
	}
	line, err := a.list(ctx, r)
	if err != nil {
		return nil, err
	}

	g := &gate{
		barrier: b, id: s.NewOwner().String(), members: a.first(line),
		round: r.rounds + 1, version: r.version + 1,
	}
	if len(g.members) < b.n {
		return nil, nil
	}

	// Of the members that remain in line, none has a lower number: see agree.
	r.from = line[len(line)-1].sequence + 1
	if i := slices.IndexFunc(line, func(m member) bool { return !g.has(m.name) }); i >= 0 {
		r.from = line[i].sequence
	}

	if err := a.checkSize(len(r.preamble)); err != nil {
		return nil, err
	}
	return a.count(ctx, r, g)
}

// count counts the gate's members, and opens it. The record was read as r, without a gate.
func (a *arrival) count(ctx context.Context, r record, g *gate) (*gate, error) {
	b := a.barrier
	opened := r
	opened.rounds, opened.gate = g.round, g
	g.closed = opened.closed()

	// Each member must have its node. Once the record has changed, none of them withdraws: see
	// removeAt. So the data of the members stay as they are.
	ops := []any{&zk.SetDataRequest{Path: b.process(), Data: opened.data(), Version: r.version}}
	for _, m := range g.members {
		ops = append(ops, &zk.CheckVersionRequest{Path: b.member(m), Version: -1})
	}
	opened.preamble = ""
	ops = append(ops,
		&zk.CreateRequest{Path: b.ready(), Data: opened.data(), Flags: zk.FlagEphemeral},
		&zk.CreateRequest{Path: g.idNode(), Flags: zk.FlagEphemeral})

	answers, err := a.session.Multi(ctx, ops...)
	switch {
	case err == nil:
		g.token = answers[0].Stat.Mzxid
		return g, nil
	case errors.Is(err, zk.ErrNodeExists): // a ready that was not there when the number was written
		r.n = 0
		if _, err := a.write(ctx, r, r.data()); err != nil {
			return nil, err
		}
		return nil, zk.ErrBadVersion // for all to read what it is
	case errors.Is(err, zk.ErrNoNode):
		return nil, zk.ErrBadVersion
	}
	return nil, err
}

// first returns the first n in line, or fewer. Of an owner that has lost a session there may be
// two.
func (a *arrival) first(line []member) (first []string) {
	owners := make(map[string]bool)
	for _, m := range line {
		if len(first) < a.barrier.n && !owners[m.owner] {
			owners[m.owner] = true
			first = append(first, m.name)
		}
	}
	return first
}

// membersLeft returns the members of the round that have not left.
func (g *gate) membersLeft(ctx context.Context, s *protocol.Session) (names []string, err error) {
	line, err := g.barrier.line(ctx, s)
	for _, m := range line {
		if g.has(m.name) {
			names = append(names, m.name)
		}
	}
	return names, err
}

// close removes this gate, which is over, and no other. It does nothing if the ID node is gone:
// then the gate was removed, or its opener's session has ended.
func (g *gate) close(ctx context.Context, s *protocol.Session) error {
	b := g.barrier
	ops := []any{
		&zk.DeleteRequest{Path: g.idNode(), Version: -1},
		&zk.DeleteRequest{Path: b.ready(), Version: -1},
	}
	if g.version > 0 {
		ops = append(ops, &zk.SetDataRequest{Path: b.process(), Data: g.closed, Version: g.version})
	}

	_, err := multiOf(ctx, s, 1, ops)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err
}

// clear removes what there is of a gate that is over, with or without its ID node. It returns the
// errors of write.
func (a *arrival) clear(ctx context.Context, r record) error {
	_, err := a.write(ctx, r, r.closed(),
		&zk.DeleteRequest{Path: r.gate.idNode(), Version: -1},
		&zk.DeleteRequest{Path: a.barrier.ready(), Version: -1})
	return err
}

// multiOf does the operations in one transaction. It leaves out those whose node is not there or
// has changed, but for the first few, which must succeed.
func multiOf(ctx context.Context, s *protocol.Session, must int, ops []any) ([]zk.MultiResponse, error) {
	for {
		answers, err := s.Multi(ctx, ops...)
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return answers, err
		}

		failed := slices.IndexFunc(answers, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < must {
			return answers, err
		}
		ops = slices.Delete(ops, failed, failed+1)
	}
}
