package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
)

// At any step of an offer, an operator deletes the keys or all records. Later keys are still
// remembered.
func TestKeysDeletedByHand(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"/zkrecipes/keys", "/zkrecipes"} {
		for step, over := 1, false; !over; step += suite.Size(1, 3) {
			bubble(t, func(t *testing.T, b *bench) {
				link, q := b.linked()
				stop := link.At(step, func() { deleteAll(b.conn(), b.path+below) })
				q.OfferKey(t.Context(), "first", nil)
				over = stop()
				for i := range 2 {
					key := fmt.Sprint(i)
					id, err := q.OfferKey(t.Context(), key, nil)
					require.NoError(t, err, "%s %d", below, step)
					require.NotEmpty(t, id)
					id, err = b.queue().OfferKey(t.Context(), key, nil)
					require.NoError(t, err)
					require.Empty(t, id)
				}
				require.Contains(t, []int{2, 3}, len(drain(t, t.Context(), q)))
			})
			over = over || t.Failed()
		}
	}
}

// A producer dies after it has created the next directory, before it says that this is the latest.
// Hours later the directory becomes the latest. Then the keys of the directory before stay.
func TestKeysOutliveAProducerThatDiesAsADirectoryBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		key := func(q *queue.Queue, k string) string {
			id := suite.Got(q.OfferKey(t.Context(), k, nil))(t)
			return id
		}
		link, dies := b.linked()
		when(link, func(ops []string) bool { return ops[0] == "setData "+b.path+"/zkrecipes/keys" }, link.Stall)
		for range 2 {
			require.NotEmpty(t, key(dies, fmt.Sprint(time.Now())))
			time.Sleep(2 * time.Hour)
		}
		q := b.queue()
		for _, k := range []string{"a", "b", "c"} {
			require.NotEmpty(t, key(q, k))
			time.Sleep(time.Second)
			require.Empty(t, key(q, "a"))
		}
	})
}
