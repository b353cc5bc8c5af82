package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Producers and consumers of both libraries share a queue, as far as the other one has the layout:
// kazoo only takes.
func TestOtherLibrariesOnTheSameQueue(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	for name, library := range map[string]struct {
		start  func(testing.TB, string) *interop.Peer
		offers bool
	}{
		"Curator": {interop.Curator, true},
		"kazoo":   {interop.Kazoo, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := library.start(t, srv.ConnectString())
			path := lasting(t, srv.Client(t), srv.Root(t)+"/mixed") // or kazoo misses it when it is empty
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			ours := queue.New(srv.Client(t), path)

			const each = 40
			var offered []string
			var producing suite.Group
			for i := range each {
				data := fmt.Sprint("ours-", i)
				offered = append(offered, data)
				producing.Go(func() error { _, err := ours.Offer(ctx, []byte(data)); return err })
				if library.offers {
					data := fmt.Sprint("theirs-", i)
					offered = append(offered, data)
					producing.Go(func() error {
						_, err := peer.Start("offer", fmt.Sprint("p", i%4), path, data).Wait(ctx)
						return err
					})
				}
			}
			require.NoError(t, producing.Wait())
			n, err := ours.Len(ctx)
			require.NoError(t, err)
			require.Equal(t, len(offered), n)

			var mu sync.Mutex
			taken := make(map[string][]string)
			take := func(who string, poll func() (string, error)) func() error {
				return func() error {
					for {
						data, err := poll()
						if err != nil || data == "" {
							return err
						}
						mu.Lock()
						taken[who] = append(taken[who], data)
						mu.Unlock()
					}
				}
			}
			var consuming suite.Group
			for i := range 2 {
				q := queue.New(srv.Client(t), path)
				consuming.Go(take("ours", func() (string, error) {
					data, err := q.Poll(ctx)
					if errors.Is(err, queue.ErrEmpty) {
						err = nil
					}
					return string(data), err
				}))
				consuming.Go(take("theirs", func() (string, error) {
					return peer.Start("poll", fmt.Sprint("c", i), path).Wait(ctx)
				}))
			}
			require.NoError(t, consuming.Wait())
			require.ElementsMatch(t, offered, slices.Concat(taken["ours"], taken["theirs"]), "each once")
			t.Logf("%d taken by us, %d by %s", len(taken["ours"]), len(taken["theirs"]), name)
		})
	}
}
