package queue_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// What bounds a queue's offers makes no other consumer of it.
func TestQueuesThatOfferDifferentlyConsumeTogether(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		queues := []*queue.Queue{
			queue.New(c, path), queue.New(c, path, queue.WithMaxLength(50)),
			queue.New(c, path, queue.WithKeyRetention(time.Minute)),
		}
		want := texts(numbered(0, 30))
		offer(t, queues[0], want...)
		var got []string
		for i := range want {
			data, err := queues[i%len(queues)].Take(t.Context())
			require.NoError(t, err)
			got = append(got, string(data))
		}
		require.Equal(t, want, got)

		offer(t, queues[1], texts(numbered(0, 50))...)
		_, err := queues[1].Offer(t.Context(), nil)
		require.ErrorIs(t, err, queue.ErrFull)
		offer(t, queues[0], "one more")
	})
}

// Claims that were not sent, or found no room in a transaction, leave nothing: the session that
// holds no item has no receipt after a while.
func TestReceiptGoesWithTheLastItem(t *testing.T) {
	for name, size := range map[string]int{"small": 10, "large": 50_000} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				const n = 8
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				for range n {
					offer(t, queue.New(operator, path), strings.Repeat("x", size))
				}
				link := srv.Link(t)
				broken, breaks := suite.Breaking(link, recipestest.OpMulti)
				q := queue.New(link.Client(t, broken), path)
				breaks.Store(2)
				require.NoError(t, together(n, func() error {
					it, err := q.Reserve(t.Context())
					if err != nil {
						return err
					}
					return it.Ack(t.Context())
				}))
				require.Zero(t, breaks.Load())

				time.Sleep(10 * time.Second)
				require.Empty(t, slices.DeleteFunc(children(t, operator, path+"/zkrecipes"), func(node string) bool {
					return node == "receipts"
				}))
			})
		})
	}
}
