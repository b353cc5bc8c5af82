package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An Info describes an entry that [Queue.List] found.
type Info struct {
	ID   string // as Offer returned it
	Size int    // of the data, in bytes
	// Since is when the entry was offered, by the server's clock. It is zero if the entry may not
	// be read.
	Since    time.Time
	Attempts int // how often it was reserved, the present time included

	// Holder is the ID of the session that has reserved the entry, or 0.
	Holder    int64
	HeldSince time.Time // by the server's clock; zero if the entry is not reserved

	Due      time.Time // earliest delivery; zero if the entry is not delayed
	Priority int       // entries with lower numbers are delivered first
	Reason   string    // why the last attempt failed, if that is known
	Origin   string    // of a dead letter: its former queue, and the reason
}

// Len returns the number of entries (with reserved and delayed entries) at a moment after the call
// began. If entries are taken and given back all the time, it can miss some of them. If the path
// does not exist, it returns 0. Len blocks until the server has answered. It lists the queue and
// its records. Its error is ctx's, [protocol.ErrClosed], [zk.ErrInvalidPath] or the server's. After
// a session loss it asks again in the next session.
func (q *Queue) Len(ctx context.Context) (int, error) {
	return ask(ctx, q, func(s *recipe.Session) (int, error) {
		entries, _, err := q.list(ctx, s)
		return len(entries), err
	})
}

