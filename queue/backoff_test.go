package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A back-off that ends bounds a call. What the call leaves behind is cleared away all the same.
func TestBackOffThatEndsLeavesNoClaim(t *testing.T) {
	t.Parallel()
	const outage, steps = 3 * time.Second, 8
	for name, begin := range map[string]func(*recipestest.Link){
		"answers are lost": func(link *recipestest.Link) {
			link.LoseReply(recipestest.OpAny, 1000)
			time.AfterFunc(outage, func() { link.LoseReply(recipestest.OpAny, 0) })
		},
		"requests are lost": func(link *recipestest.Link) {
			over := time.Now().Add(outage)
			var cut func()
			cut = func() {
				if time.Now().Before(over) {
					link.At(3, cut) // the first one after the handshake
					link.Cut()
					link.Heal()
				}
			}
			cut()
		},
	} {
		for verb, decide := range map[string]func(*queue.Item, context.Context) error{
			"ack":     func(it *queue.Item, ctx context.Context) error { return it.Ack(ctx) },
			"nack":    func(it *queue.Item, ctx context.Context) error { return it.Nack(ctx) },
			"reserve": nil,
		} {
			t.Run(verb+" "+name, func(t *testing.T) {
				for step := 1; step <= steps; step += suite.Size(1, 3) {
					synctest.Test(t, func(t *testing.T) {
						backOffEnds(t, decide, func(link *recipestest.Link) {
							link.At(step, func() { begin(link) })
						})
					})
				}
			})
		}
	}
}

func backOffEnds(t *testing.T, decide func(*queue.Item, context.Context) error, arm func(*recipestest.Link)) {
	srv := recipestest.Start(t, recipestest.WithInMemory())
	operator := srv.Client(t)
	path := lasting(t, operator, srv.Root(t)+"/q")
	link := srv.Link(t)
	once := protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} })
	client := link.Client(t, once, protocol.WithSessionTimeout(20*time.Second))
	q := queue.New(client, path)
	offer(t, q, "x")
	var it *queue.Item
	if decide != nil {
		it = reserve(t, q)
	}

	time.Sleep(time.Second)
	session := suite.Session(t, client)

	arm(link)
	if decide != nil {
		_ = decide(it, t.Context()) // it may fail
	} else if it, err := q.Reserve(t.Context()); err == nil {
		require.NoError(t, it.Nack(t.Context()))
	}

	time.Sleep(time.Minute)
	require.NoError(t, session.Err()) // an expiry would have cleared away everything
	for _, name := range entries(t, operator, path) {
		require.Empty(t, children(t, operator, path+"/"+name))
	}
}

// The back-off ends while a taker's entry is being removed. So the taker has the data with an
// error, and the entry comes back while the session lives.
func TestBackOffOfATakerThatEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link := b.srv.Link(t)
		once := protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} })
		q := queue.New(link.Client(t, once), b.path)
		offer(t, b.queue(), "x")
		when(link, first("delete"), func() { link.Cut(); link.Heal() })

		data, err := q.Take(t.Context())
		require.ErrorAs(t, err, new(*queue.UncertainError))
		require.Equal(t, "x", string(data))
		comesBack(t, b, 1)
	})
}
