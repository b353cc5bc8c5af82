package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// ErrSize is returned by [Barrier.Enter] when others at the path expect another number of members. The error says both
// numbers.
var ErrSize = errors.New("members disagree about their number")

// agree makes sure that the record has our number before the arrival waits for others.
//
// The record is what spares most members a listing. It has a number only after a listing without disagreement. A member
// that finds another one deletes it first, and one that finds none lists the line. Each creates its node before it reads.
// So of two members that disagree at least one sees the other.
//
// It returns [zk.ErrBadVersion] if the record has changed meanwhile.
func (a *arrival) agree(ctx context.Context, r record) (record, error) {
	n := a.barrier.n
	if r.n == n {
		return r, nil
	}

	var err error
	if r.n != 0 {
		r.n = 0
		if r, err = a.write(ctx, r, r.data()); err != nil {
			return r, err
		}
	}
	line, _, err := a.barrier.line(ctx, a.session)
	if err != nil {
		return r, err
	}
	if _, err := a.agreed(ctx, line); err != nil {
		return r, err
	}
	r.n = n
	return a.write(ctx, r, r.data())
}

// agreed returns those in line who agree with the first. If we do not, it returns an error that wraps ErrSize. It deletes
// the nodes of others that do not, so that they join again and list the line themselves.
func (a *arrival) agreed(ctx context.Context, line []string) (agreed []string, err error) {
	if !slices.Contains(line, a.node) {
		return nil, errGone
	}
	if n := sizeOf(line[0]); n != a.barrier.n {
		return nil, fmt.Errorf("%w: %d here, %d at the others", ErrSize, a.barrier.n, n)
	}

	for _, m := range line {
		if sizeOf(m) == a.barrier.n {
			agreed = append(agreed, m)
			continue
		}
		err := a.delete(ctx, m, uncounted)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return nil, err
		}
	}
	return agreed, nil
}
