package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A perSession is what the queues of one client at a path have under one session: a consumer that
// serves all removals and reservations, and a settler of what was reserved. Queues that offer in
// the same way also share a [producer].
type perSession struct {
	queue   *Queue // one of them
	recipe  *protocol.Recipe
	session *protocol.Session
	path    string // of the queue
	records string // of its register
	dir     string // the queue's path, absolute

	priorities bool

	consumer *consumer
	settler  *settler
	budget   *budget
	claims   atomic.Int64
}

// report reports what has happened to this many entries, of any number of callers.
func (p *perSession) report(kind protocol.EventKind, n int, err error) {
	p.recipe.Report(protocol.Event{Kind: kind, Session: p.session.ID(), Count: n, Err: err})
}

func (p *perSession) holdsItems() bool { return p.claims.Load() > 0 }

func (p *perSession) names(children []string) []name { return p.queue.names(children) }

// A sharing says which queues of a client share what they have under a session.
type sharing struct {
	path       string
	priorities bool
}

// An offering says which of these share a producer.
type offering struct {
	sharing
	maxLength int
	retention time.Duration
}

// under returns what q has under s, the current session.
func (q *Queue) under(s *protocol.Session) *producer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil || q.current.session != s {
		budget, shared := budgetOf(s), sharing{q.path, q.priorities}
		under := protocol.Shared(s, shared, func() *perSession {
			p := &perSession{
				queue: q, session: s, recipe: q.recipe, priorities: q.priorities, budget: budget,
				path: q.path, records: q.path + recordsNode, dir: s.Path(q.path),
			}
			p.consumer, p.settler = newConsumer(p), newSettler(p)
			return p
		})
		q.current = protocol.Shared(s, offering{shared, q.maxLength, q.retention}, func() *producer {
			return newProducer(under, q)
		})
	}
	return q.current
}

// across calls ask under the current session. If the session is lost with nothing done, ask is
// called again under the next one.
func across[R any](ctx context.Context, q *Queue, ask func(*producer) (R, error)) (R, error) {
	var final error // which another session would not mend
	r, err := protocol.AcrossSessions(ctx, q.recipe, func(s *protocol.Session) (R, error) {
		r, err := ask(q.under(s))
		if errors.Is(err, protocol.ErrUncertain) {
			final, err = err, nil
		}
		return r, err
	})
	if err == nil {
		err = final
	}
	return r, q.recipe.Wrap(err)
}

// Start runs the goroutine of a batcher, and Err returns why the session is over: p is a
// [batch.Host].
func (p *perSession) Start(work func(life context.Context)) error {
	if !p.session.Go(work) {
		return protocol.ErrClosed
	}
	return nil
}

func (p *perSession) Err() error { return p.session.Err() }

// limits are those of a transaction that serves several requests. One that serves a single request
// may be as large as servers take, unless a server seems to take less.
var limits = batch.Limits{Count: maxOps, Bytes: 128 << 10, Alone: protocol.MaxData}

const maxOps = 1000

// returned returns a batch that was not executed. One that was not answered may have been too
// large: a server with a small jute.maxbuffer cuts the connection instead of answering. The next
// one is half as large, for a while, as the connection may have died of something else.
func returned[R batch.Requester](b *batch.Batcher[R], requests []R, unanswered bool) {
	if unanswered {
		b.Shrink()
	}
	b.Return(requests)
}
