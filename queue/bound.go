package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A bound keeps a queue at a maximum length. Far from it, producers append freely and look at the
// length from time to time. Near it they take turns (in line): only the producer with the turn
// appends, and its transactions check that it still has the turn. So the length that it has read is
// an upper limit (only consumers can change it).
type bound struct {
	turns  *line.Line
	length int // of the queue, or more than that by now
	own    int // entries that we appended since the length was read
	// readAt is zero if the length is unknown.
	readAt time.Time

	turn *recipe.Grant
	// over is when the turn ends if other producers wait. It is zero before the first transaction.
	over time.Time
}

const (
	farAway   = 1000                   // with room for more entries, a queue is far from its bound
	readAgain = 100 * time.Millisecond // or after farAway entries of ours
	turnLasts = 20 * time.Millisecond  // if other producers wait
	turnIdle  = 250 * time.Millisecond // if there are no offers
	turnKind  = "turn-"
)

func (b *bound) read(length int) { b.length, b.own, b.readAt = length, 0, time.Now() }
func (b *bound) recent() bool    { return time.Since(b.readAt) < readAgain && b.own < farAway }

// appended notes that we have appended n entries.
func (b *bound) appended(n int) {
	b.length, b.own = b.length+n, b.own+n
	if b.over.IsZero() {
		b.over = time.Now().Add(turnLasts)
	}
}

// admitBounded answers the offers that find no room. It reports whether the first offer must not be
// sent yet. Near the bound it waits for this producer's turn.
func (p *producer) admitBounded(life context.Context, pending []*offer) (full bool, err error) {
	b, most := &p.bound, p.maxLength
	fits := func(o *offer) bool { return o.due != 0 || b.length+o.numbers() <= most }
	if b.readAt.IsZero() || b.turn == nil && !b.recent() {
		if err := p.glance(life); err != nil {
			return false, err
		}
	}

	if !fits(pending[0]) {
		// The known length can be out of date. Only the leader can say that the queue is full.
		if err := p.look(life); err != nil {
			return false, err
		}

		for _, o := range pending {
			if fits(o) {
				continue
			}
			switch before, err := p.keys.offered(life, o.key); {
			case err != nil:
				p.fail(err, o)
			// Its entry is in the queue or was consumed, so there is no need for room.
			case before:
				p.offers.Answer(nil, o)
			default:
				p.fail(fmt.Errorf("%w: it has %d entries, and may have %d", ErrFull, b.length, most), o)
			}
		}
	}

	if !fits(pending[0]) {
		return true, nil
	}

	// Far from the bound no producer needs a turn, so a length that was read in ours is no limit.
	if most-pending[0].numbers()-b.length > farAway {
		p.endTurn()
		return false, nil
	}

	if b.turn != nil {
		return false, nil
	}

	if err := p.takeTurn(life); err != nil || b.turn == nil {
		return true, err
	}

	// The length may have changed before our turn, so the offers are admitted by a new one.
	return true, p.glance(life)
}

// takeTurn blocks until it is this producer's turn. If all offers leave first, it returns nil
// without a turn.
func (p *producer) takeTurn(life context.Context) error {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		turn, err := p.bound.turns.Enter(ctx, line.Request{Kind: turnKind})
		p.bound.turn, p.bound.over = turn, time.Time{}
		granted <- err
	}()

	for {
		select {
		case err := <-granted:
			// We have cancelled the wait ourselves, because no caller is left.
			if ctx.Err() != nil && life.Err() == nil {
				err = nil
			}
			return err
		case <-p.offers.Woken():
			if len(p.offers.Pending()) == 0 {
				cancel()
			}
		}
	}
}

// linger keeps the turn for the next offers. It ends the turn a moment after the last offer, or
// sooner if other producers wait.
func (p *producer) linger(life context.Context) {
	b := &p.bound
	idle := time.Now().Add(turnIdle)
	for b.turn != nil && !(b.over.IsZero() && len(p.offers.Pending()) > 0) {
		// The watch is shared, so this asks the server only after the line has changed.
		others := p.session.WatchChildren(p.path + offeringNode)
		_, err := others.Ready(life)
		over := idle
		if err == nil && len(b.turns.Among(others.Children())) > 1 {
			over = b.over
		}

		if err != nil || !time.Now().Before(over) || b.turn.Err() != nil {
			p.endTurn()
			return
		}

		if len(p.offers.Pending()) > 0 {
			return
		}

		select {
		case <-p.offers.Woken():
		case <-others.Changed():
		case <-time.After(time.Until(over)):
		case <-life.Done():
			return
		}
	}
}

