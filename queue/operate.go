package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Remove drops an entry (even if it is reserved or delayed), given its ID. A consumer that has
// reserved it loses its item, and its Ack returns an error that wraps [protocol.ErrLost].
//
// Remove blocks until the server has answered. If a session is lost, it goes on in the next
// session. It returns an error that wraps [zk.ErrNoNode] if there is no such entry,
// [zk.ErrInvalidPath] if no entry could have that ID, ctx's error, [protocol.ErrClosed], or the
// server's own, for example [zk.ErrNoAuth]. If ctx ends first, the entry may be removed all the
// same. Remove never hits a later entry with the same ID. It is safe for concurrent use.
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
			_, err = op.end(ctx, s, t)
			if ignore(err, zk.ErrBadVersion, zk.ErrNoNode) != nil || err == nil { // otherwise it has moved
				return err
			}
		}
	})
}

// Free ends the reservation of an entry, given its ID, so that it is delivered again. The consumer
// that has reserved it loses its item. It may still be about to act, so fence its writes
// ([Item.Multi], [Item.Token]).
//
// Free blocks and returns errors as [Queue.Remove] does. Its error also wraps [zk.ErrNoNode] if the
// entry is not reserved. It never ends a later reservation. It is safe for concurrent use.
func (q *Queue) Free(ctx context.Context, id string) error {
	var held *reading // as it was found first: its name is never used again
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
		err = q.relocate(ctx, s, move{record: held.record, data: held.data}, func(ops []any) (int, error) {
			return op.end(ctx, s, held, ops...)
		})
		if errors.Is(err, zk.ErrNoNode) {
			return op.missing(id + " is not reserved any more")
		}
		return err
	})
}

// An operation is a call of an operator's verb, under one session after the other.
type operation struct {
	queue    *Queue
	since    int64 // of the entry that was found first; 0: none was
	executed bool  // an attempt may have been
}

// operate calls do, for the entry with this ID, under the current session, and under the next one
// if that is lost.
func (q *Queue) operate(ctx context.Context, id string, do func(*recipe.Session, *operation) error) error {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}
	if !layout.IsEntryID(id) || strings.Contains(id, "/") || recipe.ValidatePath("/"+id) != nil {
		return q.recipe.Wrap(fmt.Errorf("%w: %q is not the ID of an entry", zk.ErrInvalidPath, id))
	}
	op := operation{queue: q}
	_, err := ask(ctx, q, func(s *recipe.Session) (struct{}, error) { return struct{}{}, do(s, &op) })
	return err
}

// find returns the entry with an ID, or nil. If the operation has begun, it is the same entry as
// before, also where that has moved.
func (o *operation) find(ctx context.Context, s *recipe.Session, id string) (*reading, error) {
	r, err := o.read(ctx, s, found{Entry: withID(id), node: "/" + id})
	for errors.Is(err, zk.ErrNoNode) {
		entries, steady, failed := o.queue.list(ctx, s)
		i := slices.IndexFunc(entries, func(f found) bool { return f.ID == id })
		switch {
		case failed != nil, i < 0 && steady:
			return nil, failed
		case i >= 0:
			r, err = o.read(ctx, s, entries[i])
		}
	}
	if err != nil || o.since != 0 && o.since != r.record.Since { // offered later, with a number that was used before
		return nil, err
	}
	o.since = r.record.Since
	return r, nil
}

// read reads an entry. That one in the queue may not be read is no reason not to remove it.
func (o *operation) read(ctx context.Context, s *recipe.Session, f found) (*reading, error) {
	r, err := o.queue.read(ctx, s, f)
	if errors.Is(err, zk.ErrNoAuth) && !f.beside() {
		var stat *zk.Stat
		if stat, err = s.Exists(ctx, o.queue.path+f.node); err == nil && stat == nil {
			err = zk.ErrNoNode
		}
		r = &reading{found: f, stat: stat}
	}
	return r, err
}

// end removes an entry from where it is and does more.
func (o *operation) end(ctx context.Context, s *recipe.Session, r *reading, more ...any) (failed int, err error) {
	failed, err = o.queue.end(ctx, s, r, more...)
	o.executed = o.executed || err == nil || errors.Is(err, protocol.ErrUncertain)
	return failed, err
}

// missing returns an error for an entry that does not exist, unless an attempt may have removed it.
func (o *operation) missing(what string) error {
	if o.executed {
		return nil
	}
	return fmt.Errorf("%w: %s", zk.ErrNoNode, what)
}
