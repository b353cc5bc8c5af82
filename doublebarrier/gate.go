package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A gate is what lets a round in. It is over when none of its members has a node any more, and what is written of it is
// then only remains.
//
// The transaction that counts the members writes it to two places. The data of process, a container that lasts as long as
// one of the members, are what members read. The node "ready" is what the documentation's recipe has, for others to see.
// Beside ready is a seal, whose name is never used again: a removal that names the seal cannot hit a later gate. Ready and
// the seal are ephemeral nodes of the opener.
//
// When the opener's session ends before the round does, nothing but the record is left. It is not removed by those who
// leave: without a seal they cannot tell it from a later one. The next member to come does that, see clear. If none comes,
// the server removes the container.
type gate struct {
	barrier *Barrier
	id      string // of the seal
	token   int64  // the number of the transaction
	members []string
	foreign int // children beside the members that were there when the gate opened

	version int32  // of the record; 0 if the gate was read from ready
	closed  []byte // data of process when the gate is removed
}

// A record is the data of the node above the members.
type record struct {
	preamble string // data of others, which are kept
	n        int    // what the members have agreed on; 0 if nothing
	gate     *gate  // nil while none is open
	version  int32
	children int
}

// recordMark is where our part of the data begins.
const recordMark = "zkrecipes/doublebarrier n="

func (b *Barrier) process() string           { return b.path + "/process" }
func (b *Barrier) member(name string) string { return b.process() + "/" + name }
func (b *Barrier) ready() string             { return b.path + "/ready" }
func (g *gate) seal() string                 { return g.barrier.ready() + "-" + g.id }

func (g *gate) data() string {
	return fmt.Sprintf("%s %d\n%s", g.id, g.foreign, strings.Join(g.members, "\n"))
}

// parseGate reads what data wrote. It returns nil if that is not a gate.
func (b *Barrier) parseGate(data string, token int64) *gate {
	head, rest, _ := strings.Cut(data, "\n")
	id, foreign, _ := strings.Cut(head, " ")
	g := &gate{barrier: b, id: id, token: token, members: strings.Split(rest, "\n")}
	g.foreign, _ = strconv.Atoi(foreign) // 0 where the members' names will not do either
	if slices.ContainsFunc(g.members, func(m string) bool { return !isMember(m) }) {
		return nil
	}
	return g
}

func (r record) data() []byte {
	text := fmt.Sprintf("%s%s%d\n", r.preamble, recordMark, r.n)
	if r.gate != nil {
		text += r.gate.data()
	}
	return []byte(text)
}

// closed returns the data without the gate. Data of others are as they were found.
func (r record) closed() []byte {
	if r.preamble != "" {
		return []byte(r.preamble)
	}
	return record{n: r.n}.data()
}

// read reads the record, and the gate from ready if the record has none. It is empty if there is neither.
func (b *Barrier) read(ctx context.Context, s *protocol.Session) (record, error) {
	for seen := ""; ; {
		r, err := b.readRecord(ctx, s)
		if err != nil || r.gate != nil {
			return r, err
		}
		g, err := b.readReady(ctx, s)
		if err != nil || g == nil {
			return r, err
		}

		// It may have opened after the record was read. Only a record that was read after ready is known to be lost.
		if g.id == seen {
			r.gate = g
			return r, nil
		}
		seen = g.id
	}
}

func (b *Barrier) readRecord(ctx context.Context, s *protocol.Session) (record, error) {
	return protocol.Do(ctx, s, func(c *zk.Conn) (record, error) {
		data, stat, err := c.Get(s.Path(b.process()))
		if errors.Is(err, zk.ErrNoNode) {
			return record{}, nil
		} else if err != nil {
			return record{}, err
		}
		preamble, ours, _ := strings.Cut(string(data), recordMark)
		number, gate, _ := strings.Cut(ours, "\n")
		r := record{preamble: preamble, version: stat.Version, children: int(stat.NumChildren)}
		r.n, _ = strconv.Atoi(number) // 0, nothing agreed on, if there is no number
		if r.gate = b.parseGate(gate, stat.Mzxid); r.gate != nil {
			r.gate.version, r.gate.closed = r.version, r.closed()
		}
		return r, nil
	})
}

func (b *Barrier) readReady(ctx context.Context, s *protocol.Session) (*gate, error) {
	return protocol.Do(ctx, s, func(c *zk.Conn) (*gate, error) {
		there, _, err := c.Exists(s.Path(b.ready()))
		if err != nil || !there {
			return nil, err
		}
		data, stat, err := c.Get(s.Path(b.ready()))
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		g := b.parseGate(string(data), stat.Czxid)
		if g == nil {
			err = fmt.Errorf("%w: %s is not a gate of ours", zk.ErrNodeExists, b.ready())
		}
		return g, err
	})
}

