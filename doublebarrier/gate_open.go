package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrSize is returned by [Barrier.Enter] when others at the path expect another number of members.
// The error says both numbers.
var ErrSize = errors.New("members disagree about their number")

// checkSize refuses a barrier whose gate would not fit into one request, with so many bytes of
// others.
func (a *arrival) checkSize(s *recipe.Session, others int) error {
	const rest = 100 // of an operation, the sequence number and the end of lines
	b := a.barrier
	each := len(s.Path(b.process())) + 3*len(layout.DoublePrefix(a.owner, a.nodes, b.n)) + rest

	// Besides its members, a gate has what takes as much as two: its own nodes with their ACLs.
	most := min(recipe.MaxData, s.RequestLimit())
	if b.n > (most-others)/each-2 {
		return fmt.Errorf("%w: %d members take %d bytes each in one transaction, at most %d together",
			protocol.ErrTooLarge, b.n, each, most)
	}
	return nil
}

// agree makes sure that the record has our number before the arrival waits for others. It returns
// [zk.ErrBadVersion] if the record has changed meanwhile.
//
// The record spares most members a listing. A member that finds another number in it (or none)
// lists the line and writes its own number if the first in line agrees. Each member creates its
// node before it reads, and reads again when the record has changed. So of two members that
// disagree at least one sees the other.
func (a *arrival) agree(ctx context.Context, s *recipe.Session, r record) (record, error) {
	if r.Size == a.barrier.n {
		return r, nil
	}
	line, err := a.list(ctx, s, r)
	if err != nil {
		return r, err
	}

	// Nodes with lower numbers are gone: they were created before those that are listed.
	from := line[0].Sequence
	if r.Size == 0 && r.version > 0 { // another client replaced the record, so listed members may be inside
		from = line[len(line)-1].Sequence + 1
	}
	r.Size, r.From = a.barrier.n, from
	return a.write(ctx, s, r, r.Data())
}

// list lists the members in line that agree with the first, in order of arrival, when the record is
// r. If we do not, it returns an error that wraps ErrSize.
func (a *arrival) list(ctx context.Context, s *recipe.Session, r record) ([]member, error) {
	line, err := a.barrier.line(ctx, s)
	if err != nil {
		return nil, err
	}

	line = slices.DeleteFunc(line, func(m member) bool { return m.Sequence < r.From })
	if !slices.ContainsFunc(line, func(m member) bool { return m.Node == a.own.Node }) {
		return nil, errGone
	}

	n := line[0].Size
	if n != a.barrier.n {
		return nil, fmt.Errorf("%w: %d here, %d at the others", ErrSize, a.barrier.n, n)
	}

	// Members that do not agree notice it themselves when they read the record.
	return slices.DeleteFunc(line, func(m member) bool { return m.Size != n }), nil
}

// open opens the gate for the first n in line and returns the gate if we are among them. It returns
// no gate if there are fewer than n. It returns [zk.ErrBadVersion] if it has let in others, another
// member was faster, or a member has just gone.
//
// A member lists the line only if n-1 smaller numbers can be in line. The last of any n members to
// come does, and it sees the others. So most members need not look.
func (a *arrival) open(ctx context.Context, s *recipe.Session, r record) (*gate, error) {
	b := a.barrier
	if int(a.own.Sequence-r.From) < b.n-1 {
		return nil, nil
	}

	line, err := a.list(ctx, s, r)
	if err != nil {
		return nil, err
	}

	// An owner that has lost a session can have two nodes in line. Only one counts. No member that
	// remains in line has a number below From: see agree.
	owners, opened := make(map[string]bool), r
	opened.From = line[len(line)-1].Sequence + 1
	for _, m := range line {
		if len(opened.Members) < b.n && !owners[m.Owner] {
			owners[m.Owner] = true
			opened.Members = append(opened.Members, m.Node)
		} else {
			opened.From = min(opened.From, m.Sequence)
		}
	}
	if len(opened.Members) < b.n {
		return nil, nil
	}

	if err := a.checkSize(s, len(r.Preamble)); err != nil {
		return nil, err
	}

	opened.Rounds++
	opened.Gate = s.NewOwner().String()
	return a.count(ctx, s, r, opened)
}

// count writes the record that opens a gate, and with it counts the gate's members. The record was
// read as r.
func (a *arrival) count(ctx context.Context, s *recipe.Session, r, opened record) (*gate, error) {
	b := a.barrier

	// Each member must have its node. No member withdraws once the record has changed (see remove),
	// so the members' data stay.
	ops := []any{&zk.SetDataRequest{Path: b.process(), Data: opened.Data(), Version: r.version}}
	for _, m := range opened.Members {
		ops = append(ops, &zk.CheckVersionRequest{Path: b.member(m), Version: -1})
	}

	ready := opened
	ready.Preamble = ""
	ops = append(ops,
		&zk.CreateRequest{Path: b.ready(), Data: ready.Data(), Flags: zk.FlagEphemeral},
		&zk.CreateRequest{Path: b.ready() + "-" + opened.Gate, Flags: zk.FlagEphemeral})

	answers, err := s.Multi(ctx, ops...)
	if err == nil {
		g := b.parse(opened.Data(), answers[0].Stat).gate
		if g.has(a.own.Node) {
			return g, nil
		}
		g.attend(s, false) // it has no Entry
	} else if errors.Is(err, zk.ErrNodeExists) {
		// A ready was created since the number was written. Without a number, all members read
		// ready.
		r.Size = 0
		_, err = a.write(ctx, s, r, r.Data())
	}
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		err = zk.ErrBadVersion
	}
	return nil, err
}
