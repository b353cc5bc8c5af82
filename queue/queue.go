package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// Siblings of the queue's node have its path with these suffixes.
const (
	receiptsSuffix = "-receipts"
	waitingSuffix  = "-waiting"
)

// A Queue is offered data at one end, and gives it away at the other one, to any number of
// processes. It is safe for concurrent use. Goroutines that share a Queue share its round trips.
type Queue struct {
	recipe    *protocol.Recipe
	path      string
	maxLength int        // 0: unbounded
	line      *line.Line // of the consumers that wait

	deadLetters *Queue // nil: none
	attempts    int    // until an item goes there

	mu      sync.Mutex  // protects current
	current *perSession // under the latest session
}

// New returns the queue at path, whose node is created as needed. New does no I/O and cannot fail.
// A nil client, a bad path or a bad option is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Queue {
	const recipe = "queue"
	q := &Queue{
		recipe: protocol.NewRecipe(c, recipe, path),
		path:   path,
		line:   line.New(protocol.NewRecipe(c, recipe, path+waitingSuffix), line.Kind{Name: waitingKind}),
	}
	protocol.Configure(q.recipe, q, opts)
	return q
}

// Offer appends an entry and returns its ID, which is the name of its node. It blocks until the
// server has answered. If the session is lost before anything was sent, Offer goes on in the next
// one. Offers of several goroutines share round trips. Those of a goroutine that waits for each are
// kept in order.
//
// An Offer that returns nil has appended one entry. Its ID is empty if the answer was lost and the
// entry is consumed already, or cannot be told from others. If ctx ends before anything was sent,
// Offer returns ctx's error and nothing happens.
//
// If the session is lost with the answer, or ctx ends more than a moment (50 ms) before it comes,
// Offer returns an [UncertainError], which wraps [protocol.ErrUncertain]: there may be one entry,
// or none, never two. Other errors wrap [ErrFull], [protocol.ErrTooLarge],
// [protocol.ErrSequenceExhausted], [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's
// own. Nothing was appended then.
//
// data must not be changed before Offer returns, nor after it has returned an UncertainError.
func (q *Queue) Offer(ctx context.Context, data []byte) (id string, err error) {
	ids, err := q.OfferAll(ctx, [][]byte{data})
	if len(ids) == 1 {
		id = ids[0]
	}
	return id, err
}

// OfferAll appends entries, one right behind the other, in one transaction: all of them or none. It
// blocks, and returns errors, as [Queue.Offer] does. ids is nil where that would return an empty
// ID.
//
// Together the entries have to fit into one request. The sizes of their data and, for each, of the
// queue's path and about a hundred bytes more may add up to [protocol.MaxData]. Otherwise OfferAll
// returns [protocol.ErrTooLarge] before it sends anything. It also returns that if the request gets
// larger than any server takes for another reason: a chroot, a long ACL, or with [WithMaxLength]
// the data of the queue's own node.
//
// A server whose jute.maxbuffer is smaller refuses a request by ending the connection. Once it has
// done so twice, OfferAll returns the same error with the limit that the server seems to have.
func (q *Queue) OfferAll(ctx context.Context, items [][]byte) (ids []string, err error) {
	if len(items) == 0 {
		return nil, q.recipe.Wrap(q.recipe.Validate(nil))
	}
	if err := q.recipe.Validate(items[0]); err != nil {
		return nil, q.recipe.Wrap(err)
	}

	// A single entry is checked by itself, against the same limit.
	if len(items) > 1 {
		size := protocol.MultiSize(q.creates(q.path, items)...)
		if size > protocol.MaxData {
			err := fmt.Errorf("%w: %d bytes, and %d are the limit", protocol.ErrTooLarge, size, protocol.MaxData)
			return nil, q.recipe.Wrap(err)
		}
	}

	o, err := across(ctx, q, func(p *perSession) (*offer, error) {
		return p.producer.offer(ctx, items)
	})
	if err != nil {
		if !errors.As(err, new(*UncertainError)) && errors.Is(err, protocol.ErrUncertain) {
			err = &UncertainError{Data: items, Err: err}
		}
		return nil, err
	}
	return o.ids, nil
}

// Take removes the first entry that is not reserved and returns its data. It blocks until there is
// one, and waits on in the next session if one is lost.
//
// If ctx ends before anything was sent, Take returns ctx's error and nothing happens. If the
// session is lost with the answer, or ctx ends more than a moment (50 ms) before it comes, Take
// returns the data, and an [UncertainError], which wraps [protocol.ErrUncertain] and has the data
// too. Then the entry was removed, and no other consumer will get it, or it was not. Other errors
// wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's own.
func (q *Queue) Take(ctx context.Context) ([]byte, error) {
	began := time.Now()
	data, err := q.remove(ctx, 1, true)
	q.recipe.Waited(began, err)
	return first(data), err
}

// Poll is [Queue.Take] without the wait: it returns [ErrEmpty] if at some moment of the call there
// was no entry that is not reserved.
func (q *Queue) Poll(ctx context.Context) ([]byte, error) {
	data, err := q.remove(ctx, 1, false)
	return first(data), err
}

