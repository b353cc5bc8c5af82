package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// A queue with a maximum length has these promises. They need no lock that could be lost:
//
//   - Each transaction of a bounded producer raises the version of the receipts' directory. A
//     producer knows a version, and a length that it has read later. If its transaction still finds
//     that version, no bounded producer has appended anything meanwhile.
//   - Far from the bound the version is raised and not checked, so that producers do not collide.
//   - A producer that has collided takes turns with the others, in line. When its turn begins it
//     raises the version. So producers that are faster, and have not collided yet, collide now, and
//     stand in line behind it.
//
// The directory is that of our receipt. So it cannot have been deleted and created again, with the
// same version, between what was read and the transaction.
type bound struct {
	length  int       // entries, or fewer by now
	readAt  time.Time // zero if nothing is known
	own     int       // entries of ours since then
	version int32     // of the receipts' directory, before the length was read
	fresh   bool      // version is known

	collided time.Time // or met others in line
	turn     *protocol.Grant
	over     time.Time // when the turn is; zero if it has only begun
}

const (
	farAway     = 1000                   // room for more entries than these is far from the bound
	readAgain   = 100 * time.Millisecond // after so long, or after farAway entries of ours
	turnLasts   = 20 * time.Millisecond  // from its first transaction on
	contention  = time.Second            // how long producers that have collided take turns
	turnKind    = "turn-"
	roomKind    = "room-"
	firstPause  = 10 * time.Millisecond // between looks for room
	longPause   = time.Second
	watchesRoom = 3 // entries whose deletion ends a pause
)

func (b *bound) forget()         { b.readAt, b.fresh = time.Time{}, false }
func (b *bound) collide()        { b.collided, b.fresh = time.Now(), false }
func (b *bound) contended() bool { return time.Since(b.collided) < contention }
func (b *bound) read(length int) { b.length, b.own, b.readAt = length, 0, time.Now() }

func (b *bound) recent() bool { return time.Since(b.readAt) < readAgain && b.own < farAway }

func (b *bound) far(most int) bool { return most-b.length > farAway }

// known reports whether a transaction may rely on the length: with the version, or far from the
// bound. The version alone will do until another producer is there.
func (b *bound) known(most int) bool {
	if b.far(most) && b.contended() {
		return b.recent()
	}
	return b.fresh
}

// check is the operation that raises the version, and checks it unless the bound is far away.
func (b *bound) check(dir string, most int) any {
	version := b.version
	if b.far(most) && b.recent() {
		version = -1
	}
	return &zk.SetDataRequest{Path: dir + receiptsNode, Version: version}
}

// appended notes that n entries more are there, with the Stat of the check.
func (b *bound) appended(n int, stat *zk.Stat) {
	b.length += n
	b.own += n
	if b.fresh = b.fresh && stat.Version == b.version+1; !b.fresh {
		b.collided = time.Now() // another producer is there
	}
	b.version = stat.Version
}

// readVersion reads the version, unless it is known, or raises it if it is our turn.
func (p *producer) readVersion(life context.Context) error {
	if p.queue.maxLength == 0 || p.bound.fresh {
		return nil
	}
	var stat *zk.Stat
	var err error
	if dir := p.queue.path + receiptsNode; p.bound.turn != nil {
		stat, err = p.session.Set(life, dir, nil, -1)
	} else {
		stat, err = p.session.Exists(life, dir)
	}
	if errors.Is(err, zk.ErrNoNode) || err == nil && stat == nil {
		return nil // the next transaction finds that out
	} else if err != nil {
		return err
	}
	p.bound.version, p.bound.fresh = stat.Version, true
	return nil
}

// admitBounded answers the offers for which there is no room. It reports whether the first one was
// among them. Where producers collide it waits for this one's turn.
func (p *producer) admitBounded(life context.Context, pending []*offer) (full bool, err error) {
	b, most := &p.bound, p.queue.maxLength
	fits := func(o *offer) bool { return b.length+len(o.items) <= most }
	if !b.known(most - len(pending[0].items)) {
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
			switch before, err := p.offeredBefore(life, o); {
			case err != nil:
				p.fail(err, o)
			case before:
				p.offers.Answer(nil, o)
			default:
				p.fail(fmt.Errorf("%w: it has %d entries, and may have %d", ErrFull, b.length, most), o)
			}
		}
		return !fits(pending[0]), nil
	}

	if b.turn != nil || !b.contended() || b.far(most-len(pending[0].items)) {
		return false, nil
	}
	if err := p.takeTurn(life); err != nil || b.turn == nil {
		return true, err
	}
	b.fresh = false
	return false, p.glance(life)
}

// takeTurn blocks until it is this producer's turn, or no offers are left. Then there is no turn,
// and no error.
func (p *producer) takeTurn(life context.Context) error {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		turn, err := p.queue.turns.Enter(ctx, line.Request{Kind: turnKind})
		p.bound.turn = turn
		granted <- err
	}()

	for {
		select {
		case err := <-granted:
			p.bound.over = time.Time{}
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-p.offers.Woken():
			if len(p.offers.Pending()) == 0 {
				cancel()
			}
		}
	}
}

