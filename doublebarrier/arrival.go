package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

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

// grace is how long Enter goes on after the end of its ctx to find out whether it was counted.
const grace = 50 * time.Millisecond

// errGone says that our node was deleted before a gate was known to have counted it, or that no
// gate can count it any more.
var errGone = errors.New("member deleted while waiting")

// A lingering is a context that ends a while after the one that it was made from, with the same
// error.
type lingering struct {
	context.Context
	done chan struct{}
}

// linger returns a context that ends when ctx has ended and grace is over.
func linger(ctx context.Context) (_ context.Context, stop func() bool) {
	l := &lingering{ctx, make(chan struct{})}
	return l, context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { close(l.done) })
	})
}

func (l *lingering) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (l *lingering) Done() <-chan struct{} { return l.done }

func (l *lingering) Err() error {
	select {
	case <-l.done:
		return l.Context.Err()
	default:
		return nil
	}
}

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
			if g, err = a.withdraw(ctx); err != nil {
				return nil, errors.Join(failed, err)
			} else if g == nil {
				return nil, failed
			}
		}

		return a.admit(ctx, g)
	}, outcome.leave)
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
