package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// Offer appends an entry and returns its ID, which is the name of its node. It blocks until the
// server has answered. If the session is lost before anything was sent, Offer goes on in the next
// one. Offers of several goroutines share round trips. Those of a goroutine that waits for each are
// kept in order.
//
// An Offer that returns nil has appended one entry. Its ID is empty if the server's answer was
// lost. If ctx ends before anything was sent, Offer returns ctx's error and nothing happens.
//
// If the session is lost with the answer, or ctx ends more than a moment (50 ms) before it comes,
// Offer returns an [UncertainError], which wraps [protocol.ErrUncertain]: there may be one entry,
// or none, never two. It returns that also if an operator has deleted the queue's records
// meanwhile. [Queue.OfferKey] can settle that. Other errors wrap [ErrFull], [protocol.ErrTooLarge],
// [protocol.ErrSequenceExhausted], [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's
// own. Nothing was appended then.
//
// data must not be changed before Offer returns, nor after it has returned an UncertainError.
func (q *Queue) Offer(ctx context.Context, data []byte) (id string, err error) {
	return q.offerOne(ctx, offer{prefix: q.prefix(defaultPriority)}, data)
}

// OfferAll appends entries, one right behind the other, in one transaction: all of them or none. It
// blocks, and returns errors, as [Queue.Offer] does. ids is nil where that would return an empty
// ID.
//
// Together the entries have to fit into one request. The sizes of their data and, for each, of the
// queue's path and about a hundred bytes more may add up to [protocol.MaxData]. Otherwise OfferAll
// returns [protocol.ErrTooLarge] before it sends anything. It also returns that if the request gets
// larger than any server takes for another reason: a chroot, or a long ACL.
//
// A server whose jute.maxbuffer is smaller refuses a request by ending the connection. Once it has
// done so twice, OfferAll returns the same error with the limit that the server seems to have.
func (q *Queue) OfferAll(ctx context.Context, items [][]byte) (ids []string, err error) {
	if len(items) == 0 {
		return nil, q.recipe.Wrap(q.recipe.Validate(nil))
	}
	return q.offer(ctx, offer{prefix: q.prefix(defaultPriority), items: items})
}

