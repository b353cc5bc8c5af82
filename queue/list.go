package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An Info describes an entry, as [Queue.List] has found it.
type Info struct {
	ID       string    // as [Queue.Offer] returns it
	Size     int       // of its data, in bytes
	Since    time.Time // when it was offered, by the server's clock, or by the producer's if with a delay; zero if it is hidden
	Attempts int       // how often it was reserved, the present reservation included

	Holder    int64     // the ID of the session that has reserved it, or 0 if none has or it is unknown
	HeldSince time.Time // when it was reserved, by the server's clock, or zero if it is not

	Due      time.Time // not delivered before, or zero if it is not delayed
	Priority int       // lower ones are delivered first
	Reason   string    // why its last attempt has failed, as far as it is known
	Origin   string    // of a dead letter: where it comes from, and why
}

// Len returns how many entries there are (reserved and delayed entries included) at a moment after
// the call began. While entries are taken and given back all the time, it can miss some that move.
// A path that does not exist has none. Len blocks until the server has answered, which takes
// listings of the queue and its records. It returns ctx's error, [protocol.ErrClosed],
// [zk.ErrInvalidPath], or the server's error. After a session loss it asks again in the next
// session.
func (q *Queue) Len(ctx context.Context) (int, error) {
	return ask(ctx, q, func(s *recipe.Session) (int, error) {
		entries, _, err := q.list(ctx, s)
		return len(entries), err
	})
}

// Peek returns the data of the first entry that could be taken and leaves it there. It skips
// entries that may not be read. It blocks until the server has answered, which takes a listing of the
// queue: Peek is for a look, not for a loop.
//
// If there is no such entry, Peek returns [ErrEmpty], or [zk.ErrNoAuth] if there are entries that
// it may not read. It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the
// server's error. After a session loss it asks again in the next session.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	return ask(ctx, q, func(s *recipe.Session) ([]byte, error) {
		if err := s.Sync(ctx, q.path); err != nil {
			return nil, err
		}
		children, _, err := q.children(ctx, s, "")
		if err != nil {
			return nil, err
		}
		nothing := ErrEmpty
		for _, f := range q.entries(children) {
			data, _, err := s.Get(ctx, q.path+f.node)
			switch {
			case errors.Is(err, zk.ErrNoNode):
			case errors.Is(err, zk.ErrNoAuth):
				nothing = fmt.Errorf("read entry %s: %w", f.Node, err)
			default:
				return data, err
			}
		}
		return nil, nothing
	})
}

// List yields the entries (reserved and delayed entries included) in the order of delivery, as of a
// moment after the loop began, without entries that are gone when List reads them. It can miss an
// entry that is reserved or given back meanwhile. A path that does not exist has none.
//
// The loop blocks while the server answers. List takes listings of the queue and its records, and
// one or two requests for each entry. It reads 64 entries at a time, and no more once the loop has
// ended. After a session loss it goes on in the next session.
//
// An error is yielded last, with a zero Info: ctx's, [protocol.ErrClosed], [zk.ErrInvalidPath], or
// the server's own. Listing a queue needs the permission to read its node. If an entry may not be
// read, its Info has only the fields that its name shows. The sequence can be used more than once
// and concurrently.
func (q *Queue) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		entries, err := ask(ctx, q, func(s *recipe.Session) ([]found, error) {
			entries, _, err := q.list(ctx, s)
			return entries, err
		})
		if err != nil {
			yield(Info{}, err)
			return
		}

		for chunk := range slices.Chunk(entries, inParallel) {
			infos := make([]*Info, len(chunk))
			_, err := ask(ctx, q, func(s *recipe.Session) (struct{}, error) {
				return struct{}{}, each(len(chunk), func(i int) (err error) {
					infos[i], err = q.inspect(ctx, s, chunk[i])
					return err
				})
			})
			if err != nil {
				yield(Info{}, err)
				return
			}

			for _, i := range infos {
				if i != nil && !yield(*i, nil) {
					return
				}
			}
		}
	}
}

// inspect describes an entry. It returns nil if the entry is gone.
func (q *Queue) inspect(ctx context.Context, s *recipe.Session, f found) (*Info, error) {
	i := &Info{ID: f.ID, Priority: f.Priority}
	if f.due != 0 {
		i.Due = time.UnixMilli(f.due)
	}
	owner, _, _ := layout.ParseOwner(f.owner + "-")
	i.Holder = owner.Session
	r, err := q.read(ctx, s, f)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return i, nil
	case err != nil:
		return nil, ignore(err, zk.ErrNoNode)
	}
	if f.owner != "" {
		i.HeldSince = time.UnixMilli(r.stat.Ctime)
	}
	i.Size, i.Since, i.Attempts = len(r.data), time.UnixMilli(r.record.Since), r.record.Attempts
	i.Reason, i.Origin = r.record.Reason, describe(r.record)
	return i, nil
}

// Drained blocks until there was no entry, reserved, delayed or neither, at some moment after the
// call began. A path that does not exist is drained. If a session is lost, Drained goes on waiting
// in the next session. It watches the last entry and lists the queue when that entry goes or
// moves.
//
// It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the server's own. It needs
// the permission to read the queue's node. If the last entry may not be read, it lists the queue
// once a second. It is safe for concurrent use.
func (q *Queue) Drained(ctx context.Context) error {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	began, in := time.Now(), (*recipe.Session)(nil)
	q.drains.Waiting(ctx)
	_, err := ask(ctx, q, func(s *recipe.Session) (struct{}, error) {
		in = s
		for {
			entries, steady, err := q.list(ctx, s)
			if err == nil && len(entries) > 0 {
				_, err = s.WaitNode(ctx, q.path+entries[len(entries)-1].node, gone)
				if errors.Is(err, zk.ErrNoAuth) {
					err = wait(ctx, time.Second)
				}
			} else if steady {
				return struct{}{}, err
			}
			if err != nil {
				return struct{}{}, err
			}
		}
	})
	q.drains.Waited(ctx, began, in, 0, err)
	return err
}
