package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An Info describes an entry, as [Queue.List] has found it.
type Info struct {
	ID       string    // the name of its node, as [Queue.Offer] returns it
	Size     int       // of its data, in bytes
	Since    time.Time // when it was offered, by the server's clock, or by the producer's if it has moved since; zero if it is hidden
	Attempts int       // how often it was reserved, the present reservation included

	Holder    int64     // the ID of the session that has reserved it, or 0 if none has or it is unknown
	HeldSince time.Time // when it was reserved, by the server's clock, or zero if it is not

	Due      time.Time // not delivered before, or zero if it was offered without a delay
	Priority int       // lower ones are delivered first
	Origin   string    // of a dead letter: where it comes from, and why
}

// reads is how many entries List reads at the same time.
const reads = 64

// attempts returns how often an entry was reserved. Each claim that was created counts, and each
// has set the entry's data once. A claim that was given up before it was delivered has set them
// once more, and does not count.
func attempts(n name, stat *zk.Stat) int {
	// The server's counter has 2 for each child that was created, less the children that are there.
	creates := (int(stat.Cversion) + int(stat.NumChildren)) / 2
	return n.attempts + max(0, 2*creates-int(stat.Version))
}

// Len returns how many entries there are, reserved and delayed ones included, at a moment after the
// call began. A path that does not exist has none. Len blocks until the server has answered, which
// takes a listing of the queue. It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath],
// or the server's error. After a session loss it asks again in the next session.
func (q *Queue) Len(ctx context.Context) (int, error) {
	entries, err := ask(ctx, q, func(s *protocol.Session) ([]name, error) { return q.list(ctx, s) })
	return len(entries), err
}

// Peek returns the data of the first entry that could be taken, and leaves it there. It skips
// entries that are reserved, not due yet, or may not be read. It blocks until the server has
// answered, which takes a listing of the queue, and a read for each entry that it skips: Peek is
// for a look, not for a loop.
//
// If there is no such entry, Peek returns [zk.ErrNoAuth] if there is one that may not be read, and
// otherwise [ErrEmpty]. It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the
// server's error. After a session loss it asks again in the next session.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	return ask(ctx, q, func(s *protocol.Session) ([]byte, error) {
		entries, err := q.list(ctx, s)
		if err != nil {
			return nil, err
		}

		nothing := ErrEmpty
		for _, n := range entries {
			if n.due > time.Now().UnixMilli() {
				continue
			}

			data, stat, err := s.Get(ctx, q.path+"/"+n.node)
			switch {
			case errors.Is(err, zk.ErrNoNode):
			case errors.Is(err, zk.ErrNoAuth):
				nothing = fmt.Errorf("read entry %s: %w", n.node, err)
			case err != nil, stat.NumChildren == 0:
				return data, err
			}
		}
		return nil, nothing
	})
}

// ask calls do under the current session, and again under the next one if that is lost.
func ask[T any](ctx context.Context, q *Queue, do func(*protocol.Session) (T, error)) (T, error) {
	v, err := protocol.AcrossSessions(ctx, q.recipe, do)
	return v, q.recipe.Wrap(err)
}

// list returns the entries, in order, at a moment after the call began.
func (q *Queue) list(ctx context.Context, s *protocol.Session) ([]name, error) {
	if err := s.Sync(ctx, q.path); err != nil {
		return nil, err
	}
	children, _, err := s.Children(ctx, q.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return q.names(children), err
}

// List yields the entries in the order of delivery, reserved and delayed ones included. They are
// those at a moment after the loop began, less those that are gone when they are read. A path that
// does not exist has none.
//
// The loop blocks while the server answers. List takes one listing of the queue, one request for
// each entry, and two more for one that is reserved. It reads 64 entries at a time, and nothing
// more once the loop ends. After a session loss it goes on in the next session.
//
// An error is yielded last, with a zero Info: ctx's, [protocol.ErrClosed], [zk.ErrInvalidPath], or
// the server's own. To list a queue takes the permission to read its node. Without that on a
// reserved entry, the entry's Holder is 0, and its HeldSince when its data was set.
//
// ZooKeeper 3.8.4, 3.9.2 and later hide more of an entry that may not be read. Its Info then has
// only what its name tells: ID, Due, Priority and Origin, and Since if it has moved. The sequence
// may be used more than once, and concurrently.
func (q *Queue) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		entries, err := ask(ctx, q, func(s *protocol.Session) ([]name, error) { return q.list(ctx, s) })
		if err != nil {
			yield(Info{}, err)
			return
		}

		// The server of a next session knows the entries, too: it has been told of the session
		// later.
		for chunk := range slices.Chunk(entries, reads) {
			found, err := ask(ctx, q, func(s *protocol.Session) ([]*Info, error) {
				return q.inspectAll(ctx, s, chunk)
			})
			if err != nil {
				yield(Info{}, err)
				return
			}

			for _, i := range found {
				if i != nil && !yield(*i, nil) {
					return
				}
			}
		}
	}
}

