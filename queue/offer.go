package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Offer appends an entry and returns its ID, which is the name of its node. It blocks until the
// server has answered. If the session is lost before anything was sent, Offer goes on in the next
// session. Offers of several goroutines share round trips. A goroutine that waits for each offer
// has its entries in order.
//
// An Offer that returns nil has appended one entry. Its ID is empty if the server's answer was
// lost. If ctx ends before anything was sent, Offer returns ctx's error and nothing happens.
//
// If the session is lost with the answer, or ctx ends more than a moment (50 ms) before it comes,
// Offer returns an [UncertainError], which wraps [protocol.ErrUncertain]: there may be one entry or
// none, never two. The same holds if an operator deletes the queue's records meanwhile.
// [Queue.OfferKey] can settle that. Other errors wrap [ErrFull], [protocol.ErrTooLarge],
// [protocol.ErrSequenceExhausted], [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's
// own. Nothing was appended then.
//
// data must not be changed before Offer returns, nor after it has returned an UncertainError.
func (q *Queue) Offer(ctx context.Context, data []byte) (id string, err error) {
	return q.offerOne(ctx, offer{prefix: q.prefix(layout.DefaultPriority)}, data)
}

// OfferAll appends entries in one transaction: all of them, one right behind the other, or none. It
// blocks and returns errors as [Queue.Offer] does. ids is nil if the server's answer was lost.
//
// Together the entries must fit into one request: their data, and for each the queue's path and
// about a hundred bytes, may add up to [protocol.MaxData]. Otherwise (or if a chroot or a long ACL
// makes the request too large) OfferAll returns [protocol.ErrTooLarge] before it sends anything.
// If the servers' jute.maxbuffer is smaller, tell the client with [protocol.WithRequestLimit].
func (q *Queue) OfferAll(ctx context.Context, items [][]byte) (ids []string, err error) {
	if len(items) == 0 {
		return nil, q.recipe.Wrap(q.recipe.Validate(nil))
	}
	return q.offer(ctx, offer{prefix: q.prefix(layout.DefaultPriority), items: items})
}

// OfferAfter is [Queue.Offer] of an entry that is not delivered before d has passed, by this
// process's clock. Consumers compare that with their own clocks. Until it is due, the entry is
// beside the queue: other libraries don't see it, and [WithMaxLength] doesn't count it. Then a
// consumer moves it to the tail. It keeps its ID. If d is negative, OfferAfter returns an error and
// does no I/O.
func (q *Queue) OfferAfter(ctx context.Context, d time.Duration, data []byte) (id string, err error) {
	switch {
	case d < 0:
		return "", q.recipe.Wrap(fmt.Errorf("OfferAfter with a negative delay: %v", d))
	case d == 0:
		return q.Offer(ctx, data)
	}
	now := time.Now()
	due := dueAfter(now, d)
	node := delayedNode + "/" + layout.DelayedBucket(due) + "/" + layout.DelayedEntry(due, "")
	return q.offerOne(ctx, offer{prefix: node, due: due, since: now.UnixMilli()}, data)
}

// dueAfter is not before now and d, in whole milliseconds since 1970.
func dueAfter(now time.Time, d time.Duration) int64 {
	return now.Add(d).Add(time.Millisecond - 1).UnixMilli()
}

// OfferPriority is [Queue.Offer] of an entry with a priority from 0 to 999. Entries with a lower
// number are delivered first. It is for queues with [WithPriorities], where the other verbs offer
// entries of priority 100. Without that option, or with another priority, OfferPriority returns an
// error and does no I/O.
func (q *Queue) OfferPriority(ctx context.Context, priority int, data []byte) (id string, err error) {
	switch {
	case !q.priorities:
		err = errors.New("OfferPriority is for queues that were made WithPriorities")
	case priority < 0 || priority > 999:
		err = fmt.Errorf("OfferPriority with %d: a priority is a number from 0 to 999", priority)
	default:
		return q.offerOne(ctx, offer{prefix: q.prefix(priority)}, data)
	}
	return "", q.recipe.Wrap(err)
}

// prefix returns a new entry's name without its sequence number.
func (q *Queue) prefix(priority int) string {
	if q.priorities {
		return fmt.Sprintf("/%s-%03d-", layout.QueuePriority, priority)
	}
	return "/" + layout.QueuePlain + "-"
}

func (q *Queue) offerOne(ctx context.Context, o offer, data []byte) (id string, err error) {
	o.items = [][]byte{data}
	ids, err := q.offer(ctx, o)
	if len(ids) == 1 {
		id = ids[0]
	}
	return id, err
}

func (q *Queue) offer(ctx context.Context, o offer) (ids []string, err error) {
	if err := q.recipe.Validate(o.items[0]); err != nil {
		return nil, q.recipe.Wrap(err)
	}

	// A single entry is checked by itself, against the same limit.
	size := 0
	for _, data := range o.items {
		size += protocol.MultiSize(&zk.CreateRequest{Path: q.path + o.prefix, Data: data, Acl: q.recipe.ACL(q.path)})
	}
	if len(o.items) > 1 && size > protocol.MaxData {
		err := fmt.Errorf("%w: %d bytes, and %d are the limit", protocol.ErrTooLarge, size, protocol.MaxData)
		return nil, q.recipe.Wrap(err)
	}

	done, err := across(ctx, q, func(u *under) (*offer, error) {
		attempt := o
		if err := u.producer.fits(o.items); err != nil {
			return &attempt, err
		}
		return &attempt, u.producer.offers.Do(ctx, &attempt)
	})
	if err != nil {
		if !errors.As(err, new(*UncertainError)) && errors.Is(err, protocol.ErrUncertain) {
			err = &UncertainError{Data: o.items, Err: err}
		}
		return nil, err
	}
	return done.ids, nil
}

// OfferKey is [Queue.Offer] of an entry with a key of the caller's choice (the number of an order,
// say). If an entry with this key was offered before, OfferKey appends nothing and returns an empty
// ID and no error, even after that entry was consumed. So after an [UncertainError], call it again
// with the same key.
//
// A key is remembered for one to two hours (see [WithKeyRetention]), as long as further keys are
// offered. Each takes some hundred bytes of every server's memory. Offers without a key are not
// compared.
//
// A key has up to 1,000 bytes. If it is empty or longer, OfferKey returns an error and does no I/O.
func (q *Queue) OfferKey(ctx context.Context, key string, data []byte) (id string, err error) {
	if key == "" || len(key) > maxKey {
		err := fmt.Errorf("OfferKey with a key of %d bytes: it needs one, and may have %d", len(key), maxKey)
		return "", q.recipe.Wrap(err)
	}
	return q.offerOne(ctx, offer{prefix: q.prefix(layout.DefaultPriority), key: key}, data)
}
