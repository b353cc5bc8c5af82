package queue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A server writes the paths of all ephemeral nodes of a session into one transaction when the
// session ends, and cannot start again if that gets too large. So a session that reserves and never
// acknowledges is refused long before.
func TestReservationsOfASessionAreBounded(t *testing.T) {
	for name, shape := range map[string]struct{ chroot, path string }{
		"short path":  {"", "/" + strings.Repeat("q", 60)},
		"long path":   {"", "/" + strings.Repeat("q", 200)},
		"long chroot": {"/" + strings.Repeat("c", 200), "/q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 400_000 // bytes of paths
				srv := recipestest.Start(t, recipestest.WithInMemory())
				link := srv.Link(t)
				client, err := protocol.Connect(t.Context(), srv.ConnectString()+shape.chroot, protocol.WithDialer(link.Dial))
				require.NoError(t, err)
				defer client.Close()
				q := queue.New(client, shape.path)

				bytes, items := 0, []*queue.Item(nil)
				for err == nil && bytes <= most {
					const some = 1000
					fill(t, q, some)
					for range some {
						var it *queue.Item
						if it, err = q.TryReserve(t.Context()); err != nil {
							break
						}
						items = append(items, it)
						bytes += len(it.Check().Path) // with the chroot
					}
				}
				t.Logf("%d items, %d bytes, %v", len(items), bytes, err)
				require.LessOrEqual(t, bytes, most)
				require.ErrorIs(t, err, queue.ErrTooManyItems)
				require.Greater(t, bytes, most/2)
				_, err = q.Reserve(t.Context()) // it does not wait for other entries
				require.ErrorIs(t, err, queue.ErrTooManyItems)

				// There is room again once an item is acknowledged.
				require.NoError(t, items[0].Ack(t.Context()))
				_, err = q.TryReserve(t.Context())
				require.NoError(t, err)
			})
		})
	}
}

// Items waits, rather than fails, while its session holds as many items as it may. Each item that
// is acknowledged lets it go on.
func TestItemsWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/"+strings.Repeat("q", 200))
		fill(t, queue.New(srv.Client(t), path), 4000)
		client := srv.Client(t)
		ctx, stop := context.WithCancel(t.Context())
		items := make(chan *queue.Item)
		var wait suite.Group
		wait.Go(func() error {
			defer close(items)
			for it, err := range queue.New(client, path).Items(ctx) {
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				items <- it
			}
			return nil
		})

		var held []*queue.Item
		receive := func() bool {
			select {
			case it, ok := <-items:
				if ok {
					held = append(held, it)
				}
				return ok
			case <-time.After(time.Minute):
				return false
			}
		}
		for receive() {
		}
		n := len(held)
		require.Less(t, n*len(held[0].Check().Path), 400_000)
		require.Greater(t, n, 100)

		for i := range 3 {
			require.NoError(t, held[i].Ack(t.Context()))
			require.True(t, receive())
			require.False(t, receive())
		}
		stop()
		require.NoError(t, wait.Wait())
		suite.Close(t, client)
	})
}