// inspectAll describes entries, all at the same time. Those that are gone are nil.
func (q *Queue) inspectAll(ctx context.Context, s *protocol.Session, entries []name) ([]*Info, error) {
	found, errs := make([]*Info, len(entries)), make([]error, len(entries))
	var wg sync.WaitGroup
	for i, n := range entries {
		wg.Go(func() { found[i], errs[i] = q.inspect(ctx, s, n) })
	}
	wg.Wait()

	return found, cmp.Or(errs...)
}

// inspect describes an entry. It returns nil if that is gone.
func (q *Queue) inspect(ctx context.Context, s *protocol.Session, n name) (*Info, error) {
	node := q.path + "/" + n.node
	for {
		stat, err := s.Exists(ctx, node)
		hidden := errors.Is(err, zk.ErrNoAuth)
		if !hidden && (err != nil || stat == nil) {
			return nil, err
		}

		i := &Info{ID: n.node, Priority: n.priority, Origin: n.origin}
		if n.due != 0 {
			i.Due = time.UnixMilli(n.due)
		}
		if !hidden {
			i.Size, i.Since, i.Attempts = int(stat.DataLength), time.UnixMilli(stat.Ctime), attempts(n, stat)
		}
		if n.since != 0 {
			i.Since = time.UnixMilli(n.since)
		}
		if hidden || stat.NumChildren == 0 {
			return i, nil
		}

		claims, _, err := s.Children(ctx, node)
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			i.HeldSince = time.UnixMilli(stat.Mtime)
			return i, nil
		case errors.Is(err, zk.ErrNoNode), err == nil && len(claims) == 0:
			continue // it has changed since
		case err != nil:
			return nil, err
		}

		claim, err := s.Exists(ctx, node+"/"+slices.Min(claims))
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			i.HeldSince = time.UnixMilli(stat.Mtime)
			return i, nil
		case err != nil:
			return nil, err
		case claim != nil:
			i.Holder, i.HeldSince = claim.EphemeralOwner, time.UnixMilli(claim.Ctime)
			return i, nil
		}
	}
}

