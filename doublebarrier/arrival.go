package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An arrival is one call of Enter. It has one node at a time, in one session after the other. Only
// one goroutine uses it at a time: that of Enter, or the one that finishes what Enter has begun.
type arrival struct {
	barrier  *Barrier
	caller   context.Context // ends when Enter stops waiting for an outcome
	session  *protocol.Session
	owner    string  // the same for all its nodes
	nodes    int     // how many it has tried to create
	node     string  // the name of the present one; empty if there is none
	sequence int32   // its number
	czxid    int64   // of the transaction that created it; 0 if that is not known
	seen     *record // as it was read last; nil if it was not since node was created
	spared   *record // no gate up to this record has counted node; nil if that is not known
	counted  bool    // by a round: there is no way back
	full     *gate   // of a round that it is not a member of

	present    atomic.Bool // a node of its own may be there
	unresolved atomic.Bool // a node that is gone may have been counted
}

// An outcome is what has become of an arrival.
type outcome struct {
	entry *Entry
	err   error
}

// errGone says that our node was deleted before a gate was known to have counted it, or that no
// gate can count it any more.
var errGone = errors.New("member deleted while waiting")

// attempt enters under one session. It returns an error if that is to be done again under the next.
func (a *arrival) attempt(ctx context.Context, s *protocol.Session) (outcome, error) {
	if a.owner == "" {
		a.owner = s.NewOwner().String()
	}
	a.session = s

	e, err := a.enter(ctx)
	switch {
	case err == nil:
		return outcome{entry: e}, nil
	case errors.As(err, new(*unfinishedError)): // the arrival is not ours any more
		return outcome{err: a.uncertain(err)}, nil
	case a.counted:
		return outcome{err: err}, nil
	case s.Err() != nil:
		return outcome{}, err
	}
	return outcome{err: a.uncertain(err)}, nil
}

// uncertain adds to an error that the arrival may have been counted all the same.
func (a *arrival) uncertain(err error) error {
	if !a.present.Load() && !a.unresolved.Load() {
		return err
	}
	return fmt.Errorf("%w: %w whether this member was counted", err, protocol.ErrUncertain)
}

// complete runs work to its end, whatever becomes of the caller. If the caller stops waiting, it
// returns an unfinishedError. Work then goes on in the background, which has the arrival to itself,
// and ends with undo.
func (a *arrival) complete(work func(context.Context) (*Entry, error), undo func(outcome)) (*Entry, error) {
	o, err := protocol.Detach(a.caller, a.session, func(ctx context.Context) (outcome, error) {
		defer a.session.KeepAlive()()
		e, err := work(ctx)
		return outcome{e, err}, nil
	}, undo)

	if err != nil {
		return nil, &unfinishedError{err}
	}
	return o.entry, o.err
}

// An unfinishedError is the error of a caller that did not wait for the end of its work.
type unfinishedError struct{ error }

func (u *unfinishedError) Unwrap() error { return u.error }

// enter crosses until that has an outcome.
func (a *arrival) enter(ctx context.Context) (*Entry, error) {
	if err := a.checkSize(0); err != nil {
		return nil, err
	}

	if err := a.resolve(ctx); err != nil {
		return nil, err
	}
	for {
		e, err := a.cross(ctx)
		switch {
		case errors.As(err, new(*unfinishedError)): // the arrival is not ours any more
		case errors.Is(err, errGone) && !a.counted:
			if ctx.Err() == nil {
				continue
			}
			err = fmt.Errorf("%w: %v", protocol.Wanted(ctx), err)
		case errors.Is(err, ErrFull) && a.barrier.waits:
			if err = a.full.awaitEnd(ctx, a.session, false); err == nil {
				continue
			}
		}
		return e, err
	}
}

// checkSize refuses a barrier whose gate would not fit into one request, with so many bytes of
// others.
func (a *arrival) checkSize(others int) error {
	const rest = 100 // of an operation, the sequence number and the end of lines
	b := a.barrier
	each := len(a.session.Path(b.process())) + 3*len(memberPrefix(a.owner, a.nodes, b.n)) + rest

	if b.n > (protocol.MaxData-others)/each {
		return fmt.Errorf("%w: %d members take %d bytes each in one transaction, at most %d together",
			protocol.ErrTooLarge, b.n, each, protocol.MaxData)
	}
	return nil
}

// cross joins, waits for the gate, and withdraws if it does not come to that.
func (a *arrival) cross(ctx context.Context) (*Entry, error) {
	_, err := a.complete(func(ctx context.Context) (*Entry, error) { return nil, a.join(ctx) }, a.abandon)
	if err != nil {
		return nil, err
	}

	g, err := a.await(ctx)
	return a.conclude(g, err)
}

// abandon withdraws, or leaves, after an Enter that has not waited for join.
func (a *arrival) abandon(joined outcome) {
	if joined.err == nil {
		e, _ := a.conclude(nil, errGone)
		outcome{entry: e}.leave()
	}
}

// conclude makes an entry of a member that was counted. If it failed to wait for the gate, conclude
// withdraws the member, or finds out that it was counted.
func (a *arrival) conclude(g *gate, failed error) (*Entry, error) {
	return a.complete(func(ctx context.Context) (*Entry, error) {
		if failed != nil {
			var err error
			if g, err = a.withdrawForGood(ctx, failed); err != nil {
				return nil, errors.Join(failed, err)
			} else if g == nil {
				return nil, failed
			}
		}

		return a.admit(ctx, g)
	}, outcome.leave)
}

// pause is between two attempts to withdraw that the server refuses.
const pause = 10 * time.Second

// withdrawForGood withdraws after an Enter that has failed. If the server refuses, the caller is
// let go, and it tries again until the session is over: a gate would count a member that stays in
// line, and the others would wait for it to leave.
func (a *arrival) withdrawForGood(ctx context.Context, failed error) (*gate, error) {
	for {
		g, err := a.withdraw(ctx)
		if err == nil || a.counted || ctx.Err() != nil || a.session.Err() != nil {
			return g, err
		}

		a.barrier.recipe.Logger().Error("member not withdrawn yet", "node", a.node, "error", err)
		protocol.LetGo(ctx, errors.Join(failed, err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// leave leaves on behalf of a caller that has not waited for the entry.
func (o outcome) leave() {
	if o.entry != nil {
		o.entry.grant.Release(context.Background()) // ends with the session at the latest
	}
}

// admit makes an entry of an arrival that was counted.
func (a *arrival) admit(ctx context.Context, g *gate) (*Entry, error) {
	a.counted = true
	e := &Entry{session: a.session, gate: g}
	node := a.barrier.member(a.node)
	grant, err := a.barrier.recipe.NewGrant(ctx, a.session, node, g.token, func(ctx context.Context) error {
		return e.depart(ctx, node)
	})

	if err != nil { // the session is over, and so the node goes
		return nil, fmt.Errorf("%w: %w", protocol.ErrLost, err)
	}
	e.grant = grant
	return e, nil
}
