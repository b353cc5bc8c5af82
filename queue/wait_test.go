package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The two that have waited longest are cut off. The third one takes over after a second.
func TestTwoDeadWaitersStopNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		got := make(chan int, 10)
		var links []*recipestest.Link
		for i := range 10 {
			link, q := b.linked()
			links = append(links, link)
			wait.Go(func() error {
				if _, err := q.Take(ctx); err == nil {
					got <- i
				}
				return nil
			})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		links[0].Stall()
		links[1].Stall()
		began := time.Now()
		offer(t, b.queue(), "x")
		<-got
		require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
		stop()
		links[0].Heal()
		links[1].Heal()
		require.NoError(t, wait.Wait())
	})
}

// Consumers that wait take turns, wherever they are.
func TestFarWaiterGetsItsShare(t *testing.T) {
	for _, far := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				ctx, stop := context.WithCancel(t.Context())
				var wait suite.Group
				shares := make([]int, 3)
				for i, d := range []time.Duration{time.Millisecond, time.Millisecond, far} {
					link, q := b.linked()
					link.Delay(d)
					wait.Go(func() error {
						for {
							if _, err := q.Take(ctx); err != nil {
								return nil
							}
							shares[i]++
						}
					})
				}
				time.Sleep(time.Second)
				producer := b.queue()
				for range 300 {
					offer(t, producer, "x")
					time.Sleep(100 * time.Millisecond)
				}
				stop()
				require.NoError(t, wait.Wait())
				require.Greater(t, shares[2], 300/3/2)
			})
		})
	}
}
