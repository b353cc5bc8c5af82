package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An arrival is one call of Enter. It has one node at a time, in one session after the other.
type arrival struct {
	barrier *Barrier
	session *protocol.Session
	owner   string   // the same for all its nodes
	nodes   int      // how many it has tried to create
	node    string   // the name of the present one; empty while it is not known
	counted bool     // by a round: there is no way back
	full    *gate    // of a round without us
	strange []string // members that no gate can count

	asked atomic.Bool // for a node that may be there
	doubt atomic.Bool // whether a node that was lost with its session had been counted
}

// An outcome is what has become of an arrival.
type outcome struct {
	entry *Entry
	err   error
}

const (
	// uncounted is the version of a member's node that no gate has counted.
	uncounted = 0

	// patience is how long Enter goes on after the end of its ctx to find out whether it was counted.
	patience = 50 * time.Millisecond
)

// errGone says that our node is not what it was any more.
var errGone = errors.New("member deleted while waiting")

// attempt enters under one session. It returns an error if that is to be done again under the next.
func (a *arrival) attempt(ctx context.Context, s *protocol.Session) (outcome, error) {
	if a.owner == "" {
		a.owner = s.NewOwner().String()
	}
	if a.asked.Load() {
		a.doubt.Store(true)
	}
	a.session = s
	patient, cancel := lingering(ctx)
	defer cancel()
	o, err := protocol.Finish(patient, s, func(life context.Context) (outcome, error) {
		e, err := a.enter(ctx, life)
		if !a.counted {
			err = a.doubted(err)
		}
		return outcome{e, err}, nil
	}, outcome.abandon)
	switch {
	case errors.Is(err, protocol.ErrClosed):
		return outcome{}, err
	case err != nil: // whoever is still at work begins nothing any more
		return outcome{err: a.doubted(ctx.Err())}, nil
	case o.err != nil && s.Err() != nil && !a.counted:
		return outcome{}, o.err
	}
	return o, nil
}

// lingering returns a context that ends when ctx has ended and patience has, too.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(patience):
			cancel()
		case <-patient.Done():
		}
	})
	return patient, func() {
		stop()
		cancel()
	}
}

// abandon leaves on behalf of somebody who has not waited for it.
func (o outcome) abandon() {
	if o.entry != nil {
		protocol.Release(context.Background(), o.entry.grant) // ends with the session at the latest
	}
}

// doubted adds to an error that the arrival may have been counted all the same.
func (a *arrival) doubted(err error) error {
	if err == nil || !a.asked.Load() && !a.doubt.Load() || errors.Is(err, protocol.ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w whether this one was counted", err, protocol.ErrUncertain)
}

// enter begins nothing any more once ctx has ended, but finds out under life what has become of what it had begun.
func (a *arrival) enter(ctx, life context.Context) (*Entry, error) {
	if err := a.checkSize(0); err != nil {
		return nil, err
	}
	defer a.session.Engage()()
	if err := a.settle(ctx); err != nil {
		return nil, err
	}
	for {
		e, err := a.cross(ctx, life)
		switch {
		case errors.Is(err, errGone) && !a.counted:
			if ctx.Err() == nil {
				continue
			}
			err = fmt.Errorf("%w: %v", ctx.Err(), err)
		case errors.Is(err, ErrFull) && a.barrier.waits:
			if err = a.full.over(ctx, a.session, crowd{}); err == nil {
				continue
			}
		}
		return e, err
	}
}

// checkSize refuses a barrier whose gate would not fit into one request, with so many bytes of others.
func (a *arrival) checkSize(others int) error {
	const rest = 100 // of an operation, the sequence number and the end of lines
	b := a.barrier
	name := len(prefix(a.owner, a.nodes, b.n))
	if size := b.n*(len(a.session.Path(b.process()))+3*name+rest) + others; size > protocol.MaxData {
		return fmt.Errorf("%w: %d members take %d bytes in one transaction, at most %d", protocol.ErrTooLarge, b.n, size,
			protocol.MaxData)
	}
	return nil
}

// cross joins, waits for the gate, and withdraws if it does not come to that.
func (a *arrival) cross(ctx, life context.Context) (*Entry, error) {
	err := a.join(ctx, life)
	var g *gate
	if err == nil {
		g, err = a.await(ctx)
	}
	if err != nil {
		var failed error
		if g, failed = a.withdraw(life); failed != nil {
			return nil, errors.Join(err, failed)
		} else if g == nil {
			return nil, err
		}
	}
	return a.admitted(life, g)
}

// join creates the member.
func (a *arrival) join(ctx, life context.Context) error {
	b, s := a.barrier, a.session
	for {
		a.nodes++
		name := prefix(a.owner, a.nodes, b.n)
		node, err := protocol.Settle(life, s, func(c *zk.Conn) (string, error) {
			again := a.asked.Swap(true)
			if ctx.Err() != nil {
				a.asked.Store(again)
				return "", ctx.Err()
			}
			return protocol.Create(c, s.Path(b.member(name)), nil, zk.FlagEphemeralSequential, b.client.ACL())
		}, a.find)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			a.asked.Store(false)
			if _, err := s.EnsurePath(ctx, b.process()); err != nil {
				return err
			}
			if err := b.refuseCurator(ctx, s); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			a.node = node[strings.LastIndexByte(node, '/')+1:]
			return a.checkSequence()
		}
	}
}

// checkSequence refuses a number that is too close to the end of the server's counter, where they repeat.
func (a *arrival) checkSequence() error {
	const end = math.MaxInt32 - 1<<20
	if n, ok := protocol.ParseName(a.node, kind); !ok || n.Sequence < 0 || n.Sequence > end {
		return fmt.Errorf("%w: %s; delete the path while nobody uses it", protocol.ErrSequenceExhausted, a.node)
	}
	return nil
}