// linger keeps the turn for the next offers, for a moment, and gives it back.
func (p *producer) linger(life context.Context) {
	b := &p.bound
	if b.turn == nil || b.over.IsZero() && !b.fresh {
		return // there was no transaction yet
	}
	if b.over.IsZero() {
		b.over = time.Now().Add(turnLasts)
	}

	timer := time.NewTimer(max(time.Until(b.over), 1)) // see makeWay
	defer timer.Stop()
	for len(p.offers.Pending()) == 0 {
		select {
		case <-p.offers.Woken():
			continue
		case <-timer.C:
		case <-b.turn.Done():
		case <-life.Done():
		}
		p.endTurn(life)
		return
	}
	if !time.Now().Before(b.over) {
		p.endTurn(life)
	}
}

// endTurn gives the turn back, if there is one. While others are in line, turns go on.
func (p *producer) endTurn(life context.Context) {
	turn := p.bound.turn
	if turn == nil {
		return
	}
	p.bound.turn = nil
	if names, err := p.queue.turns.Names(life, p.session); err == nil && len(names) > 1 {
		p.bound.collided = time.Now()
	}
	p.session.Go(func(life context.Context) { turn.Release(life) })
}

// OfferWait is [Queue.Offer] that waits while the queue is full, instead of returning [ErrFull]. It
// blocks until there is room and the server has answered. Calls that wait get their room one by
// one: those of one Queue in the order of their arrival, and those of several processes in turns,
// in line. An Offer, or an OfferWait that finds room as it comes, does not stand behind them.
//
// If ctx ends while OfferWait waits, it returns ctx's error, and nothing was appended. If the
// session is lost, the wait goes on in the next one, at the end of the line. The other errors are
// those of Offer, and the server's if it refuses a place in line.
func (q *Queue) OfferWait(ctx context.Context, data []byte) (id string, err error) {
	if id, err = q.Offer(ctx, data); !errors.Is(err, ErrFull) {
		return id, err
	}

	began, in := time.Now(), (*protocol.Session)(nil)
	q.offerWaits.Waiting(ctx)
	defer func() { q.offerWaits.Waited(ctx, began, in, 0, err) }()

	select {
	case q.waiting <- struct{}{}:
		defer func() { <-q.waiting }()
	case <-ctx.Done():
		return "", q.recipe.Wrap(batch.Ended(ctx))
	}

	for {
		turn, err := q.room.Enter(ctx, line.Request{Kind: roomKind})
		if err != nil {
			return "", err
		}
		in = turn.Session()
		id, err := q.offerInTurn(ctx, turn, data)
		turn.Session().Go(func(life context.Context) { turn.Release(life) })
		if !errors.Is(err, errTurnLost) {
			return id, err
		}
	}
}

var errTurnLost = errors.New("the turn was lost")

// offerInTurn offers whenever there may be room, until that succeeds or the turn is lost.
func (q *Queue) offerInTurn(ctx context.Context, turn *protocol.Grant, data []byte) (id string, err error) {
	held, cancel := turn.Context(ctx)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if id, err = q.Offer(ctx, data); !errors.Is(err, ErrFull) {
			return id, err
		}

		err = q.awaitRoom(held, turn.Session(), pause)
		switch {
		case ctx.Err() != nil:
			return "", q.recipe.Wrap(batch.Ended(ctx))
		case held.Err() != nil:
			return "", errTurnLost
		case err != nil:
			return "", q.recipe.Wrap(err)
		}
	}
}

// awaitRoom blocks until one of the first entries is gone, or changes, but not for longer than the
// pause. The caller holds waiting.
func (q *Queue) awaitRoom(ctx context.Context, s *protocol.Session, pause time.Duration) error {
	paused, cancel := context.WithTimeout(ctx, pause)
	defer cancel()

	// A listing lasts until all entries in question are gone.
	watches, gone, err := q.watchAhead(ctx, s)
	if err == nil && len(watches) == 0 {
		var children []string
		if children, _, err = s.Children(ctx, q.path); errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		q.ahead = q.names(children)
	}
	if err == nil && len(watches) == 0 {
		watches, gone, err = q.watchAhead(ctx, s)
	}
	if err != nil || gone {
		return err
	}

	if err = s.WaitAny(paused, watches...); paused.Err() != nil {
		err = ctx.Err()
	}
	return err
}

// watchAhead watches the first entries as of the latest listing. It reports whether some of them
// are gone.
func (q *Queue) watchAhead(ctx context.Context, s *protocol.Session) (watches []*protocol.Watch, gone bool, err error) {
	n := min(watchesRoom, len(q.ahead))
	for _, e := range q.ahead[:n] {
		watches = append(watches, s.Watch(q.path+"/"+e.node))
	}
	there := 0
	for i, w := range watches {
		_, err := w.Ready(ctx)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, false, err
		} else if err == nil {
			watches[there], q.ahead[there] = w, q.ahead[i]
			there++
		}
	}
	q.ahead = slices.Delete(q.ahead, there, n)
	return watches[:there], there < n, nil
}
