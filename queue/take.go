package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Take removes the first entry that is not reserved and returns its data. It blocks until there is
// such an entry. If a session is lost, it goes on waiting in the next session.
//
// If ctx ends before anything was sent, Take returns ctx's error and nothing happens. If the
// session is lost with the answer (or ctx ends more than 50 ms before the answer comes), Take
// returns the data with an [UncertainError]. It wraps [protocol.ErrUncertain]: either the entry was
// removed and no other consumer will get it, or it was not removed. Other errors wrap
// [protocol.ErrClosed] or [zk.ErrInvalidPath], or are the server's own.
//
// If a quota is full, there is no room for the receipt of the removal. If the answer is lost then,
// Take returns an UncertainError.
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

// Poll is [Queue.Take] without the wait. If there was no entry at some moment of the call (or all
// were reserved), it returns [ErrEmpty].
func (q *Queue) Poll(ctx context.Context) ([]byte, error) {
	data, _, err := q.remove(ctx, 1, false)
	return first(data), err
}

// PollN removes up to max entries (a thousand at most) in one transaction and returns their data in
// order. It removes all of them or none, even if it returns an [UncertainError]. It removes about
// half a megabyte of data at most. While other sessions take entries it can remove fewer. It blocks
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

// remove removes up to max entries. If wait is set, it waits until there is an entry. It returns
// the session in which it ended.
func (q *Queue) remove(ctx context.Context, max int, wait bool) (data [][]byte, in *recipe.Session, err error) {
	data, err = across(ctx, q, func(u *under) ([][]byte, error) {
		in = u.of
		for {
			r := &removal{max: max, wait: wait}
			if err := u.requests.Do(ctx, r); err != nil {
				return nil, err
			}

			// If the entries are gone, there may be others.
			data, err := u.takeAway(ctx, r.claims)
			if !errors.Is(err, zk.ErrNoNode) {
				return data, err
			}
		}
	})
	return data, in, err
}

// takeAway removes entries for a taker and returns their data. If its error is no UncertainError,
// they were not removed. If its error wraps [zk.ErrNoNode], other entries can be tried.
func (c *consumer) takeAway(ctx context.Context, claims []*claim) (data [][]byte, err error) {
	err = c.settle(ctx, nil, claims)
	var ids []string
	var entries []*reading
	for _, cl := range claims {
		ids, data, entries = append(ids, cl.ID), append(data, cl.data), append(entries, &cl.reading)
	}
	if failed := refusedAt(err); failed >= 0 {
		err = c.missed(c.refusedEntry(entries, 0, failed).Node, err)
	}

	switch {
	case err == nil:
		c.report(protocol.EventTaken, len(data), nil)
		return data, nil
	case errors.Is(err, protocol.ErrUncertain):
		err = &UncertainError{IDs: ids, Data: data, Err: err}
	default:
		data = nil
	}

	c.letGo(ctx, c.session, claims...)
	c.requests.Wake() // callers of this session may wait beside the entries
	return data, err
}

// missed returns the error of an entry that could not be removed. If other entries can be tried,
// that error wraps [zk.ErrNoNode].
func (c *consumer) missed(node string, err error) error {
	switch {
	case errors.Is(err, zk.ErrNotEmpty):
		c.setAside(node, err)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		c.report(protocol.EventCollided, 1, err)
		c.beaten.Store(true)
	default:
		return err
	}
	return fmt.Errorf("%w: %w", zk.ErrNoNode, err)
}
