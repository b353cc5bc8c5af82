package queue

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A claim is an entry that a consumer has reserved: in one transaction the entry was deleted, and
// created again below the node held, in its consumer's directory, under a name that is never used
// again. So the queue's children are the entries that nobody has, whatever is done to a claim hits no
// other one, and whether a transaction about it was executed shows in whether it is there. Once its
// consumer's presence is gone, any other consumer puts the entry back.
type claim struct {
	record layout.Record
	data   []byte
	counts bool   // as an attempt, if its consumer dies
	node   string // below the queue's path
	token  int64  // the number of the transaction
}

// before is the record as it was before the claim.
func (c *claim) before() layout.Record {
	r := c.record
	if c.counts {
		r.Attempts--
	}
	return r
}

// unique is a part of the claim's name that is no other claim's.
func (c *claim) unique() string {
	number, _, _ := strings.Cut(path.Base(c.node), ",")
	return path.Base(path.Dir(c.node)) + "-" + number
}

// A settlement is the request to end claims and to do more: operations of which the first are about
// these claims.
type settlement struct {
	batch.Request
	session *protocol.Session // for the work of the caller
	claims  []*claim
	ops     []any
}

// A settler ends claims of one session. Settlements that arrive while a transaction is under way go
// with the next one.
type settler struct {
	*site
	presence    presence
	settlements *batch.Batcher[*settlement]
	receipt     receipt
}

func newSettler(p *site) *settler {
	s := &settler{site: p, presence: presence{site: p, dir: consumersNode, consumes: true, lock: newGate()}}
	s.settlements = batch.New(p, p.limits(), s.serve, func(_ *settlement, cause error) error { return uncertain(cause) })
	return s
}

// A refusal is the error of one operation of a settlement. Nothing of the settlement was executed.
type refusal struct {
	operation int
	error
}

func (r *refusal) Unwrap() error { return r.error }

// refusedAt returns the operation that a settlement died of, or -1.
func refusedAt(err error) int {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.operation
	}
	return -1
}

// claimGone reports whether a settlement of one claim has failed because that was deleted.
func claimGone(err error) bool { return refusedAt(err) == 0 && errors.Is(err, zk.ErrNoNode) }

// settle blocks until claims have ended and more was done, all or nothing. [refusedAt] tells which
// operation has failed.
func (s *settler) settle(ctx context.Context, work *protocol.Session, claims []*claim, more ...any) error {
	ops := make([]any, 0, len(claims)+len(more))
	for _, c := range claims {
		ops = append(ops, s.deletion(work, c.node, -1))
	}
	return s.settlements.Do(ctx, &settlement{session: work, claims: claims, ops: append(ops, more...)})
}

// serve sends one transaction after the other, while there are settlements. If the view's back-off
// ends, the callers that wait return, and the work goes on.
func (s *settler) serve(life context.Context) {
	for range s.settlements.Rounds() {
		over := make(chan struct{})
		_, err := protocol.Detach(life, s.session, func(life context.Context, work *protocol.Session) (struct{}, error) {
			defer close(over)
			s.round(life, work)
			return struct{}{}, nil
		}, nil)

		if err == protocol.ErrClosed {
			continue // nothing was begun, and Rounds ends
		}
		if err != nil && life.Err() == nil {
			for _, r := range s.settlements.Pending() {
				r.session.LetGo(err)
			}
		}
		<-over
	}
	s.presence.rest()
}

// round sends the pending settlements, as many as fit into one transaction. Those that were not
// executed stay pending.
func (s *settler) round(life context.Context, work *protocol.Session) {
	node, err := s.presence.use(life, work)
	if err == nil && (node != s.receipt.node || s.receipt.doubt) {
		err = s.receipt.begin(life, work, node)
	}
	var sent []*settlement
	operations := 0
	collect := func() (ops []any) {
		sent = s.settlements.Collect(func(r *settlement, room *batch.Room) bool {
			return room.Take(len(r.ops), protocol.MultiSize(r.ops...))
		})
		for _, r := range sent {
			ops = append(ops, r.ops...)
		}
		operations = len(ops)
		return ops
	}
	undone := func() { s.settlements.Return(sent) }
	var done result
	if err == nil {
		done, err = s.receipt.transact(life, work, collect, undone)
	}
	if errors.Is(err, protocol.ErrQuotaExceeded) && (operations == 0 || done.failed(err) == operations) {
		// Only deletions are possible now. The claims are gone if a transaction was executed.
		done, err = transact(life, work, collect, undone, func(ctx context.Context) (bool, error) {
			stat, err := work.Exists(ctx, s.path+sent[0].claims[0].node)
			return stat == nil, err
		})
	}

	if sent == nil {
		sent = s.settlements.Pending()
	}
	failed := done.failed(err)
	switch {
	case err == nil, errors.Is(err, protocol.ErrUncertain):
		s.settlements.Answer(err, sent...)
	case errors.Is(err, errNoReceipt):
		s.presence.discard()
	case errors.Is(err, errNothingToDo), s.session.Err() != nil:
	case failed < 0, failed >= operations:
		s.settlements.Answer(err, sent...)
	default:
		i := slices.IndexFunc(sent, func(r *settlement) bool {
			failed -= len(r.ops)
			return failed < 0
		})
		s.settlements.Answer(&refusal{failed + len(sent[i].ops), err}, sent[i])
	}
}

// putBack moves the entry of a claim.
func (s *settler) putBack(ctx context.Context, work *protocol.Session, c *claim, to *place, m move) error {
	err := to.relocate(ctx, work, m, func(ops []any) (int, error) {
		err := s.settle(ctx, work, []*claim{c}, ops...)
		return refusedAt(err) - 1, err
	})
	s.returned.Store(true)
	return err
}

// letGo puts claims back, in the background, that were not handed over. The next round waits for the
// first attempt.
func (s *settler) letGo(claims ...*claim) {
	for _, c := range claims {
		s.coming.Add(1)
		s.session.Go(func(life context.Context, work *protocol.Session) {
			s.giveUp(life, work, c, c.before(), func() {
				s.coming.Add(-1)
				select {
				case s.came <- struct{}{}:
				default:
				}
			})
		})
	}
}

const firstPause = 10 * time.Millisecond

// giveUp puts the entry of a claim back to its place, until that succeeds, the claim is gone or the
// session is over. It calls tried after the first attempt.
func (s *settler) giveUp(life context.Context, work *protocol.Session, c *claim, record layout.Record, tried func()) {
	defer s.claims.Add(-1)
	for pause := firstPause; life.Err() == nil; pause = min(2*pause, time.Minute) {
		err := s.putBack(life, work, c, &s.place, move{record: record, data: c.data})
		if pause == firstPause {
			tried()
		}
		if err == nil || claimGone(err) || s.session.Err() != nil {
			return
		}
		work.LetGo(err)
		if pause == firstPause {
			s.recipe.Logger().Warn("queue entry not put back yet", "path", s.path, "id", c.record.ID, "error", err)
		}
		wait(life, pause)
	}
}
