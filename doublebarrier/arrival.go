package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An arrival is one call of Enter. It has one node at a time, in one session after the other. One
// goroutine uses it at a time: Enter's, or the background goroutine that finishes Enter's work.
type arrival struct {
	barrier *Barrier
	caller  context.Context // ends when Enter stops waiting for an outcome
	session *recipe.Session // of the latest attempt
	owner   string          // the same for all its nodes
	nodes   int             // how many it has tried to create
	own     own
	full    *gate // of a round that it is not a member of

	doubt   atomic.Bool // one of its nodes may be there, or may have been counted
	earlier bool        // a node that is gone may have been counted
}

// An outcome is the result of an arrival.
type outcome struct {
	entry *Entry
	err   error
}

var (
	// errGone says that our node was deleted before a gate was known to have counted it, or that no
	// gate can count it any more.
	errGone = errors.New("member deleted while waiting")

	// errCounted says that the arrival was counted, and has no place inside. There is no way back.
	errCounted = fmt.Errorf("%w: a round has counted this member, and then its session ended, "+
		"or another client deleted the member or the gate", protocol.ErrLost)
)

// attempt enters under one session. It returns an error if the next session must try again.
func (a *arrival) attempt(ctx context.Context, s *recipe.Session) (outcome, error) {
	if a.owner == "" {
		a.owner = s.NewOwner().String()
	}
	a.session = s

	o, err := a.enter(ctx, s)
	if err != nil { // the arrival is not ours any more
		return outcome{err: err}, nil
	}
	if o.err != nil && !errors.Is(o.err, errCounted) && s.Err() != nil {
		return outcome{}, o.err
	}
	return o, nil
}

// complete runs work to its end. If the caller stops waiting, it returns an error. Work then goes
// on in the background (which owns the arrival from then on) and ends with undo.
func (a *arrival) complete(s *recipe.Session, work func(context.Context, *recipe.Session) (*Entry, error),
	undo func(outcome)) (outcome, error) {
	return recipe.Detach(a.caller, s, func(ctx context.Context, s *recipe.Session) (outcome, error) {
		defer s.KeepAlive()()
		e, err := work(ctx, s)
		return outcome{e, err}, nil
	}, undo)
}

// enter goes through the line until there is an outcome. Like complete, it returns an error if the
// caller has stopped waiting.
func (a *arrival) enter(ctx context.Context, s *recipe.Session) (outcome, error) {
	err := a.checkSize(s, 0)
	if err == nil {
		err = a.resolve(ctx, s) // a node of the session before
	}
	if err != nil {
		return outcome{err: err}, nil
	}

	for {
		// Join, wait for a gate, and become an entry or withdraw.
		o, err := a.complete(s, a.join, func(joined outcome) {
			if joined.err == nil {
				late, _ := a.conclude(s, nil, errGone)
				late.leave()
			}
		})
		if err != nil || o.err != nil {
			return o, err
		}

		g, failed := a.await(ctx, s)
		o, err = a.conclude(s, g, failed)

		// Join again if no gate has counted us, and the caller still waits.
		switch {
		case err != nil || errors.Is(o.err, errCounted):
		case errors.Is(o.err, errGone):
			if ctx.Err() == nil {
				continue
			}
			o.err = fmt.Errorf("%w: %v", recipe.Ended(ctx), o.err)
		case errors.Is(o.err, ErrFull) && a.barrier.waits:
			if o.err = a.full.awaitEnd(ctx, s, false); o.err == nil {
				continue
			}
		}
		return o, err
	}
}

// await waits until a gate is open that has counted our node. Only the record says that: its change
// wakes the waiting members, and one read of it lets them in.
//
// A waiting member needs no trust, so its session makes no requests meanwhile. After a while we
// also watch our own node, because another client may delete it.
func (a *arrival) await(ctx context.Context, s *recipe.Session) (*gate, error) {
	for long := false; ; {
		g, watch, err := a.look(ctx, s)
		if errors.Is(err, zk.ErrBadVersion) {
			continue // another member has changed the record, or the line
		} else if g != nil || err != nil {
			return g, err
		}

		long, err = waitFor(ctx, s, watch, long, a.barrier.member(a.own.Node))
		if errors.Is(err, zk.ErrNoNode) {
			err = errGone
		}
		if err != nil {
			return nil, err
		}
	}
}