// endTurn releases the turn, if there is one.
func (p *producer) endTurn() {
	if turn := p.bound.turn; turn != nil {
		p.bound.turn, p.bound.readAt = nil, time.Time{}
		p.session.Go(func(life context.Context, _ *recipe.Session) { turn.Release(life) })
	}
}

// OfferWait is [Queue.Offer] that waits while the queue is full (instead of returning [ErrFull]).
// It blocks until there is room and the server has answered. Calls that wait get their room one
// after the other. Calls of one Queue go in the order of their arrival, and processes take turns
// (in line). An Offer never waits in that line, nor does an OfferWait that finds room when it is
// called.
//
// If ctx ends while OfferWait waits, it returns ctx's error and appends nothing. If the session is
// lost, the wait goes on in the next session, at the end of the line. Otherwise it returns the
// errors that Offer returns, or the server's error if the server refuses a place in line.
func (q *Queue) OfferWait(ctx context.Context, data []byte) (id string, err error) {
	if id, err = q.Offer(ctx, data); !errors.Is(err, ErrFull) {
		return id, err
	}

	began, in := time.Now(), (*recipe.Session)(nil)
	q.offerWaits.Waiting(ctx)
	defer func() { q.offerWaits.Waited(ctx, began, in, 0, err) }()

	select {
	case q.offerWait <- struct{}{}:
		defer func() { <-q.offerWait }()
	case <-ctx.Done():
		return "", q.recipe.Wrap(batch.Ended(ctx))
	}

	return across(ctx, q, func(u *under) (string, error) {
		in = u.of
		r := &room{queue: q, spot: spot{session: in, dir: q.path + offeringNode, kind: "room-"}}
		defer r.leave()
		for {
			if err := r.await(ctx); err != nil {
				return "", err
			}

			if id, err := q.Offer(ctx, data); !errors.Is(err, ErrFull) {
				return id, err
			}
		}
	})
}

// A room is the place in line of a call that waits for room in the queue.
type room struct {
	spot
	queue *Queue
	first []found // entries of the queue, by the latest listing
}

// await blocks until this producer is the first in line and the queue seems to have room.
func (r *room) await(ctx context.Context) error {
	for {
		ahead, line, err := r.stand(ctx, 1)
		if err != nil {
			return err
		}

		if ahead == 0 {
			break
		}

		if err := r.session.WaitAny(ctx, line...); err != nil {
			return err
		}
	}

	// The pause bounds the wait, because a foreign consumer can take entries that are not the
	// first.
	for pause := firstPause; ; pause = min(2*pause, time.Minute) {
		stat, err := r.session.Exists(ctx, r.queue.path)
		if err != nil || stat == nil || int(stat.NumChildren)-1 < r.queue.maxLength {
			return err
		}

		if err := r.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// sleep blocks until the first entry is gone, or the pause has passed. It lists the queue again
// only when all entries of the latest listing are gone.
func (r *room) sleep(ctx context.Context, pause time.Duration) error {
	if len(r.first) == 0 {
		children, _, err := r.queue.children(ctx, r.session, "")
		if ignore(err, zk.ErrNoAuth) != nil {
			return err
		}

		r.first = r.queue.entries(children, r.queue.order(children))
	}

	if len(r.first) == 0 {
		return wait(ctx, pause)
	}

	paused, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	_, err := r.session.WaitNode(paused, r.queue.path+r.first[0].node(), gone)
	if errors.Is(err, zk.ErrNoAuth) {
		err = wait(paused, pause)
	}
	if err == nil {
		r.first = r.first[1:]
	} else if paused.Err() != nil && r.session.Err() == nil {
		err = recipe.Ended(ctx)
	}

	return err
}
