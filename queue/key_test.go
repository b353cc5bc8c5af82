package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
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
