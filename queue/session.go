package queue

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A perSession is what a queue has under one session: a producer that serves all offers, a consumer
// that serves all removals and reservations, and the receipts of both.
type perSession struct {
	queue    *Queue
	session  *protocol.Session
	dir      string // absolute path of the queue
	receipts *receipts
	producer *producer
	consumer *consumer
}

// under returns what q has under s, the current session.
func (q *Queue) under(s *protocol.Session) *perSession {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil || q.current.session != s {
		p := &perSession{queue: q, session: s, dir: s.Path(q.path)}
		p.receipts = &receipts{session: s, path: q.path + receiptsSuffix, acl: q.recipe.ACL()}
		p.producer, p.consumer = newProducer(p), newConsumer(p)
		q.current = p
	}
	return q.current
}

// across calls ask under the current session. If the session is lost with nothing done, ask is
// called again under the next one.
func across[R any](ctx context.Context, q *Queue, ask func(*perSession) (R, error)) (R, error) {
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
