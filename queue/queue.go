package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Queue takes data at one end and delivers it at the other end, to any number of processes. It is
// safe for concurrent use. Goroutines that share a Queue share its round trips.
type Queue struct {
	place
	offering
	takes      *recipe.Recipe // the same recipe, in the modes of its waits
	reserves   *recipe.Recipe
	offerWaits *recipe.Recipe
	drains     *recipe.Recipe
	turns      *line.Line // of producers near the maximum length
	// offerWait is held by the OfferWait that is in line. Others of this Queue follow it in turn.
	offerWait chan struct{}

	deadLetters *Queue // nil if there are none
	attempts    int    // before an item goes there

	retryDelay func(attempt int) time.Duration // for Consume

	mu      sync.Mutex // protects current
	current *under     // for the latest session
}

// New returns the queue at path. Its node is created as needed. New does no I/O and can't fail: if
// the client is nil, or the path or an option is bad, the first call reports it.
func New(c *protocol.Client, path string, opts ...Option) *Queue {
	r := recipe.New(c, "queue", path)
	q := &Queue{
		place:      place{recipe: r, path: path},
		offering:   offering{retention: keyRetention},
		turns:      line.New(r.Part(path+offeringNode), line.Kind{Name: turnKind, Exclusive: true}),
		offerWait:  make(chan struct{}, 1),
		retryDelay: retryDelay,
	}
	recipe.Configure(r, q, opts)
	q.takes, q.reserves, q.offerWaits, q.drains = r.Mode("take"), r.Mode("reserve"), r.Mode("offer"), r.Mode("drain")
	return q
}

// An under is a queue's consumer and producer in one session. Queues of one client at the same path
// share the consumer. If they offer in the same way, they share the producer too.
type under struct {
	*consumer
	producer *producer
	of       *recipe.Session
}

// A sharing is the key by which queues share a consumer or a producer.
type sharing struct {
	path       string
	priorities bool
	offering   offering
}

// under returns the consumer and the producer of q in s, which is the current session.
func (q *Queue) under(s *recipe.Session) *under {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil || q.current.of != s {
		// Each of them lives as long as it works, also without a Queue.
		c := recipe.Shared(s, sharing{path: q.path, priorities: q.priorities}, func() *consumer {
			return newConsumer(&site{place: q.place, session: s.Background()})
		})
		p := recipe.Shared(s, sharing{q.path, q.priorities, q.offering}, func() *producer {
			return newProducer(c.site, q.offering, q.turns)
		})
		q.current = &under{c, p, s}
	}

	return q.current
}

// across calls do in the current session. If the session is lost and nothing was done, it calls do
// again in the next session.
func across[R any](ctx context.Context, q *Queue, do func(*under) (R, error)) (R, error) {
	// Another session couldn't mend this error, so it ends the call.
	var final error
	r, err := ask(ctx, q, func(s *recipe.Session) (R, error) {
		r, err := do(q.under(s))
		if errors.As(err, new(*UncertainError)) {
			final, err = err, nil
		}
		return r, err
	})
	return r, cmp.Or(err, q.recipe.Wrap(final))
}

// ask calls do in the current session, and again in the next session if the current session is
// lost.
func ask[T any](ctx context.Context, q *Queue, do func(*recipe.Session) (T, error)) (T, error) {
	v, err := recipe.AcrossSessions(ctx, q.recipe, do)
	return v, q.recipe.Wrap(err)
}
