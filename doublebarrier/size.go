package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
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

	line, err := a.list(ctx)
	if err != nil {
		return r, err
	}

	// Nodes with lower numbers are gone: they were created before those that are listed.
	r.n, r.from = n, line[0].sequence
	return a.write(ctx, r, r.data())
}

// list lists the members that agree, in order of arrival. See agreed.
func (a *arrival) list(ctx context.Context) ([]member, error) {
	line, err := a.barrier.line(ctx, a.session)
	if err != nil {
		return nil, err
	}
	return a.agreed(ctx, line)
}

// agreed returns the members in line that agree with the first. If we do not, it returns an error
// that wraps ErrSize. It deletes the nodes of others that do not, so that they join again and list
// the line themselves.
func (a *arrival) agreed(ctx context.Context, line []member) (agreed []member, err error) {
	if !slices.ContainsFunc(line, func(m member) bool { return m.name == a.node }) {
		return nil, errGone
	}
	if n := line[0].n; n != a.barrier.n {
		return nil, fmt.Errorf("%w: %d here, %d at the others", ErrSize, a.barrier.n, n)
	}

	for _, m := range line {
		if m.n == a.barrier.n {
			agreed = append(agreed, m)
			continue
		}
		err := a.session.Delete(ctx, a.barrier.member(m.name), uncounted)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return nil, err
		}
	}
	return agreed, nil
}
