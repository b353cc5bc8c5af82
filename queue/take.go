package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Take removes the first entry that is not reserved and returns its data. It blocks until there is
// such an entry. If a session is lost, it goes on waiting in the next session.
//
// If ctx ends before anything was sent, Take returns ctx's error and nothing happens. If the
// session is lost with the answer, or ctx ends more than a moment (50 ms) before it comes, Take
// returns the data and an [UncertainError], which wraps [protocol.ErrUncertain] and has the data,
// too. Either the entry was removed and no other consumer will get it, or it was not removed. Other
// errors wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's own.
//
// If a quota is full, or an entry of another library is too large to be reserved, Take removes the
// entry without a reservation. If the answer is lost then, it returns an UncertainError.
func (q *Queue) Take(ctx context.Context) ([]byte, error) {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return nil, err
	}
	began := time.Now()
	q.takes.Waiting(ctx)
	data, s, err := q.remove(ctx, 1, true)
	q.takes.Waited(ctx, began, s, 0, err)
	return first(data), err
}

// Poll is [Queue.Take] without the wait: it returns [ErrEmpty] if at some moment of the call there
// was no entry that is not reserved.
func (q *Queue) Poll(ctx context.Context) ([]byte, error) {
	data, _, err := q.remove(ctx, 1, false)
	return first(data), err
}

// PollN removes up to max entries, a thousand at most, in one transaction and returns their data in
// order. It removes all of them or none, even if it returns an [UncertainError]. It removes at most
// about half a megabyte of data, and can remove fewer while other sessions take entries. It blocks
// and returns errors as [Queue.Poll] does.
func (q *Queue) PollN(ctx context.Context, max int) ([][]byte, error) {
	if max < 1 {
		return nil, q.recipe.Wrap(fmt.Errorf("PollN needs a max of at least 1, got %d", max))
	}
	data, _, err := q.remove(ctx, min(max, maxOps), false)
	return data, err
}

func first(data [][]byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data[0]
}

// remove removes up to max entries. If wait is set it waits for one. It returns the session in
// which it has ended.
func (q *Queue) remove(ctx context.Context, max int, wait bool) (data [][]byte, in *protocol.Session, err error) {
	for {
		var u *under
		r, err := across(ctx, q, func(current *under) (*removal, error) {
			u, in = current, current.of
			return u.ask(ctx, &removal{max: max, wait: wait})
		})
		if err != nil {
			return nil, in, err
		}

		claims, data := r.claims, [][]byte(nil)
		for _, p := range r.plain {
			claims = append(claims, &claim{record: p.record, data: p.data})
		}
		for _, c := range claims {
			data = append(data, c.data)
		}
		switch err = q.settleTaken(ctx, u, claims, r.plain); {
		case err == nil, errors.Is(err, protocol.ErrUncertain):
			if err == nil {
				u.report(protocol.EventTaken, len(data), nil)
			}
			return data, in, q.recipe.Wrap(err)
		case ctx.Err() != nil:
			return nil, in, q.recipe.Wrap(err)
		case u.session.Err() == nil && !errors.Is(err, zk.ErrNoNode):
			return nil, in, q.recipe.Wrap(err)
		}
	}
}

// settleTaken removes entries that were reserved to be taken, or plain ones. If its error does not
// wrap [protocol.ErrUncertain], they were not removed, and will come back or are gone.
func (q *Queue) settleTaken(ctx context.Context, u *under, claims []*claim, plain []*reading) error {
	reserved := claims
	if plain != nil {
		reserved = nil
	}
	wait, stop := protocol.Linger(ctx, batch.Grace)
	defer stop()
	settled := make(chan error, 1)
	_, err := protocol.Detach(wait, u.of, func(life context.Context, work *protocol.Session) (struct{}, error) {
		if err := protocol.Ended(ctx); err != nil { // nothing was sent
			u.letGo(reserved...)
			settled <- err
			return struct{}{}, err
		}
		var err error
		if plain != nil {
			err = u.takePlainly(life, work, plain)
		} else {
			err = u.settle(life, work, claims)
		}
		if err == nil || u.session.Err() != nil {
			u.claims.Add(-int64(len(reserved)))
		} else { // those that are there
			u.letGo(reserved...)
		}
		settled <- err
		return struct{}{}, err
	}, nil)

	select {
	case err = <-settled:
	default:
		if !errors.Is(err, protocol.ErrClosed) {
			err = uncertain(err) // it goes on
		}
	}
	if errors.Is(err, protocol.ErrUncertain) {
		err = unsure(claims, err)
	}
	return err
}
