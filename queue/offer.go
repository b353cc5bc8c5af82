package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Offer appends an entry and returns its ID, which is the name of its node. It blocks until the
// server has answered. If the session is lost before anything was sent, Offer goes on in the next
// session. Offers of several goroutines share round trips. The entries of a goroutine that waits
// for each offer are in order.
//
// If Offer returns nil, it has appended one entry. (The ID is empty if the server's answer was
// lost.) If ctx ends before anything was sent, Offer returns ctx's error and nothing happens.
//
// If the session is lost with the answer, Offer returns an [UncertainError]: there can be one entry
// or none but never two. It does the same if ctx ends more than a moment (50 ms) before the answer
// comes, or if an operator deletes the queue's records meanwhile. [Queue.OfferKey] can settle that.
// After any other error nothing was appended. It wraps [ErrFull], [protocol.ErrTooLarge],
// [protocol.ErrSequenceExhausted], [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's
// own.
//
// You must not change data before Offer returns, nor after an UncertainError.
func (q *Queue) Offer(ctx context.Context, data []byte) (id string, err error) {
	return q.offerOne(ctx, offer{prefix: q.prefix(layout.DefaultPriority)}, data)
}

// OfferAll appends entries in one transaction: all of them (one directly behind the other) or none.
// It blocks and returns errors as [Queue.Offer] does. If the server's answer was lost, ids is nil.
//
// Together the entries must fit into one request: their data (plus the queue's path and about a
// hundred bytes for each entry) can add up to [recipe.MaxData]. Otherwise OfferAll returns
// [protocol.ErrTooLarge] before it sends anything. (A chroot or a long ACL can also make the
// request too large.) If the servers' jute.maxbuffer is smaller, use [protocol.WithRequestLimit].
func (q *Queue) OfferAll(ctx context.Context, items [][]byte) (ids []string, err error) {
	if len(items) == 0 {
		return nil, q.recipe.Wrap(q.recipe.Validate(nil))
	}
	return q.offer(ctx, offer{prefix: q.prefix(layout.DefaultPriority), items: items})
}

// OfferAfter is [Queue.Offer] of an entry that isn't delivered before d has passed by this
// process's clock. (Consumers compare the time with their own clocks.) Until then the entry is
// beside the queue: other libraries don't see it, and [WithMaxLength] doesn't count it. Then a
// consumer moves it to the tail. Its ID stays the same. If d is negative, OfferAfter returns an
// error and does no I/O.
func (q *Queue) OfferAfter(ctx context.Context, d time.Duration, data []byte) (id string, err error) {
	switch {
	case d < 0:
		return "", q.recipe.Wrap(fmt.Errorf("OfferAfter with a negative delay: %v", d))
	case d == 0:
		return q.Offer(ctx, data)
	}
	due := dueAfter(d)
	node := delayedNode + "/" + layout.DelayedBucket(due) + "/" + layout.DelayedEntry(due, "")
	return q.offerOne(ctx, offer{prefix: node, due: due}, data)
}

// dueAfter returns the first whole millisecond (since 1970) that isn't before d has passed.
func dueAfter(d time.Duration) int64 {
	return time.Now().Add(d).Add(time.Millisecond - 1).UnixMilli()
}

// OfferPriority is [Queue.Offer] of an entry with a priority from 0 to 999. Entries with lower
// numbers are delivered first. The queue must have been made [WithPriorities]. (Its other verbs
// offer entries of priority 100.) Otherwise, or with another number, OfferPriority returns an error
// and does no I/O.
func (q *Queue) OfferPriority(ctx context.Context, priority int, data []byte) (id string, err error) {
	if !q.priorities {
		return "", q.recipe.Wrap(errors.New("OfferPriority is for queues that were made WithPriorities"))
	}
	if priority < 0 || priority > 999 {
		return "", q.recipe.Wrap(fmt.Errorf("OfferPriority with %d: a priority is a number from 0 to 999", priority))
	}
	return q.offerOne(ctx, offer{prefix: q.prefix(priority)}, data)
}

// prefix returns the name of a new entry without its sequence number.
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

	// A single entry is not checked here, because Validate has the same limit.
	size := 0
	for _, data := range o.items {
		size += recipe.MultiSize(&zk.CreateRequest{Path: q.path + o.prefix, Data: data, Acl: q.recipe.ACL(q.path)})
	}

	if len(o.items) > 1 && size > recipe.MaxData {
		err := fmt.Errorf("%w: %d bytes, and %d are the limit", protocol.ErrTooLarge, size, recipe.MaxData)
		return nil, q.recipe.Wrap(err)
	}

	return across(ctx, q, func(u *under) ([]string, error) {
		// A call can go on in the next session, and each session needs its own request.
		attempt := o
		for _, data := range o.items {
			if err := u.producer.fits(data); err != nil {
				return nil, err
			}
		}

		if err := u.producer.offers.Do(ctx, &attempt); err != nil {
			return nil, err
		}
		return attempt.ids, nil
	})
}

// OfferKey is [Queue.Offer] of an entry with a key of your choice (say, the number of an order). If
// an entry with this key was offered before, OfferKey appends nothing and returns an empty ID
// without an error, even if that entry was consumed. So after an [UncertainError], call it again
// with the same key.
//
// A key is remembered for one to two hours (see [WithKeyRetention]) as long as further keys are
// offered. Each key takes about a hundred bytes of every server's memory. Offers without a key are
// not compared.
//
// A key has up to 1,000 bytes. If it is empty or longer, OfferKey returns an error and does no I/O.
func (q *Queue) OfferKey(ctx context.Context, key string, data []byte) (id string, err error) {
	if key == "" || len(key) > maxKey {
		err := fmt.Errorf("OfferKey with a key of %d bytes: it needs one, and may have %d", len(key), maxKey)
		return "", q.recipe.Wrap(err)
	}
	return q.offerOne(ctx, offer{prefix: q.prefix(layout.DefaultPriority), key: key}, data)
}
