package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Queue is offered data at one end, and gives it away at the other one, to any number of
// processes. It is safe for concurrent use. Goroutines that share a Queue share its round trips.
type Queue struct {
	recipe     *protocol.Recipe
	takes      *protocol.Recipe // the recipe in the modes of its waits
	reserves   *protocol.Recipe
	offerWaits *protocol.Recipe
	drains     *protocol.Recipe
	path       string
	priorities bool // of entries: kazoo's layout
	producers

	deadLetters *Queue // nil: none
	attempts    int    // until an item goes there

	retryDelay func(attempt int) time.Duration // of Consume

	mu      sync.Mutex // protects current
	current *producer  // under the latest session
}

// New returns the queue at path, whose node is created as needed. New does no I/O and cannot fail.
// A nil client, a bad path or a bad option is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Queue {
	r := protocol.NewRecipe(c, "queue", path)
	q := &Queue{
		recipe:    r,
		path:      path,
		producers: newProducers(r.Part(path + offeringNode)),

		retryDelay: retryDelay,
	}
	protocol.Configure(r, q, opts)
	q.takes, q.reserves, q.offerWaits, q.drains = r.Mode("take"), r.Mode("reserve"), r.Mode("offer"), r.Mode("drain")
	return q
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
// order. It removes all of them or none, also where it returns an [UncertainError]. It removes
// fewer than there are if their data would come to more than about 8 MB, or their paths to more
// than a request holds. It may also remove fewer, 64 at most, while other sessions take entries.
// It blocks, and returns errors, as [Queue.Poll] does.
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
func (q *Queue) remove(ctx context.Context, max int, wait bool) (_ [][]byte, in *protocol.Session, err error) {
	r, err := across(ctx, q, func(p *producer) (*removal, error) {
		in = p.session
		return p.consumer.remove(ctx, &removal{max: max, wait: wait})
	})

	if errors.Is(err, protocol.ErrUncertain) {
		if !errors.As(err, new(*UncertainError)) {
			err = &UncertainError{IDs: r.ids, Data: r.data, Err: err}
		}
		return r.data, in, err
	}
	if err != nil {
		return nil, in, err
	}
	return r.data, in, nil
}

// Reserve claims the first entry that is not reserved. It blocks until there is one, and waits on
// in the next session if one is lost. The item has to be acknowledged. Otherwise it comes back, at
// once with [Item.Nack], or when the session ends.
//
// If ctx ends, Reserve returns an error that wraps ctx's, and what may have been reserved is given
// back in the background. If the session holds too many items already, Reserve returns
// [ErrTooManyItems] at once. Other errors wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are
// the server's own.
//
// To reserve an entry is to write it once more, with its path and its claim, in one request. For an
// entry of another library that is too large for that, Reserve returns [protocol.ErrTooLarge].
// [Queue.Take] removes it.
func (q *Queue) Reserve(ctx context.Context) (*Item, error) {
	return q.reserve(ctx, true)
}

// TryReserve is [Queue.Reserve] without the wait: it returns [ErrEmpty] where [Queue.Poll] does.
func (q *Queue) TryReserve(ctx context.Context) (*Item, error) { return q.reserve(ctx, false) }

func (q *Queue) reserve(ctx context.Context, wait bool) (it *Item, err error) {
	if err := q.recipe.ValidateCall(ctx, nil); err != nil {
		return nil, err
	}
	var under *perSession
	began := time.Now()
	q.reserves.Waiting(ctx)
	defer func() {
		var s *protocol.Session
		if under != nil {
			s = under.session
		}
		var token int64
		if it != nil {
			token = it.Token()
		}
		q.reserves.Waited(ctx, began, s, token, err)
	}()

	for {
		r, err := across(ctx, q, func(p *producer) (*removal, error) {
			under = p.perSession
			return p.consumer.remove(ctx, &removal{max: 1, wait: wait, reserve: true})
		})
		if err != nil {
			return nil, err
		}

		it, err := q.itemFor(ctx, under, r)
		switch {
		case err == nil && it == nil: // it has become a dead letter
		case err != nil && ctx.Err() == nil && under.session.Err() != nil:
		case err != nil && errors.Is(err, zk.ErrNoNode): // an operator has deleted it
		default:
			return it, q.recipe.Wrap(err)
		}
	}
}
