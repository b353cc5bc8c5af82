package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Redrive moves up to max dead letters of this queue from dead (see [WithDeadLetter]) back to this
// queue, oldest first. They go to the tail and keep their data, age, former ID and reason. Their
// attempts begin again. Each letter moves in its own transaction, so no letter is lost or doubled
// even if others work on dead.
//
// Redrive returns how many letters it has moved, even with an error. If the error wraps
// [protocol.ErrUncertain], one more letter may have moved. Redrive blocks until it is done or ctx
// ends. If a session is lost, it goes on in the next session. A max below 1 or a bad dead is an
// error before any I/O. Other errors wrap ctx's error, [protocol.ErrClosed] or
// [protocol.ErrSequenceExhausted], or are the server's own. It is safe for concurrent use.
func (q *Queue) Redrive(ctx context.Context, dead *Queue, max int) (moved int, err error) {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return 0, err
	}

	err = q.accepts(dead)
	if max < 1 {
		err = fmt.Errorf("Redrive needs a max of at least 1, got %d", max)
	}
	if err != nil {
		return 0, q.recipe.Wrap(err)
	}

	open := "" // a letter that the lost session may have moved
	_, err = ask(ctx, q, func(s *recipe.Session) (struct{}, error) {
		if err := s.Sync(ctx, dead.path); err != nil {
			return struct{}{}, err
		}

		// A letter's record goes with the letter, so the record says whether it moved.
		if open != "" {
			stat, err := s.Exists(ctx, dead.path+returnedPath(open))
			if err != nil {
				return struct{}{}, err
			}

			if open = ""; stat == nil {
				moved++
			}
		}

		children, _, err := dead.children(ctx, s, "")
		for _, e := range dead.entries(children, dead.order(children)) {
			if moved >= max || err != nil {
				break
			}

			var done bool
			done, err = q.redrive(ctx, s, dead, e)
			switch {
			case done:
				moved++
			case errors.Is(err, protocol.ErrUncertain):
				open = e.ID
			}
		}

		return struct{}{}, err
	})

	return moved, err
}

// redrive moves an entry of dead if it is a letter of q.
func (q *Queue) redrive(ctx context.Context, s *recipe.Session, dead *Queue, f found) (done bool, err error) {
	if f.Node == f.ID {
		return false, nil
	}
	r, err := dead.read(ctx, s, f)
	if err != nil || r.record.Origin == nil || r.record.Origin.Queue != q.path {
		return false, ignore(err, zk.ErrNoNode, zk.ErrNoAuth)
	}
	record := layout.Record{ID: r.record.Origin.ID, Since: r.record.Since, Reason: r.record.Reason}
	err = q.relocate(ctx, s, &dead.place, r, move{record: record, tail: true})
	// If a consumer was faster, the letter is not ours to move.
	return err == nil, ignore(err, zk.ErrNoNode, zk.ErrBadVersion)
}
