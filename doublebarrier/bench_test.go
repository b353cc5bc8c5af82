package doublebarrier_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// BenchmarkRound measures a round of n members, each in a client of its own: all enter, all leave.
func BenchmarkRound(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			srv := recipestest.Start(b)
			path := srv.Root(b) + "/b"
			var barriers []*doublebarrier.Barrier
			for _, c := range clients(b, srv, n) {
				barriers = append(barriers, doublebarrier.New(c, path, n))
			}
			for b.Loop() {
				var all group
				for _, m := range barriers {
					all.Go(func() error {
						e, err := m.Enter(b.Context())
						if err != nil {
							return err
						}
						return e.Leave(b.Context())
					})
				}
				require.NoError(b, all.Wait())
			}
			b.ReportMetric(float64(n), "members")
		})
	}
}
