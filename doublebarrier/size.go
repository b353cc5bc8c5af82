package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrSize is returned by [Barrier.Enter] when others at the path expect another number of members.
// The error says both numbers.
var ErrSize = errors.New("members disagree about their number")

// agree makes sure that the record has our number before the arrival waits for others. It returns
// [zk.ErrBadVersion] if the record has changed meanwhile.
//
// The record is what spares most members a listing. A member that finds another number in it, or
// none, lists the line, and writes its own number if the first in line agrees. Each creates its
// node before it reads, and one that waits reads again when the record has changed. So of two
// members that disagree at least one sees the other.
func (a *arrival) agree(ctx context.Context, r record) (record, error) {
	n := a.barrier.n
	if r.n == n {
		return r, nil
	}

	line, err := a.list(ctx, r)
	if err != nil {
		return r, err
	}

	// Nodes with lower numbers are gone: they were created before those that are listed.
	from := line[0].sequence
	if r.lost() { // those that are listed may be inside; members that wait join again, as we do
		from = line[len(line)-1].sequence + 1
	}
	r.n, r.from = n, from
	return a.write(ctx, r, r.data())
}

// list lists the members in line that agree with the first, in order of arrival, when the record is
// r. If we do not, it returns an error that wraps ErrSize.
func (a *arrival) list(ctx context.Context, r record) ([]member, error) {
	line, err := a.barrier.line(ctx, a.session)
	if err != nil {
		return nil, err
	}
	if r.n > 0 {
		line = slices.DeleteFunc(line, func(m member) bool { return m.sequence < r.from })
	}

	if !slices.ContainsFunc(line, func(m member) bool { return m.name == a.node }) {
		return nil, errGone
	}
	n := line[0].n
	if n != a.barrier.n {
		return nil, fmt.Errorf("%w: %d here, %d at the others", ErrSize, a.barrier.n, n)
	}

	// Those that do not agree notice it themselves, when they have read the record.
	return slices.DeleteFunc(line, func(m member) bool { return m.n != n }), nil
}
