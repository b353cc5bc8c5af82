package doublebarrier

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// await waits until a gate is open that has counted our node. The record alone tells: a change of
// it wakes the members that wait, and one read of it lets them in.
func (a *arrival) await(ctx context.Context) (*gate, error) {
	rest := a.session.KeepAlive()
	defer func() { rest() }()

	for long := false; ; {
		r, watch, err := a.read(ctx)
		g := r.gate
		switch {
		case err != nil:
			return nil, err
		case g.has(a.node):
			return g, nil
		case g.hasOwner(a.owner):
			return nil, a.lost()
		case g != nil:
			if err := a.clearOver(ctx, r); err != nil && !errors.Is(err, zk.ErrBadVersion) {
				return nil, err
			}
			continue
		case r.n > 0 && a.sequence < r.from: // the record was lost: see agree
			return nil, errGone
		}

		if r, err = a.agree(ctx, r); err == nil {
			g, err = a.open(ctx, r)
		}
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			continue // another member has changed the record, or the line
		case err != nil:
			return nil, err
		case g.has(a.node):
			return g, nil
		case g != nil:
			continue
		}

		rest()
		long, err = a.wait(ctx, watch, long)
		rest = a.session.KeepAlive()
		if err != nil {
			return nil, err
		}
	}
}

// read returns the record, and the watch on it. What another Watch of the session has read still
// holds if there was no event: our node was created since, and events come in order with answers.
func (a *arrival) read(ctx context.Context) (record, *protocol.Watch, error) {
	b, s := a.barrier, a.session
	for {
		watch := s.Watch(b.process())
		same, err := watch.Current(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return record{}, nil, errGone // our node was below it
		} else if err != nil {
			return record{}, nil, err
		} else if !same {
			continue
		}

		stat, err := watch.Ready(ctx)
		if err != nil {
			return record{}, nil, err
		}
		r := b.parseRecord(watch.Data(), stat)
		if !r.complete() {
			r, err = b.read(ctx, s)
		}
		if r.version == 0 { // no member has written to this process yet: the numbers begin again
			r.from = 0
		}
		if err == nil {
			a.seen = &r
			a.spares(r)
		}
		return r, watch, err
	}
}

// wait blocks until the record may have changed. A member that waits needs no trust, so its session
// makes no requests meanwhile. Once the wait is long, our own node is watched, too: another client
// may delete it.
func (a *arrival) wait(ctx context.Context, watch *protocol.Watch, long bool) (nowLong bool, err error) {
	s := a.session
	if !long {
		return waitBriefly(ctx, s, watch)
	}

	own := s.Watch(a.barrier.member(a.node))
	if _, err := own.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
		return true, errGone
	} else if err != nil {
		return true, err
	}
	return true, s.WaitAny(ctx, watch, own)
}

// waitBriefly blocks until one of the watches has told of a change, or for a third of a session
// timeout. It reports whether that has passed.
func waitBriefly(ctx context.Context, s *protocol.Session, watch *protocol.Watch) (passed bool, err error) {
	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)
	defer cancel()

	err = s.WaitAny(soon, watch)
	if err != nil && soon.Err() != nil && ctx.Err() == nil && s.Err() == nil {
		return true, nil
	}
	return false, err
}

// clearOver removes the gate of a round that is over. It returns ErrFull if the round is under way.
func (a *arrival) clearOver(ctx context.Context, r record) error {
	left, err := r.gate.membersLeft(ctx, a.session)
	if err != nil {
		return err
	} else if len(left) > 0 {
		a.full = r.gate
		return ErrFull
	}
	return a.clear(ctx, r)
}