// open opens the gate for the first n in line. It returns no gate if there are fewer, and [zk.ErrBadVersion] if another
// member was faster, or one has just gone.
func (a *arrival) open(ctx context.Context, r record) (*gate, error) {
	b, s := a.barrier, a.session
	if r.children < b.n {
		return nil, nil
	}
	line, foreign, err := b.line(ctx, s)
	if err != nil {
		return nil, err
	}
	if line, err = a.agreed(ctx, line); err != nil {
		return nil, err
	}
	g := &gate{
		barrier: b, id: s.NewOwner().String(), members: a.first(line), foreign: foreign,
		version: r.version + 1, closed: r.closed(),
	}
	if len(g.members) < b.n {
		return nil, nil
	}
	if err := a.checkSize(2 * len(r.preamble)); err != nil {
		return nil, err
	}

	var ops []any
	for _, m := range g.members {
		ops = append(ops, &zk.SetDataRequest{Path: s.Path(b.member(m)), Data: []byte{}, Version: uncounted})
	}
	r.gate = g
	ops = append(ops,
		&zk.SetDataRequest{Path: s.Path(b.process()), Data: r.data(), Version: r.version},
		&zk.CreateRequest{Path: s.Path(b.ready()), Data: []byte(g.data()), Acl: b.client.ACL(), Flags: zk.FlagEphemeral},
		&zk.CreateRequest{Path: s.Path(g.seal()), Acl: b.client.ACL(), Flags: zk.FlagEphemeral})
	answers, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return protocol.Multi(c, ops...) })
	switch {
	case err == nil:
		g.token = answers[0].Stat.Mzxid
		return g, nil
	case errors.Is(err, zk.ErrNodeExists):
		return nil, zk.ErrBadVersion
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		// A gate has counted a member already if the member's node is there, and there is no record of that any more.
		for i, answer := range answers {
			if i < len(g.members) && errors.Is(answer.Error, zk.ErrBadVersion) {
				a.strange = append(a.strange, g.members[i])
			}
		}
		return nil, zk.ErrBadVersion
	}
	return nil, err
}

// first returns the first n in line that may be counted, or fewer. Of an owner that has lost a session there may be two.
func (a *arrival) first(line []string) (first []string) {
	owners := make(map[string]bool)
	for _, m := range line {
		if owner := ownerOf(m); len(first) < a.barrier.n && !slices.Contains(a.strange, m) && !owners[owner] {
			owners[owner] = true
			first = append(first, m)
		}
	}
	return first
}

// remaining returns the members of the round that have not left.
func (g *gate) remaining(ctx context.Context, s *protocol.Session) ([]string, error) {
	line, _, err := g.barrier.line(ctx, s)
	return slices.DeleteFunc(line, func(m string) bool { return !slices.Contains(g.members, m) }), err
}

// close removes this gate, which is over, and no other. It does nothing if the gate has no seal any more: then it was
// removed, or its opener's session has ended.
func (g *gate) close(ctx context.Context, s *protocol.Session) error {
	b := g.barrier
	ops := []any{
		&zk.DeleteRequest{Path: s.Path(g.seal()), Version: -1},
		&zk.DeleteRequest{Path: s.Path(b.ready()), Version: -1},
	}
	if g.version > 0 {
		ops = append(ops, &zk.SetDataRequest{Path: s.Path(b.process()), Data: g.closed, Version: g.version})
	}
	_, err := all(ctx, s, 1, ops)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err
}

// clear removes what there is of a gate that is over, seal or not. It returns the errors of write.
func (a *arrival) clear(ctx context.Context, r record) error {
	s := a.session
	_, err := a.write(ctx, r, r.closed(),
		&zk.DeleteRequest{Path: s.Path(r.gate.seal()), Version: -1},
		&zk.DeleteRequest{Path: s.Path(a.barrier.ready()), Version: -1})
	return err
}

// write replaces the data of process, which r was read from, and does the rest together with that. Our own node has to
// exist. While it does, process cannot have been removed and created anew with the same version, so no gate has opened
// since r was read. It returns [zk.ErrBadVersion] if the data have changed, and errGone if our node is gone.
func (a *arrival) write(ctx context.Context, r record, data []byte, rest ...any) (record, error) {
	b, s := a.barrier, a.session
	answers, err := all(ctx, s, 2, append([]any{
		&zk.CheckVersionRequest{Path: s.Path(b.member(a.node)), Version: -1},
		&zk.SetDataRequest{Path: s.Path(b.process()), Data: data, Version: r.version},
	}, rest...))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return r, errGone
	case err != nil:
		return r, err
	}
	r.version, r.children = answers[1].Stat.Version, int(answers[1].Stat.NumChildren)
	return r, nil
}

// all does the operations in one transaction. It leaves out those whose node is not there or has changed, but for the
// first few, which must succeed.
func all(ctx context.Context, s *protocol.Session, must int, ops []any) ([]zk.MultiResponse, error) {
	for {
		answers, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return protocol.Multi(c, ops...) })
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
