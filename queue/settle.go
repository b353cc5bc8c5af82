package queue

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A settlement is the request of an Ack or a Nack: operations of which the first deletes a claim.
type settlement struct {
	batch.Request
	life context.Context // the work of the caller
	ops  []any
}

// A settler ends claims of one session. Settlements that arrive while a transaction is under way go
// with the next one.
type settler struct {
	*perSession
	settlements *batch.Batcher[*settlement]
	receipt     receipt
}

func newSettler(p *perSession) *settler {
	s := &settler{perSession: p}
	s.receipt.session, s.receipt.prefix = p.session, p.queue.path+receiptsNode+"/item-"
	s.settlements = batch.New(p, limits, s.serve, func(_ *settlement, cause error) error {
		return uncertain(cause)
	})
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

// settle blocks until a claim was deleted and more was done, all or nothing. An operation that
// fails is told by [refusedAt]. The deletion of the claim is operation 0.
func (s *settler) settle(life context.Context, c *claim, more ...any) error {
	claimed := &zk.DeleteRequest{Path: s.session.Path(s.pathOf(c)), Version: -1}
	return s.settlements.Do(life, &settlement{life: life, ops: append([]any{claimed}, more...)})
}

// serve sends one transaction after the other, while there are settlements. If the view's back-off
// ends, the callers that wait return, and the work goes on.
func (s *settler) serve(life context.Context) {
	for range s.settlements.Rounds() {
		over := make(chan struct{})
		_, err := protocol.Detach(life, s.session, func(life context.Context) (struct{}, error) {
			defer close(over)
			s.round(life)
			return struct{}{}, nil
		}, nil)

		if err == protocol.ErrClosed {
			continue // nothing was begun, and Rounds ends
		}
		if err != nil && life.Err() == nil {
			for _, r := range s.settlements.Pending() {
				protocol.LetGo(r.life, err)
			}
		}
		<-over
	}
}

// round sends the pending settlements, as many as fit into one transaction. Those that were not
// executed stay pending.
func (s *settler) round(life context.Context) {
	if err := s.useReceipt(life); err != nil {
		s.settlements.Answer(err, s.settlements.Pending()...)
		return
	}
	defer s.receipt.rest()

	var sent []*settlement
	done, err := s.receipt.transact(life, func() (ops []any) {
		sent = s.settlements.Collect(func(r *settlement, room *batch.Room) bool {
			return room.Take(1, protocol.MultiSize(r.ops...))
		})
		for _, r := range sent {
			ops = append(ops, r.ops...)
		}
		return ops
	}, func(unanswered bool) { returned(s.settlements, sent, unanswered) })

	switch failed := done.failed(err); {
	case err == nil, errors.Is(err, protocol.ErrUncertain):
		s.settlements.Answer(err, sent...)
	case errors.Is(err, errNothingToDo), errors.Is(err, errNoReceipt), s.session.Err() != nil:
	case errors.Is(err, protocol.ErrTooLarge) && len(sent) > 1:
		s.settlements.Shrink() // each of them may do alone
	case failed < 0:
		s.settlements.Answer(err, sent...)
	default:
		i := slices.IndexFunc(sent, func(r *settlement) bool {
			failed -= len(r.ops)
			return failed < 0
		})
		if i < 0 { // it is the receipt's
			s.receipt.discard()
			s.settlements.Answer(err, sent...)
			return
		}
		r := sent[i]
		failed += len(r.ops)
		if s.ringsHere(r.ops[failed]) && errors.Is(err, zk.ErrNoNode) {
			s.receipt.discard() // it was below the register, and is gone with it
		} else {
			s.settlements.Answer(&refusal{failed, err}, r)
		}
	}
}

// ringsHere reports whether an operation writes to the register of this queue.
func (s *settler) ringsHere(op any) bool {
	set, ok := op.(*zk.SetDataRequest)
	return ok && set.Path == s.dir+recordsNode
}

// useReceipt makes sure that there is a receipt, and what it is created below.
func (s *settler) useReceipt(life context.Context) error {
	for {
		_, err := s.receipt.use(life)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.queue.createRecords(life, s.session); err != nil {
			return err
		}
	}
}

// createRecords creates the queue's node and the nodes of its records, where they are missing.
func (q *Queue) createRecords(life context.Context, s *protocol.Session) error {
	_, err := s.EnsurePath(life, q.path+receiptsNode)
	return err
}
