package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// distributedQueue shows queue.Queue: the job of a worker that crashes is done by another one.
func distributedQueue(ctx context.Context, t *tour) error {
	const jobs = 6
	path := t.root + "/queue"
	t.say("  %d jobs are offered in one transaction. A worker reserves the first one, and crashes before it\n"+
		"  acknowledges it. Two others do what there is.\n", jobs)
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
			c.Close()
		}
	}()
	for range 3 {
		c, err := t.connect(ctx)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}

	item, err := queue.New(clients[0], path).Reserve(ctx)
	if err != nil {
		return err
	}
	t.tell(name(0), "reserves", fmt.Sprintf("%s, attempt %d", item.Data(), item.Attempt()))
	clients[0].Close()
	t.tell(name(0), "crashes", "its session ends, and its job is free again")

	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	for i := 1; i <= 2; i++ {
		go func() {
			ended <- queue.New(clients[i], path).Consume(working, 1, func(_ context.Context, item *queue.Item) error {
				t.tell(name(i), "does", fmt.Sprintf("%s, attempt %d", item.Data(), item.Attempt()))
				return nil
			})
		}()
	}

	err = queue.New(t.guide, path).Drained(ctx)
	stop()
	for range 2 {
		if failed := <-ended; !errors.Is(failed, context.Canceled) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	t.say("\n  No job was lost, and none was acknowledged twice.")
	return nil
}
