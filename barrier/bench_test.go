package barrier_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// BenchmarkRelease measures the time from the removal to the return of the last waiter. Each waiter
// has a Barrier of its own.
func BenchmarkRelease(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			srv := recipestest.Start(b)
			path := srv.Root(b) + "/b"
			setter := barrier.New(srv.Client(b), path)
			link := srv.Link(b)
			var waiters []*barrier.Barrier
			for range n {
				waiters = append(waiters, barrier.New(link.Client(b), path))
			}
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, setter.Set(b.Context()))
				asleep := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+n)
				var wait group
				for _, w := range waiters {
					wait.Go(func() error { return w.Wait(b.Context()) })
				}
				<-asleep
				b.StartTimer()
				require.NoError(b, setter.Remove(b.Context()))
				require.NoError(b, wait.Wait())
			}
		})
	}
}
