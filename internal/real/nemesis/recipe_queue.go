package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

func queueWork(w *worker) workload {
	u := queueUser{w, queue.New(w.client, w.Path)}
	return workload{step: func() error {
		// Half of the time one client only offers. If replies are lost then, an offer is probably
		// under way.
		kinds := 10
		if w.Client == 0 && w.now()/Stamp(2*w.Timeout)%2 == 0 {
			kinds = 4
		}
		switch n := rand.IntN(kinds); {
		case w.proves:
			if err := u.offer(1); err != nil {
				return err
			}
			return ignoring(u.take(u.queue.Poll), queue.ErrEmpty) // other processes may take it
		case n < 3:
			return u.offer(1)
		case n < 4:
			return u.offer(2 + rand.IntN(3))
		case n < 6:
			return u.take(u.queue.Take)
		case n < 7:
			return u.take(u.queue.Poll)
		}
		return u.reserve()
	}}
}

type queueUser struct {
	*worker
	queue *queue.Queue
}

// offer offers n elements (several in one transaction). Their names are unique.
func (u queueUser) offer(n int) error {
	ctx, cancel := u.effect()
	defer cancel()
	o := u.call("offer", "")
	var items [][]byte
	for i := range n {
		o.Members = append(o.Members, fmt.Sprintf("%d-%d-%d-%d", o.Client, o.Life, o.ID, i))
		items = append(items, []byte(o.Members[i]))
	}
	u.tell(o) // before anything is sent
	_, err := u.queue.OfferAll(ctx, items)
	return u.returns(o, err, unlessCertain(err))
}

// take takes an element for good.
func (u queueUser) take(take func(context.Context) ([]byte, error)) error {
	ctx, cancel := u.wait()
	defer cancel()
	o := u.call("take", "")
	data, err := take(ctx)
	if data != nil {
		o.Members = []string{string(data)}
	}
	return u.returns(o, err, unlessCertain(err))
}

// reserve reserves an element and keeps it for a while. Then it acknowledges it, or gives it back.
func (u queueUser) reserve() error {
	o, item, err := acquire(u.worker, "reserve", u.queue.Reserve)
	if err != nil {
		return err
	}

	o.Value = string(item.Data())
	u.hold(o, item, u.spell(), false)
	if u.chance(4) {
		_, err := u.release(o, item, func(ctx context.Context) error { return item.Nack(ctx) })
		return err
	}

	// If ctx ends, an Ack goes on in the background.
	ctx, cancel := u.effect()
	defer cancel()
	ack := u.call("ack", o.Value)
	err = item.Ack(ctx)
	o.Over = u.now()
	u.tell(o)
	outcome := unlessCertain(err)
	if ctx.Err() != nil {
		outcome = Unknown
	}

	return u.returns(ack, err, outcome)
}

// unlessCertain returns the outcome of a call with this error.
func unlessCertain(err error) Outcome {
	if errors.Is(err, protocol.ErrUncertain) {
		return Unknown
	}
	return Failed
}

// drain empties the queue when all processes rest, and adds the elements to the history.
func drain(ctx context.Context, c *protocol.Client, path string, now func() Stamp) ([]*Op, error) {
	q := queue.New(c, path)
	var ops []*Op
	for {
		o := &Op{Recipe: "queue", Client: -1, ID: len(ops) + 1, Kind: "drain", Call: now()}
		data, err := q.Poll(ctx)
		if errors.Is(err, queue.ErrEmpty) {
			return ops, nil
		}
		if err != nil && data == nil {
			return ops, err
		}
		o.Return, o.Outcome, o.Members = now(), OK, []string{string(data)}
		// Poll can have the data without knowing whether the entry is gone.
		if err != nil {
			o.Outcome, o.Error = unlessCertain(err), err.Error()
		}
		ops = append(ops, o)
	}
}