// PollN removes up to max entries, a thousand at most, in one transaction and returns their data in
// order. It removes all of them or none, also where it returns an [UncertainError]. It removes
// fewer than there are if their data would come to more than about 8 MB, or their paths to more
// than a request holds. It blocks, and returns errors, as [Queue.Poll] does.
func (q *Queue) PollN(ctx context.Context, max int) ([][]byte, error) {
	if max < 1 {
		return nil, q.recipe.Wrap(fmt.Errorf("PollN of %d entries: at least one is needed", max))
	}
	return q.remove(ctx, min(max, maxOps), false)
}

func first(data [][]byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data[0]
}

// remove removes up to max entries. If wait is set it waits for one.
func (q *Queue) remove(ctx context.Context, max int, wait bool) ([][]byte, error) {
	r, err := across(ctx, q, func(p *perSession) (*removal, error) {
		return p.consumer.remove(ctx, &removal{max: max, wait: wait})
	})

	if errors.Is(err, protocol.ErrUncertain) {
		if !errors.As(err, new(*UncertainError)) {
			err = &UncertainError{IDs: r.ids, Data: r.data, Err: err}
		}
		return r.data, err
	}
	if err != nil {
		return nil, err
	}
	return r.data, nil
}

// Peek returns the data of the first entry that is not reserved, and leaves it there. It blocks
// until the server has answered, which takes a listing of the queue: Peek is for a look, not for a
// loop. It returns [ErrEmpty], ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the
// server's error.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	return list(ctx, q, func(s *protocol.Session, entries []*entry) ([]byte, error) {
		for _, e := range entries {
			var stat *zk.Stat
			data, err := protocol.Do(ctx, s, func(c *zk.Conn) (data []byte, err error) {
				data, stat, err = c.Get(s.Path(q.path) + "/" + e.name)
				return data, err
			})

			switch {
			case errors.Is(err, zk.ErrNoNode):
			case err != nil, stat.NumChildren == 0:
				return data, err
			}
		}
		return nil, ErrEmpty
	})
}

// Len returns how many entries there are, reserved ones included, at a moment after the call began.
// It blocks until the server has answered, which takes a listing of the queue. It returns ctx's
// error, [protocol.ErrClosed], [zk.ErrInvalidPath], or the server's error.
func (q *Queue) Len(ctx context.Context) (int, error) {
	return list(ctx, q, func(_ *protocol.Session, entries []*entry) (int, error) { return len(entries), nil })
}

// list calls do with an up-to-date listing.
func list[T any](ctx context.Context, q *Queue, do func(*protocol.Session, []*entry) (T, error)) (T, error) {
	v, err := protocol.AcrossSessions(ctx, q.recipe, func(s *protocol.Session) (v T, err error) {
		if err := s.Sync(ctx, q.path); err != nil {
			return v, err
		}

		children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
			children, _, err := c.Children(s.Path(q.path))
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			return children, err
		})
		if err != nil {
			return v, err
		}

		return do(s, parseAll(children))
	})
	return v, q.recipe.Wrap(err)
}

// Reserve claims the first entry that is not reserved. It blocks until there is one, and waits on
// in the next session if one is lost. The item has to be acknowledged. Otherwise it comes back, at
// once with [Item.Nack], or when the session ends.
//
// If ctx ends, Reserve returns an error that wraps ctx's, and what may have been reserved is given
// back in the background. Other errors wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are the
// server's own.
//
// To reserve an entry is to write it once more, with its path and its claim, in one request. For an
// entry of another library that is too large for that, Reserve returns [protocol.ErrTooLarge].
// [Queue.Take] removes it.
func (q *Queue) Reserve(ctx context.Context) (*Item, error) {
	began := time.Now()
	it, err := q.reserve(ctx, true)
	q.recipe.Waited(began, err)
	return it, err
}

// TryReserve is [Queue.Reserve] without the wait: it returns [ErrEmpty] where [Queue.Poll] does.
func (q *Queue) TryReserve(ctx context.Context) (*Item, error) { return q.reserve(ctx, false) }

func (q *Queue) reserve(ctx context.Context, wait bool) (*Item, error) {
	for {
		var under *perSession
		r, err := across(ctx, q, func(p *perSession) (*removal, error) {
			under = p
			return p.consumer.remove(ctx, &removal{max: 1, wait: wait, reserve: true})
		})
		if err != nil {
			return nil, err
		}

		it, err := under.itemFor(ctx, r)
		switch {
		case err == nil && it == nil: // it has become a dead letter
		case err != nil && ctx.Err() == nil && under.session.Err() != nil:
		case err != nil && errors.Is(err, zk.ErrNoNode): // an operator has deleted it
		default:
			return it, q.recipe.Wrap(err)
		}
	}
}

// Items yields one item after the other, as [Queue.Reserve] returns them, until the loop ends or
// Reserve fails. The error of Reserve is yielded last. Items that the loop neither acknowledges nor
// gives back stay reserved while the session lasts.
func (q *Queue) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			it, err := q.Reserve(ctx)
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}
