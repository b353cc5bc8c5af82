package semaphore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// BenchmarkUncontended compares a semaphore of which permits are left with a lock.
func BenchmarkUncontended(b *testing.B) {
	srv := recipestest.Start(b)
	c, root := srv.Client(b), srv.Root(b)
	b.Run("lock", func(b *testing.B) {
		m := lock.New(c, root+"/lock")
		for b.Loop() {
			l, err := m.Lock(b.Context())
			require.NoError(b, err)
			require.NoError(b, l.Unlock(b.Context()))
		}
	})
	for held := range 3 {
		b.Run(fmt.Sprintf("semaphore, %d held", held), func(b *testing.B) {
			s := semaphore.New(c, fmt.Sprintf("%s/%d", root, held), 4)
			for range held {
				defer release(b, acquire(b, s))
			}
			for b.Loop() {
				release(b, acquire(b, s))
			}
		})
	}
}
