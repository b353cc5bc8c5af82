package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// A Queue takes data at one end and gives them away at the other, to any number of processes. It is
// safe for concurrent use. Goroutines that share a Queue share its round trips.
type Queue struct {
	place
	offering
	takes      *protocol.Recipe // the recipe in the modes of its waits
	reserves   *protocol.Recipe
	offerWaits *protocol.Recipe
	drains     *protocol.Recipe
	turns      *line.Line    // of the producers near the maximum length
	offerWait  chan struct{} // held by the OfferWait that waits, and by those that follow in turn

	deadLetters *Queue // nil: none
	attempts    int    // until an item goes there

	retryDelay func(attempt int) time.Duration // of Consume

	mu      sync.Mutex // protects current
	current *under     // the latest session
}

// New returns the queue at path, whose node is created as needed. New does no I/O and cannot fail.
// A nil client, a bad path or a bad option is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Queue {
	r := protocol.NewRecipe(c, "queue", path)
	q := &Queue{
		place:      place{recipe: r, path: path},
		offering:   offering{retention: keyRetention},
		turns:      line.New(r.Part(path+offeringNode), line.Kind{Name: turnKind, Exclusive: true}),
		offerWait:  make(chan struct{}, 1),
		retryDelay: retryDelay,
	}
	protocol.Configure(r, q, opts)
	q.takes, q.reserves, q.offerWaits, q.drains = r.Mode("take"), r.Mode("reserve"), r.Mode("offer"), r.Mode("drain")
	return q
}

// An under is what a queue has under one session. The queues of one client at a path share what they
// have, and those that offer in the same way share a producer.
type under struct {
	*consumer
	producer *producer
	of       *protocol.Session
}

// A sharing says which queues of a client share a consumer under a session.
type sharing struct {
	path       string
	priorities bool
}

// A producing says which queues share a producer.
type producing struct {
	sharing
	offering
}

// under returns what q has under s, the current session.
func (q *Queue) under(s *protocol.Session) *under {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil || q.current.of != s {
		shared := sharing{q.path, q.priorities}
		c := protocol.Shared(s, shared, func() *consumer {
			return newConsumer(&site{place: q.place, session: s.Background(), came: make(chan struct{}, 1)})
		})
		p := protocol.Shared(s, producing{shared, q.offering}, func() *producer {
			return newProducer(c.site, q.offering, q.turns)
		})
		q.current = &under{c, p, s}
	}
	return q.current
}

// across calls do under the current session. If the session is lost with nothing done, do is called
// again under the next one.
func across[R any](ctx context.Context, q *Queue, do func(*under) (R, error)) (R, error) {
	var final error // which another session would not mend
	r, err := ask(ctx, q, func(s *protocol.Session) (R, error) {
		r, err := do(q.under(s))
		if errors.Is(err, protocol.ErrUncertain) {
			final, err = err, nil
		}
		return r, err
	})
	return r, cmp.Or(err, q.recipe.Wrap(final))
}

// ask calls do under the current session, and again under the next one if that is lost.
func ask[T any](ctx context.Context, q *Queue, do func(*protocol.Session) (T, error)) (T, error) {
	v, err := protocol.AcrossSessions(ctx, q.recipe, do)
	return v, q.recipe.Wrap(err)
}
