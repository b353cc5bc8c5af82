package killstep_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// queueOptions are those of the queue at a path. Its dead letters are beside it.
func queueOptions(c *protocol.Client, path string) []queue.Option {
	return []queue.Option{queue.WithDeadLetter(queue.New(c, path+"-dead"), 2), queue.WithKeyRetention(time.Second)}
}

// keyed is the key of an operation's element.
const keyed = "key"

func queues() []operation {
	open := func(c *protocol.Client, path string, more ...queue.Option) *queue.Queue {
		return queue.New(c, path, append(queueOptions(c, path), more...)...)
	}
	// with is an operation of a queue, which may be full with one element.
	with := func(do func(ctx context.Context, q *queue.Queue) error, more ...queue.Option) func(context.Context, *process) (func(context.Context) error, error) {
		return func(_ context.Context, p *process) (func(context.Context) error, error) {
			q := open(p.Client, p.path, more...)
			return func(ctx context.Context) error { return do(ctx, q) }, nil
		}
	}
	// item is an operation of the attempt of an element that other processes have offered.
	item := func(attempt int, do func(ctx context.Context, it *queue.Item) error) func(context.Context, *process) (func(context.Context) error, error) {
		return func(ctx context.Context, p *process) (func(context.Context) error, error) {
			q := open(p.Client, p.path)
			for {
				it, err := q.Reserve(ctx)
				if err != nil {
					return nil, err
				}
				if it.Attempt() == attempt {
					return func(ctx context.Context) error { return do(ctx, it) }, nil
				}
				if err := it.Nack(ctx); err != nil {
					return nil, err
				}
			}
		}
	}
	offered := func(n int) func(*scene) string {
		return func(s *scene) (id string) {
			for range n {
				id = must[string](s)(open(s.a, s.path).Offer(s.ctx, []byte("offered")))
			}
			return id
		}
	}
	id := func(_ string, err error) error { return err }

	// expect drains the queue and its dead letters. Of the elements, there are at least and at most
	// so many, or exactly so many once the operation was over. Then the queue is used.
	type count struct{ least, most, over int }
	expect := func(want count, more ...queue.Option) func(*scene) {
		return func(s *scene) {
			s.release()
			s.do(s.later.Wait())
			q := open(s.a, s.path, more...)
			found := drain(s, q) + drain(s, queue.New(s.a, s.path+"-dead"))
			least, most := want.least, want.most
			if s.over {
				least, most = want.over, want.over
			}
			require.GreaterOrEqual(s, found, least, "elements")
			require.LessOrEqual(s, found, most, "elements")

			dead := queue.New(s.b, s.path+"-dead")
			must[string](s)(dead.Offer(s.ctx, nil))
			must[[]byte](s)(dead.Take(s.ctx))
			taken := suite.Later(func() error {
				data, err := open(s.b, s.path, more...).Take(s.ctx)
				if err == nil && string(data) != "next" {
					err = unexpected("took %q", data)
				}
				return err
			})
			s.until(s.ctx, s.at("zkrecipes/waiting"), 1)
			must[string](s)(q.Offer(s.ctx, []byte("next")))
			s.do(suite.Wait(s, taken))
			s.do(q.Drained(s.ctx))
		}
	}
	offer := count{0, 1, 1}
	take := count{0, 1, 0}
	keep := count{1, 1, 1}

	all := []operation{
		{name: "queue: offer", after: expect(offer), child: with(func(ctx context.Context, q *queue.Queue) error {
			return id(q.Offer(ctx, []byte("offered")))
		})},
		{name: "queue: offer behind an element", before: offered(1), after: expect(count{1, 2, 2}), child: with(func(ctx context.Context, q *queue.Queue) error {
			return id(q.Offer(ctx, []byte("offered")))
		})},
		{name: "queue: offer three", child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.OfferAll(ctx, [][]byte{[]byte("offered"), []byte("offered"), []byte("offered")})
			return err
		}), after: func(s *scene) {
			n := must[int](s)(open(s.a, s.path).Len(s.ctx))
			require.Contains(s, []int{0, 3}, n, "all or none")
			expect(count{n, n, 3})(s)
		}},
		{name: "queue: offer with a delay", after: expect(offer), child: with(func(ctx context.Context, q *queue.Queue) error {
			return id(q.OfferAfter(ctx, time.Millisecond, []byte("offered")))
		})},
		{name: "queue: offer with a priority", after: expect(offer, queue.WithPriorities()), child: with(func(ctx context.Context, q *queue.Queue) error {
			return id(q.OfferPriority(ctx, 3, []byte("offered")))
		}, queue.WithPriorities())},
		{name: "queue: offer with a key", child: with(func(ctx context.Context, q *queue.Queue) error {
			return id(q.OfferKey(ctx, keyed, []byte("offered")))
		}), after: func(s *scene) {
			// The element is offered again with the same key, and then is there once.
			must[string](s)(open(s.a, s.path).OfferKey(s.ctx, keyed, []byte("offered")))
			expect(keep)(s)
			if !s.over {
				return // the rest takes more than a second
			}
			for i := 0; slices.Contains(s.children(s.at("zkrecipes/keys")), keyed); i++ {
				must[string](s)(open(s.a, s.path).OfferKey(s.ctx, strconv.Itoa(i), []byte("offered")))
				must[[]byte](s)(open(s.a, s.path).Take(s.ctx))
			}
		}},
		{
			name: "queue: offer to a full queue", before: offered(1), after: expect(count{0, 1, 1}),
			child: with(func(ctx context.Context, q *queue.Queue) error {
				return id(q.OfferWait(ctx, []byte("offered")))
			}, queue.WithMaxLength(1)),
			meanwhile: func(_ context.Context, s *scene) { must[[]byte](s)(open(s.a, s.path).Take(s.ctx)) },
		},
		{name: "queue: take", before: offered(1), after: expect(take), child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Take(ctx)
			return err
		})},
		{name: "queue: take from an empty queue", after: expect(take), meanwhile: func(ctx context.Context, s *scene) {
			if s.until(ctx, s.at("zkrecipes/waiting"), 1) {
				offered(1)(s)
			}
		}, child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Take(ctx)
			return err
		})},
		{name: "queue: take several", before: offered(3), after: expect(count{0, 3, 0}), child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.PollN(ctx, 3)
			return err
		})},
		{name: "queue: reserve", before: offered(1), after: expect(keep), child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Reserve(ctx)
			return err
		})},
		{name: "queue: reserve from an empty queue", after: expect(count{0, 1, 1}), meanwhile: func(ctx context.Context, s *scene) {
			if s.until(ctx, s.at("zkrecipes/waiting"), 1) {
				offered(1)(s)
			}
		}, child: with(func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Reserve(ctx)
			return err
		})},
		{name: "queue: acknowledge", before: offered(1), after: expect(take), child: item(1, func(ctx context.Context, it *queue.Item) error { return it.Ack(ctx) })},
		{name: "queue: give back", before: offered(1), after: expect(keep), child: item(1, func(ctx context.Context, it *queue.Item) error { return it.Nack(ctx) })},
		{name: "queue: give back with a delay", before: offered(1), after: expect(keep), child: item(1, func(ctx context.Context, it *queue.Item) error {
			return it.Nack(ctx, queue.After(time.Millisecond))
		})},
		{name: "queue: give back at the tail", before: offered(1), after: expect(keep), child: item(1, func(ctx context.Context, it *queue.Item) error {
			return it.Nack(ctx, queue.AtTail())
		})},
		{name: "queue: give back as a dead letter", before: offered(1), after: expect(keep), child: item(2, func(ctx context.Context, it *queue.Item) error { return it.Nack(ctx) })},
		{name: "queue: remove", before: offered(1), after: expect(take), child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return open(p.Client, p.path).Remove(ctx, p.hint) }, nil
		}},
		{name: "queue: free", before: func(s *scene) string {
			id := offered(1)(s)
			it := must[*queue.Item](s)(open(s.b, s.path).Reserve(s.ctx))
			s.held = append(s.held, func() {
				if err := it.Nack(s.ctx); !errors.Is(err, protocol.ErrLost) {
					s.do(err)
				}
			})
			return id
		}, after: expect(keep), child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return open(p.Client, p.path).Free(ctx, p.hint) }, nil
		}},
	}
	return all
}

// drain takes all elements of a queue, those that are due later included, and returns their number.
func drain(s *scene, q *queue.Queue) (n int) {
	for {
		left := 0
		for _, err := range q.List(s.ctx) {
			s.do(err)
			left++
		}
		if left == 0 {
			return n
		}
		require.Equal(s, "offered", string(must[[]byte](s)(q.Take(s.ctx))))
		n++
	}
}