// Remove drops an entry, reserved or not, given its ID. A consumer that has reserved it is told of
// the loss. Its Ack then returns an error that wraps [protocol.ErrLost].
//
// Remove blocks until the server has answered, and goes on in the next session if one is lost. It
// returns an error that wraps [zk.ErrNoNode] if there is no such entry, [zk.ErrInvalidPath] if no
// entry could have that ID, ctx's error, [protocol.ErrClosed], or the server's own, for example
// [zk.ErrNoAuth]. If ctx ends first, the entry may be removed all the same. An ID is never used
// again, so Remove may be repeated. It is safe for concurrent use.
func (q *Queue) Remove(ctx context.Context, id string) error {
	return q.operate(ctx, id, func(s *protocol.Session, end *ending) error {
		var claims []string
		for {
			failed, err := end.try(ctx, s, append(q.deletions(s, id, claims),
				&zk.DeleteRequest{Path: s.Path(q.path + "/" + id), Version: -1})...)
			noNode, atEntry := errors.Is(err, zk.ErrNoNode), failed == len(claims)
			switch {
			case noNode && atEntry:
				return end.missing("there is no entry " + id)
			case noNode && failed >= 0, errors.Is(err, zk.ErrNotEmpty) && atEntry:
			default:
				return err
			}

			// A claim has come or gone since.
			claims, _, err = s.Children(ctx, q.path+"/"+id)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
}

// Free ends the reservation of an entry, given its ID, so that it is delivered again. The consumer
// that has reserved it is told of the loss, and those that wait look for entries. The consumer that
// has lost it may still be about to act: guard what it does with [Item.Token] or [Item.Check].
//
// Free blocks, and returns errors, as [Queue.Remove] does. Its error wraps [zk.ErrNoNode] also if
// the entry is not reserved. It ends the reservation that it has found, and no later one. It is
// safe for concurrent use.
func (q *Queue) Free(ctx context.Context, id string) error {
	var claims []string // as they were found first: their names are never used again
	return q.operate(ctx, id, func(s *protocol.Session, end *ending) (err error) {
		if len(claims) == 0 {
			if err := s.Sync(ctx, q.path); err != nil {
				return err
			}
			claims, _, err = s.Children(ctx, q.path+"/"+id)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return end.missing("there is no entry " + id)
			case err != nil:
				return err
			case len(claims) == 0:
				return end.missing(id + " is not reserved")
			}
		}

		deletions := q.deletions(s, id, claims)
		failed, err := end.try(ctx, s, append(deletions, ring(s, q.path, id))...)
		if err != nil && failed == len(claims) { // there is no register, or it may not be written
			_, err = end.try(ctx, s, deletions...)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return end.missing(id + " is not reserved any more")
		}
		return err
	})
}

// operate calls do, for the entry with this ID, under the current session, and under the next one
// if that is lost.
func (q *Queue) operate(ctx context.Context, id string, do func(*protocol.Session, *ending) error) error {
	if err := q.recipe.Validate(nil); err != nil {
		return q.recipe.Wrap(err)
	}
	if _, ok := q.parse(id); !ok || strings.Contains(id, "/") || protocol.ValidatePath("/"+id) != nil {
		return q.recipe.Wrap(fmt.Errorf("%w: %q is not the ID of an entry", zk.ErrInvalidPath, id))
	}

	var end ending
	_, err := ask(ctx, q, func(s *protocol.Session) (struct{}, error) { return struct{}{}, do(s, &end) })
	return err
}

// deletions are the operations that delete the claims on an entry.
func (q *Queue) deletions(s *protocol.Session, id string, claims []string) (ops []any) {
	for _, claim := range claims {
		ops = append(ops, &zk.DeleteRequest{Path: s.Path(q.path + "/" + id + "/" + claim), Version: -1})
	}
	return ops
}

// An ending deletes nodes whose names are never used again, in attempts of one transaction each.
type ending struct {
	executed atomic.Bool // an attempt may have been
}

// try makes an attempt. If it fails, failed is the operation that it died of, or negative.
func (e *ending) try(ctx context.Context, s *protocol.Session, ops ...any) (failed int, err error) {
	answers, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		before := e.executed.Swap(true)
		answers, err := protocol.Multi(c, ops...)
		if err != nil && !protocol.OutcomeUnknown(err) {
			e.executed.Store(before)
		}
		return answers, err
	})
	return result{answers: answers}.failed(err), err
}

// missing returns an error for nodes that do not exist, unless an attempt may have deleted them.
func (e *ending) missing(what string) error {
	if e.executed.Load() {
		return nil
	}
	return fmt.Errorf("%w: %s", zk.ErrNoNode, what)
}

// Drained blocks until there was no entry, reserved, delayed or neither, at some moment after the
// call began. A path that does not exist is drained. Drained waits on in the next session if one is
// lost. While it waits it watches the last entry, and it lists the queue when that is gone.
//
// It returns ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the server's own. It needs
// the permission to read the queue's node. Where the last entry may not be read, it lists the queue
// whenever entries come or go. It is safe for concurrent use.
func (q *Queue) Drained(ctx context.Context) error {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	began, in := time.Now(), (*protocol.Session)(nil)
	q.drains.Waiting(ctx)
	_, err := ask(ctx, q, func(s *protocol.Session) (struct{}, error) {
		in = s
		for {
			entries, err := q.list(ctx, s)
			if err != nil || len(entries) == 0 {
				return struct{}{}, err
			}
			err = awaitDeletion(ctx, s, q.path+"/"+entries[len(entries)-1].node)
			if errors.Is(err, zk.ErrNoAuth) {
				err = s.WaitChildren(ctx, q.path, func(children []string) bool { return len(q.names(children)) == 0 })
			}
			if err != nil {
				return struct{}{}, err
			}
		}
	})
	q.drains.Waited(ctx, began, in, 0, err)
	return err
}

// awaitDeletion blocks until a node is gone. Its data may change meanwhile.
func awaitDeletion(ctx context.Context, s *protocol.Session, path string) error {
	for {
		w := s.Watch(path)
		_, err := w.Ready(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.WaitAny(ctx, w); err != nil {
			return err
		}
	}
}
