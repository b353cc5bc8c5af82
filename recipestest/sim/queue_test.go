package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimQueue(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		bag := w.Bag("the queue")
		clients := w.Clients(2 + w.Rand.IntN(3))
		w.Watches = 2 * len(clients) // consumers go on watching the queue
		for _, c := range clients {
			u := &queueUser{Client: c, queue: queue.New(c.Client, w.Path), bag: bag}
			c.Go(func(ctx context.Context) error {
				for range 2 + c.Rand.IntN(8) {
					c.Sleep(ctx, c.Upto(w.Timeout/2))
					bound, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
					defer cancel()
					steps := []func(context.Context) error{u.offer, u.offer, u.offerAll, u.take, u.poll, u.pollN, u.reserve}
					if err := steps[c.Rand.IntN(len(steps))](bound); err != nil {
						return err
					}
				}

				return nil
			})
		}

		w.Finally("the queue is emptied", func(ctx context.Context) error { return drain(ctx, w, queue.New(clients[0].Client, w.Path), bag) })
	})
}

// Consumers race for a queue that is long enough for tickets.
func TestSimQueueRace(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		bag := w.Bag("the queue")
		producer := queue.New(w.Operator(), w.Path)
		var items [][]byte
		for i := range 40 + w.Rand.IntN(80) {
			item := fmt.Sprintf("entry %d", i)
			bag.Put(nil, item)
			items = append(items, []byte(item))
		}

		if _, err := producer.OfferAll(context.Background(), items); err != nil {
			w.Fatal(err)
		}

		clients := w.Clients(2 + w.Rand.IntN(3))
		w.Watches = 2 * (1 + len(clients))
		for _, c := range clients {
			u := &queueUser{Client: c, queue: queue.New(c.Client, w.Path), bag: bag}
			c.Go(func(ctx context.Context) error {
				for range 10 + c.Rand.IntN(len(items)/2) {
					if c.Rand.IntN(3) == 0 {
						c.Sleep(ctx, c.Upto(w.Timeout/8))
					}
					bound, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
					steps := []func(context.Context) error{u.poll, u.poll, u.poll, u.poll, u.poll, u.poll, u.poll, u.pollN, u.reserve}
					err := steps[c.Rand.IntN(len(steps))](bound)
					cancel()
					if err != nil {
						return err
					}
				}

				return nil
			})
		}

		w.Finally("the queue is emptied", func(ctx context.Context) error { return drain(ctx, w, producer, bag) })
	})
}

type queueUser struct {
	*sim.Client
	queue *queue.Queue
	bag   *sim.Bag
	made  int
}

func (u *queueUser) item() string {
	u.made++
	return fmt.Sprintf("%s's %d", u.Name, u.made)
}

// harmless returns err, or nil for errors that any call may return.
func harmless(err error) error {
	for _, ok := range []error{queue.ErrEmpty, context.DeadlineExceeded, protocol.ErrUncertain, protocol.ErrLost} {
		if errors.Is(err, ok) {
			return nil
		}
	}
	return err
}

func (u *queueUser) offer(ctx context.Context) error {
	item := u.item()
	_, err := u.queue.Offer(ctx, []byte(item))
	u.bag.Put(err, item)
	u.Note("offers %s: %v", item, err)
	return harmless(err)
}

func (u *queueUser) offerAll(ctx context.Context) error {
	items := []string{u.item(), u.item()}
	_, err := u.queue.OfferAll(ctx, [][]byte{[]byte(items[0]), []byte(items[1])})
	u.bag.Put(err, items...)
	u.Note("offers %s: %v", items, err)
	return harmless(err)
}

func (u *queueUser) take(ctx context.Context) error { return u.outOne(u.queue.Take(ctx)) }
func (u *queueUser) poll(ctx context.Context) error { return u.outOne(u.queue.Poll(ctx)) }
func (u *queueUser) pollN(ctx context.Context) error {
	return u.out(u.queue.PollN(ctx, 1+u.Rand.IntN(4)))
}

func (u *queueUser) outOne(data []byte, err error) error {
	if err != nil {
		return u.out(nil, err)
	}
	return u.out([][]byte{data}, nil)
}

func (u *queueUser) out(data [][]byte, err error) error {
	var unsure *queue.UncertainError
	if errors.As(err, &unsure) {
		data = unsure.Data
	}

	if err == nil || unsure != nil {
		for _, d := range data {
			u.bag.Out(err, string(d))
		}
	}

	u.Note("takes %s: %v", data, err)
	return harmless(err)
}

func (u *queueUser) reserve(ctx context.Context) error {
	it, err := u.queue.Reserve(ctx)
	if err != nil {
		return harmless(err)
	}

	item := string(it.Data())
	u.bag.Seen(item)
	u.Sleep(ctx, u.Spell())
	if u.Rand.IntN(3) == 0 {
		return harmless(it.Nack(context.WithoutCancel(ctx)))
	}

	err = it.Ack(context.WithoutCancel(ctx))
	u.bag.Out(err, item)
	u.Note("acknowledges %s: %v", item, err)
	return harmless(err)
}

// drain takes what is left when all other consumers have stopped.
func drain(ctx context.Context, w *sim.World, q *queue.Queue, bag *sim.Bag) error {
	for {
		data, err := q.Poll(ctx)
		switch {
		case err == nil:
			bag.Out(nil, string(data))
			continue
		case !errors.Is(err, queue.ErrEmpty):
			return err
		}
		if n, err := q.Len(ctx); err != nil || n == 0 {
			return err
		}
		select { // a reservation is being released
		case <-time.After(w.Timeout / 8):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
