package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// sessionTimeout decides how soon what is held is lost without servers.
const sessionTimeout = 4 * time.Second

// A worker has a client of its own, as a process of its own would.
type worker struct {
	name   string
	client *protocol.Client
	leader *election.Election
	tasks  *queue.Queue
	dead   *queue.Queue
}

func newWorker(ctx context.Context, name, servers string, m *metrics, observer protocol.Observer) (*worker, error) {
	c, err := protocol.Connect(ctx, servers, protocol.WithSessionTimeout(sessionTimeout), protocol.WithObserver(observer))
	if err != nil {
		return nil, err
	}
	if _, err := m.ObserveClient(c, attribute.String("client", name)); err != nil {
		return nil, err
	}

	w := &worker{name: name, client: c, leader: election.New(c, "/demo/leader")}
	w.dead = queue.New(c, "/demo/dead")
	w.tasks = queue.New(c, "/demo/tasks", queue.WithDeadLetter(w.dead, 2),
		queue.WithRetryDelay(func(int) time.Duration { return 100 * time.Millisecond }))
	return w, nil
}

// work does what the metrics are about, until ctx ends. A lost session is no reason to stop.
func (w *worker) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	jobs := []func(context.Context) error{w.contend, w.lead, w.consume}
	ended := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() { ended <- job(ctx) }()
	}

	var failed error
	for range jobs {
		err := <-ended
		if err != nil && ctx.Err() == nil {
			failed = fmt.Errorf("%s: %w", w.name, err)
		}
		stop()
	}
	return failed
}

// contend holds a lock for a moment, again and again.
func (w *worker) contend(ctx context.Context) error {
	m := lock.New(w.client, "/demo/lock")
	for ctx.Err() == nil {
		err := m.Do(ctx, func(ctx context.Context, _ *lock.Lease) error { return pause(ctx, 20*time.Millisecond) })
		if err != nil && !errors.Is(err, protocol.ErrLost) {
			return err
		}
	}
	return nil
}

// lead leads until the term is lost.
func (w *worker) lead(ctx context.Context) error {
	return w.leader.Run(ctx, []byte(w.name), func(ctx context.Context, _ *election.Term) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// consume handles the items of a queue. Those that are poison fail.
func (w *worker) consume(ctx context.Context) error {
	return w.tasks.Consume(ctx, 2, func(ctx context.Context, it *queue.Item) error {
		if strings.HasPrefix(string(it.Data()), "poison") {
			return errors.New("cannot be handled")
		}
		return pause(ctx, 10*time.Millisecond)
	})
}

// produce offers a task now and then, until ctx ends.
func (w *worker) produce(ctx context.Context) error {
	for i := 1; pause(ctx, 50*time.Millisecond) == nil; i++ {
		task := fmt.Sprintf("task %d", i)
		if i%20 == 0 {
			task = "poison"
		}
		if _, err := w.tasks.Offer(ctx, []byte(task)); err != nil && ctx.Err() == nil && !errors.Is(err, protocol.ErrUncertain) {
			return err
		}
	}
	return nil
}

// pause blocks for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d/2 + rand.N(d)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