// OfferAfter is [Queue.Offer] of an entry that is not delivered before d has passed, by this
// process's clock. Consumers go by theirs. Its node is called item-… instead of qn-…, so other
// libraries do not see it. If d is negative, OfferAfter returns an error and does no I/O.
func (q *Queue) OfferAfter(ctx context.Context, d time.Duration, data []byte) (id string, err error) {
	if d < 0 {
		return "", q.recipe.Wrap(fmt.Errorf("OfferAfter with a negative delay: %v", d))
	}
	now := time.Now()
	noted := notes{due: now.Add(d).UnixMilli(), since: now.UnixMilli()}
	return q.offerOne(ctx, offer{prefix: noted.prefix(defaultPriority)}, data)
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

// prefix returns what a new entry is called before its sequence number.
func (q *Queue) prefix(priority int) string {
	if q.priorities {
		return fmt.Sprintf("%s-%03d-", priorityPrefix, priority)
	}
	return plainPrefix + "-"
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
	if len(o.items) > 1 {
		size := protocol.MultiSize(q.creates(q.path, &o)...)
		if size > protocol.MaxData {
			err := fmt.Errorf("%w: %d bytes, and %d are the limit", protocol.ErrTooLarge, size, protocol.MaxData)
			return nil, q.recipe.Wrap(err)
		}
	}

	done, err := across(ctx, q, func(p *producer) (*offer, error) {
		attempt := o
		return &attempt, p.offers.Do(ctx, &attempt)
	})
	if err != nil {
		if !errors.As(err, new(*UncertainError)) && errors.Is(err, protocol.ErrUncertain) {
			err = &UncertainError{Data: o.items, Err: err}
		}
		return nil, err
	}
	return done.ids, nil
}

// An offer is what a call asks for: entries that are appended together.
type offer struct {
	batch.Request
	prefix string // of the entries' names
	key    string // of a single entry; empty if it has none
	items  [][]byte
	ids    []string // the outcome; nil if they are not known

	at, operations int // in the transaction
}

// creates returns the operations that append an offer's entries below the absolute path dir, and
// remember its key.
func (q *Queue) creates(dir string, o *offer) (ops []any) {
	for _, data := range o.items {
		ops = append(ops, &zk.CreateRequest{
			Path: dir + "/" + o.prefix, Data: data, Acl: q.recipe.ACL(q.path + "/" + o.prefix), Flags: zk.FlagSequence,
		})
	}
	if o.key != "" {
		ops = append(ops, &zk.CreateRequest{Path: dir + keyPath(o.key), Acl: q.recipe.ACL(q.path + keyPath(o.key))})
	}
	return ops
}

// Producers are what offers need of a queue, whatever the session.
type producers struct {
	maxLength int           // 0: unbounded
	retention time.Duration // of keys
	turns     *line.Line    // of the producers that have collided
	room      *line.Line    // of those that wait for room
	waiting   chan struct{} // held by the one of ours in that line, and by those that follow in turn
	ahead     []name        // the first entries, as of a listing; of the one that holds waiting
}

func newProducers(offering *protocol.Recipe) producers {
	return producers{
		retention: keyRetention,
		turns:     line.New(offering, line.Kind{Name: turnKind, Exclusive: true}),
		room:      line.New(offering, line.Kind{Name: roomKind, Exclusive: true}),
		waiting:   make(chan struct{}, 1),
	}
}

// A producer creates entries under one session. Offers that arrive while a transaction is under way
// go with the next one. There is one at a time, which keeps the order of each caller's entries.
type producer struct {
	*perSession
	queue   *Queue // one of those that share it
	offers  *batch.Batcher[*offer]
	receipt receipt
	next    int64 // the number of the next entry, or more by now; negative before the first look
	bound   bound
	swept   time.Time // when keys were looked through
}

func newProducer(p *perSession, q *Queue) *producer {
	producer := &producer{perSession: p, queue: q, next: -1}
	producer.receipt = receipt{session: p.session, prefix: p.path + receiptsNode + "/offer-"}
	producer.offers = batch.New(p, limits, producer.serve, func(_ *offer, cause error) error {
		return uncertain(cause)
	})
	return producer
}

// serve sends one transaction after the other, while there are offers.
func (p *producer) serve(life context.Context) {
	for pending := range p.offers.Rounds() {
		if err := p.prepare(life); err != nil {
			p.fail(err, pending...)
		} else if p.admit(life, pending) {
			p.send(life)
		}
		p.linger(life)
	}
	p.endTurn(life)
	p.receipt.rest()
}

// fail answers offers with an error. If the session is over the next one may do better.
func (p *producer) fail(err error, offers ...*offer) {
	if over := p.session.Err(); over != nil && !errors.Is(err, protocol.ErrUncertain) {
		err = over
	}
	p.offers.Answer(err, offers...)
}

// prepare makes sure that there are a receipt, and a queue with it, and that the next number is
// known.
func (p *producer) prepare(life context.Context) error {
	for {
		created, err := p.receipt.use(life)
		if errors.Is(err, zk.ErrNoNode) {
			if _, err = p.session.EnsurePath(life, p.queue.path+receiptsNode); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}

		if created {
			p.bound.forget()
		}
		if p.next < 0 {
			return p.look(life)
		}
		return nil
	}
}

// look reads how long the queue is, and which number comes next: its Stat counts creations and
// deletions together. Its answer is as of a moment after the call.
func (p *producer) look(life context.Context) error {
	if err := p.session.Sync(life, p.queue.path); err != nil {
		return err
	}
	return p.glance(life)
}

// glance is look at what the server knows, which may be out of date.
func (p *producer) glance(life context.Context) error {
	if err := p.readVersion(life); err != nil {
		return err
	}
	stat, err := p.session.Exists(life, p.queue.path)
	if err != nil {
		return err
	}
	if stat == nil { // the next transaction finds that out, too
		p.next = -1
		return nil
	}
	p.next = int64(nextNumber(stat))
	p.bound.read(int(stat.NumChildren) - 1) // the node of the records is no entry
	return nil
}

// admit answers the offers for which there is no room, or no number. It reports whether the first
// one may be sent.
func (p *producer) admit(life context.Context, pending []*offer) bool {
	first := pending[0]
	exhausted := func() bool { return p.next+int64(len(first.items)) > lastSequence }
	if exhausted() { // unless the queue has begun again
		if err := p.look(life); err != nil {
			p.fail(err, first)
			return false
		}
	}
	if exhausted() {
		p.fail(fmt.Errorf("%w: the next number is %d, and %d is the last; drain the queue and delete its node "+
			"while no client uses it, or use another path",
			protocol.ErrSequenceExhausted, p.next, int64(lastSequence)), first)
		return false
	}
	if p.queue.maxLength == 0 {
		return true
	}

	full, err := p.admitBounded(life, pending)
	if err != nil {
		p.fail(err, first)
	}
	return err == nil && !full
}

// send appends the entries of the pending offers, as many as fit into one transaction.
func (p *producer) send(life context.Context) {
	var sent []*offer
	done, err := p.receipt.transact(life, func() (ops []any) {
		sent, ops = p.load()
		return ops
	}, func(unanswered bool) { returned(p.offers, sent, unanswered) })

	culprit := culprit(sent, done.failed(err))
	switch {
	case err == nil:
		p.deliver(sent, done)
	case errors.Is(err, errNothingToDo):
	case errors.Is(err, protocol.ErrUncertain):
		p.bound.forget()
		for _, o := range sent {
			p.offers.Answer(&UncertainError{Data: o.items, Err: err}, o)
		}
	case errors.Is(err, errNoReceipt): // and nothing was executed
		p.bound.forget()
	case errors.Is(err, protocol.ErrTooLarge) && len(sent) > 1:
		returned(p.offers, sent, true) // each of them may do alone
	case errors.Is(err, zk.ErrBadVersion):
		p.report(protocol.EventCollided, len(sent), err)
		p.bound.collide()
	case errors.Is(err, zk.ErrNoNode):
		if culprit != nil {
			sent = []*offer{culprit}
		}
		if err := p.recreate(life, culprit != nil); err != nil {
			p.fail(err, sent...)
		}
	case culprit != nil && errors.Is(err, zk.ErrNodeExists):
		p.offers.Answer(nil, culprit) // its key was offered before
	case culprit != nil:
		p.fail(err, culprit)
	case sent == nil:
		p.fail(err, p.offers.Pending()...)
	default:
		p.fail(err, sent...)
	}
}

// load collects the offers of the next transaction, and returns its operations.
func (p *producer) load() (offers []*offer, ops []any) {
	most, n, rings := p.queue.maxLength, 0, false
	keys := make(map[string]bool)
	offers = p.offers.Collect(func(o *offer, room *batch.Room) bool {
		creates := p.queue.creates(p.dir, o)
		switch {
		case most > 0 && p.bound.length+n+len(o.items) > most:
			return false
		case n > 0 && p.next+int64(n+len(o.items)) > lastSequence:
			return false
		case keys[o.key]: // the first one may fail
			return false
		case !room.Take(len(creates), protocol.MultiSize(creates...)):
			return false
		}

		o.at, o.operations = len(ops), len(creates)
		ops = append(ops, creates...)
		n += len(o.items)
		rings = rings || o.prefix != plainPrefix+"-"
		if o.key != "" {
			keys[o.key] = true
		}
		return true
	})

	if most > 0 && ops != nil {
		ops = append(ops, p.bound.check(p.dir, most-n))
	}
	if rings {
		ops = append(ops, ring(p.session, p.queue.path, ""))
	}
	return offers, ops
}

// culprit returns the offer whose key could not be remembered, if that is the operation which has
// failed. All other operations fail, or not, for all offers.
func culprit(sent []*offer, failed int) *offer {
	for _, o := range sent {
		if o.key != "" && failed == o.at+o.operations-1 {
			return o
		}
	}
	return nil
}

// recreate creates what offers need in the tree, and is not there any more.
func (p *producer) recreate(life context.Context, keys bool) error {
	p.bound.forget()
	p.next = -1
	_, err := p.session.EnsurePath(life, p.queue.path+receiptsNode)
	if err == nil && keys {
		err = p.createKeys(life)
	}
	return err
}

// deliver answers offers whose entries were appended, with the entries' IDs unless the server's
// answer was lost.
func (p *producer) deliver(sent []*offer, done result) {
	n, keyed := 0, false
	for _, o := range sent {
		n += len(o.items)
		keyed = keyed || o.key != ""
		if done.answers == nil {
			continue
		}
		for _, a := range done.answers[o.at:][:len(o.items)] {
			o.ids = append(o.ids, path.Base(a.String))
		}
	}
	p.report(protocol.EventOffered, n, nil)
	p.offers.Answer(nil, sent...)

	p.next += int64(n)
	if done.answers == nil {
		p.bound.forget()
		return
	}
	last := sent[len(sent)-1]
	if latest, ok := parseName(last.ids[len(last.ids)-1], true); ok {
		p.next = int64(latest.sequence) + 1
	}
	if p.queue.maxLength > 0 {
		p.bound.appended(n, done.answers[last.at+last.operations].Stat)
	}
	if keyed {
		p.sweep(done.answers[len(done.answers)-1].Stat.Mtime)
	}
}