// Peek returns the data of the first entry that a Take would get and leaves it there. It skips
// entries that it may not read, and doesn't see entries that a Take would first put back (because
// their delay has passed, or their consumer has died). Peek blocks until the server has answered.
// It lists the queue each time, so don't call it in a loop.
//
// If there is no such entry, Peek returns [ErrEmpty] (or [zk.ErrNoAuth] if it may not read some
// entries). Otherwise its error is ctx's, [protocol.ErrClosed], [zk.ErrInvalidPath] or the
// server's. After a session loss it asks again in the next session.
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
		for _, f := range q.entries(children, q.order(children)) {
			data, _, err := s.Get(ctx, q.path+f.node())
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

// List yields the entries (with reserved and delayed entries) in the order of delivery, as of a
// moment after the loop began. Reserved and delayed entries stand where they were offered. List
// leaves out entries that are gone when it reads them, and can miss an entry that is reserved or
// given back meanwhile. A path that does not exist has no entries.
//
// The loop blocks while the server answers. List lists the queue and its records, and sends one or
// two requests for each entry. It reads 64 entries at a time, and stops when the loop ends. After a
// session loss it goes on in the next session.
//
// An error comes last, with a zero Info. It is ctx's error, [protocol.ErrClosed],
// [zk.ErrInvalidPath] or the server's error. To list a queue, a client must have the permission to
// read its node. If it may not read an entry, the Info has only the fields that the entry's name
// shows. The sequence can be used more than once and concurrently.
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

		for chunk := range slices.Chunk(entries, listedAtOnce) {
			infos, err := ask(ctx, q, func(s *recipe.Session) ([]*Info, error) {
				return recipe.ReadAll(chunk, func(f found) (*Info, error) { return q.inspect(ctx, s, f) })
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

const listedAtOnce = 64

// inspect reads an entry that was listed. An entry that may not be read has only what its name
// says.
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
		return nil, err
	}

	if f.owner != "" {
		i.HeldSince = time.UnixMilli(r.stat.Ctime)
	}

	i.Size, i.Since, i.Attempts = len(r.data), time.UnixMilli(r.record.Since), r.record.Attempts
	i.Reason, i.Origin = r.record.Reason, describe(r.record)
	return i, nil
}

// Drained blocks until the queue has no entries (reserved and delayed entries count). This was true
// at some moment after the call began. A path that does not exist is drained. If a session is lost,
// Drained goes on waiting in the next session. It watches the last entry, and lists the queue when
// that entry goes or moves.
//
// It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath] or the server's error. It needs
// the permission to read the queue's node. If it may not read the last entry, it lists the queue
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
			// The last entry goes last, so there are few listings.
			if err == nil && len(entries) > 0 {
				_, err = s.WaitNode(ctx, q.path+entries[len(entries)-1].node(), gone)
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

// Remove drops the entry with this ID (even if it is reserved or delayed). A consumer that has
// reserved it loses its item, and its Ack returns an error that wraps [protocol.ErrLost].
//
// Remove blocks until the server has answered. If a session is lost, it goes on in the next
// session. Its error wraps [zk.ErrNoNode] if there is no such entry, or [zk.ErrInvalidPath] if no
// entry can have that ID. Otherwise it is ctx's error, [protocol.ErrClosed] or the server's own
// (say [zk.ErrNoAuth]). If ctx ends first, the entry can be removed nevertheless. Remove never hits
// a later entry with the same ID. It is safe for concurrent use.
func (q *Queue) Remove(ctx context.Context, id string) error {
	return q.operate(ctx, id, func(s *recipe.Session, op *operation) error {
		for {
			t, err := op.find(ctx, s, id)
			if err != nil {
				return err
			}

			if t == nil {
				return op.missing("there is no entry " + id)
			}

			_, lost, err := q.end(ctx, s, t)
			op.executed = op.executed || lost
			// If the answer was lost, or the entry was not there any more, it may have moved. So we
			// look for it again.
			if err == nil && !lost || ignore(err, zk.ErrBadVersion, zk.ErrNoNode) != nil {
				return err
			}
		}
	})
}

// Free ends the reservation of the entry with this ID, so that it is delivered again. The consumer
// that has reserved it loses its item. That consumer can still be about to act, so fence its writes
// ([Item.Multi], [Item.Token]).
//
// Free blocks and returns errors as [Queue.Remove] does. Its error also wraps [zk.ErrNoNode] if the
// entry is not reserved. It never ends a later reservation. It is safe for concurrent use.
func (q *Queue) Free(ctx context.Context, id string) error {
	// held is the claim that was found first. Its name is never used again, so we can't hit a later
	// reservation.
	var held *reading
	return q.operate(ctx, id, func(s *recipe.Session, op *operation) (err error) {
		if held == nil {
			t, err := op.find(ctx, s, id)
			switch {
			case err != nil:
				return err
			case t == nil:
				return op.missing("there is no entry " + id)
			case t.owner == "":
				return op.missing(id + " is not reserved")
			}
			held = t
		}

		err = q.relocate(ctx, s, &q.place, held, move{record: held.record})
		q.under(s).returned.Store(true) // to the consumer of this session, too
		if errors.Is(err, zk.ErrNoNode) {
			return op.missing(id + " is not reserved any more")
		}

		return err
	})
}

// An operation is a call of an operator's verb, in one session after the other.
type operation struct {
	queue    *Queue
	since    int64 // of the entry that was found first; 0 if none was found
	executed bool  // an attempt may have succeeded
}

// operate calls do for the entry with this ID in the current session. If that session is lost, it
// calls do in the next session.
func (q *Queue) operate(ctx context.Context, id string, do func(*recipe.Session, *operation) error) error {
	if !layout.IsEntryID(id) || strings.Contains(id, "/") || recipe.ValidatePath("/"+id) != nil {
		return q.recipe.Wrap(fmt.Errorf("%w: %q is not the ID of an entry", zk.ErrInvalidPath, id))
	}
	op := operation{queue: q}
	_, err := ask(ctx, q, func(s *recipe.Session) (struct{}, error) {
		err := do(s, &op)
		op.executed = op.executed || errors.Is(err, protocol.ErrUncertain)
		return struct{}{}, err
	})
	return err
}

// find returns the entry with an ID or nil. Once it has found an entry, it returns that entry only
// (even if it has moved).
func (o *operation) find(ctx context.Context, s *recipe.Session, id string) (*reading, error) {
	r, err := (*reading)(nil), error(zk.ErrNoNode)
	if e, ok := layout.ParseEntry(id, o.queue.priorities); ok {
		r, err = o.queue.read(ctx, s, found{Entry: e})
	}
	for n := 1; errors.Is(err, zk.ErrNoNode); n++ {
		entries, steady, failed := o.queue.list(ctx, s)
		i := slices.IndexFunc(entries, func(f found) bool { return f.ID == id })
		switch {
		// In a busy queue no listing is steady, but the entry doesn't move all the time.
		case failed != nil, i < 0 && (steady || n >= snapshots):
			return nil, failed
		case i >= 0:
			r, err = o.queue.read(ctx, s, entries[i])
		}
	}

	// A later entry can have the same ID, if the queue's node was created again.
	if err != nil || o.since != 0 && o.since != r.record.Since {
		return nil, err
	}

	o.since = r.record.Since
	return r, nil
}

// missing returns an error for an entry that doesn't exist, unless an attempt of ours may have
// removed it.
func (o *operation) missing(what string) error {
	if o.executed {
		return nil
	}
	return fmt.Errorf("%w: %s", zk.ErrNoNode, what)
}