// find looks for the node that an attempt to create one may have left.
func (a *arrival) find(ctx context.Context) (path string, found bool, err error) {
	// Without the sync, a server that lags behind the one that took the attempt would hide its node.
	if err := a.session.Sync(ctx, a.barrier.path); err != nil {
		return "", false, err
	}
	line, _, err := a.barrier.line(ctx, a.session)
	i := slices.IndexFunc(line, a.isOurs)
	if err != nil || i < 0 {
		return "", false, err
	}
	return a.barrier.member(line[i]), true, nil
}

func (a *arrival) isOurs(member string) bool { return strings.HasPrefix(member, a.owner) }

// await waits until a gate is open that names our node.
func (a *arrival) await(ctx context.Context) (*gate, error) {
	b, s := a.barrier, a.session
	for woken := false; ; {
		r, err := b.read(ctx, s)
		g := r.gate
		switch {
		case err != nil:
			return nil, err
		case g != nil && slices.Contains(g.members, a.node):
			return g, nil
		case woken: // by a gate that is gone though we are its member
			return nil, errGone
		case g != nil && slices.ContainsFunc(g.members, a.isOurs):
			return nil, a.lost()
		case g != nil:
			left, err := g.remaining(ctx, s)
			if err != nil {
				return nil, err
			} else if len(left) > 0 {
				a.full = g
				return nil, ErrFull
			}
			if err := a.clear(ctx, r); err != nil && !errors.Is(err, zk.ErrBadVersion) {
				return nil, err
			}
			continue
		}

		if r, err = a.agree(ctx, r); err == nil {
			g, err = a.open(ctx, r)
		}
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			continue // another member has changed the record, or the line
		case err != nil:
			return nil, err
		case g != nil && slices.Contains(g.members, a.node):
			return g, nil
		case g != nil:
			continue
		}

		// It has one of the first n places in line, so the next gate counts it.
		stat, err := s.Until(ctx, b.member(a.node), func(stat *zk.Stat) bool { return stat.Version > uncounted })
		if err != nil {
			return nil, err
		} else if stat == nil {
			return nil, errGone
		}
		woken = true
	}
}

// lost says that the arrival was counted when it had, or has now, no node.
func (a *arrival) lost() error {
	a.counted = true
	return fmt.Errorf("%w: the session ended, or somebody deleted the gate or the member, when that had been counted",
		protocol.ErrLost)
}

// withdraw deletes the member unless it was counted: then it returns the gate.
func (a *arrival) withdraw(life context.Context) (*gate, error) {
	b, s := a.barrier, a.session
	if !a.asked.Load() {
		return nil, nil
	}
	if a.node == "" {
		path, found, err := a.find(life)
		if err != nil {
			return nil, err
		} else if !found {
			a.asked.Store(false)
			return nil, nil
		}
		a.node = path[strings.LastIndexByte(path, '/')+1:]
	}
	failed := a.delete(life, a.node, uncounted)
	if failed == nil {
		a.gone()
		return nil, nil
	} else if !errors.Is(failed, zk.ErrNoNode) && !errors.Is(failed, zk.ErrBadVersion) {
		return nil, failed
	}

	if err := s.Sync(life, b.path); err != nil {
		return nil, err
	}
	r, err := b.read(life, s)
	if err != nil {
		return nil, err
	}
	counted, there := r.gate != nil && slices.Contains(r.gate.members, a.node), errors.Is(failed, zk.ErrBadVersion)
	switch {
	case counted && there:
		return r.gate, nil
	case !counted && !there: // the answer to a first attempt was lost, or another client has deleted it
		a.gone()
		return nil, nil
	case there:
		a.delete(life, a.node, -1)
	}
	return nil, a.lost()
}

func (a *arrival) gone() {
	a.node = ""
	a.asked.Store(false)
}

func (a *arrival) delete(ctx context.Context, node string, version int32) error {
	_, err := protocol.Do(ctx, a.session, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(a.session.Path(a.barrier.member(node)), version)
	})
	return err
}

// settle finds out about a member that was lost with its session, which the server may still know: what is not counted
// must not be counted any more.
func (a *arrival) settle(ctx context.Context) error {
	if !a.asked.Load() {
		return nil
	}
	b, s := a.barrier, a.session
	if err := s.Sync(ctx, b.path); err != nil {
		return err
	}
	line, _, err := b.line(ctx, s)
	if err != nil {
		return err
	}
	for _, node := range slices.DeleteFunc(line, func(m string) bool { return !a.isOurs(m) }) {
		err := a.delete(ctx, node, uncounted)
		switch {
		case err == nil:
			a.doubt.Store(a.doubt.Load() && node != a.node)
		case errors.Is(err, zk.ErrBadVersion):
			return a.lost()
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
	}
	r, err := b.read(ctx, s)
	if err != nil {
		return err
	}
	if r.gate != nil && slices.ContainsFunc(r.gate.members, a.isOurs) {
		return a.lost()
	}
	a.gone()
	return nil
}

// admitted makes an entry of an arrival that was counted.
func (a *arrival) admitted(life context.Context, g *gate) (*Entry, error) {
	a.counted = true
	b := a.barrier
	e := &Entry{session: a.session, gate: g}
	node := b.member(a.node)
	grant, err := a.session.Hold(life, b.client, recipe, b.path, node, g.token, func(life context.Context) error {
		return e.depart(life, node)
	})
	if err != nil {
		a.delete(life, a.node, -1) // unless it has gone with the session
		return nil, fmt.Errorf("%w: %w", protocol.ErrLost, err)
	}
	e.grant = grant
	return e, nil
}
