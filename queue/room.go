package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

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

	began, in := time.Now(), (*recipe.Session)(nil)
	q.offerWaits.Waiting(ctx)
	defer func() { q.offerWaits.Waited(ctx, began, in, 0, err) }()

	select {
	case q.offerWait <- struct{}{}:
		defer func() { <-q.offerWait }()
	case <-ctx.Done():
		return "", q.recipe.Wrap(batch.Ended(ctx))
	}
	var final error // which another session would not mend
	id, err = ask(ctx, q, func(s *recipe.Session) (string, error) {
		in = s
		r := &room{queue: q, spot: spot{session: s, dir: q.path + offeringNode, kind: "room-"}}
		defer r.leave()
		for {
			if err := r.await(ctx); err != nil {
				return "", err
			}
			if id, err := q.Offer(ctx, data); !errors.Is(err, ErrFull) {
				final = err
				return id, nil
			}
		}
	})
	return id, cmp.Or(err, final)
}

// A room is what OfferWait waits for. Producers stand in line for it.
type room struct {
	spot
	queue *Queue
	first []found // of the queue, as of a listing
}

// await blocks until this is the first producer in line, and there seems to be room.
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

// sleep blocks until the first entry is gone, but not for longer than the pause. A listing lasts
// until all of its entries are gone.
func (r *room) sleep(ctx context.Context, pause time.Duration) error {
	if len(r.first) == 0 {
		children, _, err := r.queue.children(ctx, r.session, "")
		if err != nil {
			return err
		}
		r.first = r.queue.entries(children)
	}
	if len(r.first) == 0 {
		return wait(ctx, pause)
	}
	paused, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	_, err := r.session.WaitNode(paused, r.queue.path+r.first[0].node, gone)
	if err == nil {
		r.first = r.first[1:]
	} else if paused.Err() != nil && r.session.Err() == nil {
		err = recipe.Ended(ctx)
	}
	return err
}
