package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// distributedQueue shows queue.Queue: a job that a crashed worker had reserved comes back to its
// place.
func distributedQueue(ctx context.Context, t *tour) (err error) {
	const jobs = 6
	path := t.root + "/queue"
	t.say("  %d jobs are offered in one transaction. Three workers reserve one each; one of them crashes\n"+
		"  before it acknowledges its own.\n", jobs)
	var items [][]byte
	for i := range jobs {
		items = append(items, fmt.Appendf(nil, "job %d", i+1))
	}

	ids, err := queue.New(t.guide, path).OfferAll(ctx, items)
	if err != nil {
		return err
	}

	t.tell("a producer", "offers", fmt.Sprintf("%s to %s", ids[0], ids[jobs-1]))

	var clients []*protocol.Client
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()

	var queues []*queue.Queue
	var reserved []*queue.Item
	for i := range 3 {
		c, err := t.connect(ctx)
		if err != nil {
			return err
		}
		clients, queues = append(clients, c), append(queues, queue.New(c, path))
		item, err := reserve(ctx, t, i, queues[i])
		if err != nil {
			return err
		}
		reserved = append(reserved, item)
	}

	if err := clients[1].Close(); err != nil {
		return err
	}

	t.tell(name(1), "crashes", "its session ends, and its job is free again")
	if err := acknowledge(ctx, t, 0, reserved[0]); err != nil {
		return err
	}

	// A Queue value that was in use may still take job 2 for reserved, and skip it for a moment.
	again, err := reserve(ctx, t, 0, queue.New(clients[0], path))
	if err != nil {
		return err
	}

	if string(again.Data()) != "job 2" || again.Attempt() != 2 {
		return fmt.Errorf("%s was reserved, at attempt %d", again.Data(), again.Attempt())
	}

	if err := errors.Join(acknowledge(ctx, t, 0, again), acknowledge(ctx, t, 2, reserved[2])); err != nil {
		return err
	}

	rest, err := queues[2].PollN(ctx, jobs)
	if err != nil {
		return err
	}

	t.tell(name(2), "takes", fmt.Sprintf("%s to %s at once", rest[0], rest[len(rest)-1]))
	if n, err := queues[2].Len(ctx); n > 0 || len(rest) != jobs-3 || err != nil {
		return errors.Join(err, fmt.Errorf("%d jobs were taken at once, %d are left", len(rest), n))
	}

	t.say("\n  No job was lost, and none was acknowledged twice.")
	return nil
}

func reserve(ctx context.Context, t *tour, worker int, q *queue.Queue) (*queue.Item, error) {
	item, err := q.Reserve(ctx)
	if err == nil {
		t.tell(name(worker), "reserves", fmt.Sprintf("%s, attempt %d", item.Data(), item.Attempt()))
	}
	return item, err
}

func acknowledge(ctx context.Context, t *tour, worker int, item *queue.Item) error {
	if err := item.Ack(ctx); err != nil {
		return err
	}
	t.tell(name(worker), "acknowledges", string(item.Data()))
	return nil
}
