package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A bound keeps a queue at a maximum length. Far from that, producers append, and look at the length
// from time to time. Near it they take turns, in line: only one of them appends, and its transactions
// check that it is still its turn. What it has read of the length is then true but for consumers.
type bound struct {
	turns  *line.Line
	length int       // entries, or fewer by now
	own    int       // of these, what was appended since the length was read
	readAt time.Time // zero if nothing is known

	turn   *recipe.Grant
	others *recipe.Watch // on the line, since the turn began
	over   time.Time     // when the turn is if others wait; zero before its first transaction

	checkedAt int // the operation of the latest transaction that was the check of the turn; -1: none
}

const (
	farAway   = 1000                   // room for more entries than these is far from the bound
	readAgain = 100 * time.Millisecond // after so long, or after farAway entries of ours
	turnLasts = 20 * time.Millisecond  // where others wait
	turnIdle  = 250 * time.Millisecond // without offers
	turnKind  = "turn-"
)

func (b *bound) read(length int) { b.length, b.own, b.readAt = length, 0, time.Now() }
func (b *bound) recent() bool    { return time.Since(b.readAt) < readAgain && b.own < farAway }

// appended notes that n entries more are there.
func (b *bound) appended(n int) {
	b.length, b.own = b.length+n, b.own+n
	if b.over.IsZero() {
		b.over = time.Now().Add(turnLasts)
	}
}

// admitBounded answers the offers for which there is no room. It reports whether the first one was
// among them. Near the bound it waits for this producer's turn.
func (p *producer) admitBounded(life context.Context, pending []*offer) (full bool, err error) {
	b, most := &p.bound, p.maxLength
	fits := func(o *offer) bool { return b.length+len(o.items) <= most }
	if b.readAt.IsZero() || b.turn == nil && !b.recent() {
		if err := p.glance(life); err != nil {
			return false, err
		}
	}

	if !fits(pending[0]) {
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

	if b.turn != nil || most-len(pending[0].items)-b.length > farAway {
		return false, nil
	}
	if err := p.takeTurn(life); err != nil || b.turn == nil {
		return true, err
	}
	return true, p.glance(life) // and admit the offers by that
}

// takeTurn blocks until it is this producer's turn, or no offers are left. Then there is no turn,
// and no error.
func (p *producer) takeTurn(life context.Context) error {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		turn, err := p.bound.turns.Enter(ctx, line.Request{Kind: turnKind})
		p.bound.turn, p.bound.others, p.bound.over = turn, nil, time.Time{}
		granted <- err
	}()
	for {
		select {
		case err := <-granted:
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

// linger keeps the turn for the next offers, while no others wait, for a moment after the last offer,
// and gives it back.
func (p *producer) linger(life context.Context) {
	b := &p.bound
	idle := time.NewTimer(turnIdle)
	defer idle.Stop()
	for b.turn != nil && !(b.over.IsZero() && len(p.offers.Pending()) > 0) {
		contended, err := p.contended(life)
		over := time.Duration(-1)
		if !contended {
			over = turnIdle
		} else if err == nil {
			over = time.Until(b.over)
		}
		switch {
		case over <= 0, b.turn.Err() != nil:
			p.endTurn()
			return
		case len(p.offers.Pending()) > 0:
			return
		}
		select {
		case <-p.offers.Woken():
		case <-b.others.Changed():
		case <-time.After(over):
		case <-idle.C:
			p.endTurn()
		case <-life.Done():
			return
		}
	}
}

// contended reports whether others wait for their turn, or why that is not known.
func (p *producer) contended(life context.Context) (yes bool, err error) {
	b := &p.bound
	if b.others == nil || hasChanged(b.others) {
		b.others = p.session.WatchChildren(p.path + offeringNode)
		if _, err := b.others.Ready(life); err != nil {
			b.others = nil
			return true, err
		}
	}
	return len(b.turns.Among(b.others.Children())) > 1, nil
}

// endTurn gives the turn back, if there is one.
func (p *producer) endTurn() {
	if turn := p.bound.turn; turn != nil {
		p.bound.turn, p.bound.readAt = nil, time.Time{}
		p.session.Go(func(life context.Context, _ *recipe.Session) { turn.Release(life) })
	}
}
