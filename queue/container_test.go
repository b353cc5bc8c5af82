package queue_test

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An operator has made the queue's node a container. At each step of a call another consumer takes
// the only entry, the server reaps the empty container, and a producer offers to the new one. Both
// entries stay, or are returned.
func TestReapedQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(t *testing.T, l *ledger, q *queue.Queue){
		"Poll": func(t *testing.T, l *ledger, q *queue.Queue) {
			data, err := q.Poll(t.Context())
			l.took(all(data), err)
		},
		"Take": func(t *testing.T, l *ledger, q *queue.Queue) {
			data, err := q.Take(t.Context())
			l.took(all(data), err)
		},
		"Reserve and Ack":  func(t *testing.T, l *ledger, q *queue.Queue) { l.work(t.Context(), q, false) },
		"Reserve and Nack": func(t *testing.T, l *ledger, q *queue.Queue) { l.work(t.Context(), q, true) },
		"Offer":            func(t *testing.T, l *ledger, q *queue.Queue) { l.offer(t.Context(), q, "ours") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := recipestest.Start(t)
			root := srv.Root(t)
			suite.Sweep(t, func(step int) bool {
				operator := srv.Client(t)
				path := fmt.Sprintf("%s/%d", lasting(t, operator, fmt.Sprintf("%s/in-%d", root, step)), step)
				_, err := suite.Session(t, operator).Conn().CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				other := queue.New(operator, path)
				var l ledger
				l.offer(t.Context(), other, "old")

				link := srv.Link(t)
				q := queue.New(link.Client(t), path)
				met := suite.At(link, step, func() {
					data, err := other.Poll(t.Context())
					l.took(all(data), err)
					srv.Embedded().ReapContainers()
					srv.Embedded().ReapContainers() // what the first time has emptied
					l.offer(t.Context(), other, "new")
				})
				play(t, &l, q)
				hit := met()
				require.NoError(t, l.check(exhaust(t, other)), "step %d", step)
				return hit
			})
		})
	}
}