// look reads the record and acts on it. It returns the gate if the gate has counted our node, and
// otherwise the watch on the record. It returns [zk.ErrBadVersion] if the record has changed
// meanwhile.
func (a *arrival) look(ctx context.Context, s *recipe.Session) (*gate, *recipe.Watch, error) {
	defer s.KeepAlive()()
	r, watch, err := a.read(ctx, s)
	switch {
	case err != nil:
		return nil, nil, err
	case r.gate.has(a.own.Node):
		return r.gate, nil, nil
	case r.gate.hasOwner(a.owner): // it has counted an earlier node of ours
		return nil, nil, errCounted
	case r.gate != nil:
		return nil, nil, a.clearOver(ctx, s, r)
	case a.own.Sequence < r.From: // the record was lost: see agree
		return nil, nil, errGone
	}

	if r, err = a.agree(ctx, s, r); err != nil {
		return nil, nil, err
	}

	g, err := a.open(ctx, s, r)
	return g, watch, err
}

// read returns the record, and the watch on it. Our node was created after another Watch of the
// session may have read the record. Events come in order with answers, so the record is current as
// long as there is no event.
func (a *arrival) read(ctx context.Context, s *recipe.Session) (record, *recipe.Watch, error) {
	b := a.barrier
	watch := s.Watch(b.process())
	stat, err := watch.Fresh(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return record{}, nil, errGone // our node was below it
	} else if err != nil {
		return record{}, nil, err
	}

	r := b.parse(watch.Data(), stat)
	if !r.complete() {
		if r, err = b.read(ctx, s); err != nil {
			return r, nil, err
		}
	}
	if r.version == 0 { // no member has written to this process yet: the numbers begin again
		r.From = 0
	}
	a.own.seen = &r
	a.judge(r, false)
	return r, watch, nil
}

// clearOver removes the gate of a finished round, with or without its ID node, and has the caller
// read the record again. It returns ErrFull if the round is in progress.
func (a *arrival) clearOver(ctx context.Context, s *recipe.Session, r record) error {
	left, err := r.gate.left(ctx, s)
	if err != nil {
		return err
	} else if len(left) > 0 {
		a.full = r.gate
		return ErrFull
	}

	if _, err = a.write(ctx, s, r, r.closed(),
		&zk.DeleteRequest{Path: r.gate.idNode(), Version: -1},
		&zk.DeleteRequest{Path: r.gate.ready(), Version: -1}); err != nil {
		return err
	}
	return zk.ErrBadVersion
}

// conclude makes an entry of a member that was counted. If it failed to wait for the gate, conclude
// withdraws the member, or finds out that it was counted.
func (a *arrival) conclude(s *recipe.Session, g *gate, failed error) (outcome, error) {
	return a.complete(s, func(ctx context.Context, s *recipe.Session) (*Entry, error) {
		if failed != nil {
			var err error
			if g, err = a.withdrawForGood(ctx, s, failed); g == nil {
				return nil, errors.Join(failed, err)
			}
		}
		return a.admit(ctx, s, g)
	}, outcome.leave)
}

// leave leaves on behalf of a caller that has not waited for the entry.
func (o outcome) leave() {
	if o.entry != nil {
		o.entry.grant.Release(context.Background()) // ends with the session at the latest
	}
}

// pause is between two attempts to withdraw that the server refuses.
const pause = 10 * time.Second

// withdrawForGood withdraws after an Enter that has failed. If the server refuses, it lets the
// caller go and tries again until the session ends: a gate would count a member that stays in line,
// and the others would wait for it to leave.
func (a *arrival) withdrawForGood(ctx context.Context, s *recipe.Session, failed error) (*gate, error) {
	for {
		g, err := a.withdraw(ctx, s)
		if err == nil || errors.Is(err, errCounted) || ctx.Err() != nil || s.Err() != nil {
			return g, err
		}

		a.barrier.recipe.Logger().Error("member not withdrawn yet", "node", a.own.Node, "error", err)
		s.LetGo(errors.Join(failed, err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// admit makes an entry of an arrival that was counted.
func (a *arrival) admit(ctx context.Context, s *recipe.Session, g *gate) (*Entry, error) {
	e := &Entry{gate: g}
	node := g.member(a.own.Node)
	grant, err := g.recipe.NewGrant(ctx, s, node, g.token, func(ctx context.Context, s *recipe.Session) error {
		return e.depart(ctx, s, node)
	})
	if err != nil { // the session has ended, and its node goes
		return nil, fmt.Errorf("%w: %w", errCounted, err)
	}
	e.grant, e.session = grant, grant.Session()
	grant.AfterFunc(func() {
		if errors.Is(grant.Err(), protocol.ErrLost) {
			e.outlast(e.session)
		}
	})
	return e, nil
}
