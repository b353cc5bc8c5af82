package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An operator has made the queue's node a container. At each step of a call another consumer takes
// the only entry, the server reaps the empty container and a producer offers to the new container.
// No entry is lost.
func TestReapedQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(t *testing.T, q *queue.Queue) (taken [][]byte){
		"Poll": func(t *testing.T, q *queue.Queue) [][]byte {
			data, err := q.Poll(t.Context())
			if errors.Is(err, queue.ErrEmpty) {
				return nil
			}
			require.NoError(t, err)
			return [][]byte{data}
		},
		"Take": func(t *testing.T, q *queue.Queue) [][]byte {
			data := suite.Got(q.Take(t.Context()))(t)
			return [][]byte{data}
		},
		"Reserve and Ack": func(t *testing.T, q *queue.Queue) [][]byte {
			it := reserve(t, q)
			if err := it.Ack(t.Context()); err != nil {
				require.ErrorIs(t, err, protocol.ErrLost)
				return nil
			}
			return [][]byte{it.Data()}
		},
		"Reserve and Nack": func(t *testing.T, q *queue.Queue) [][]byte {
			if err := reserve(t, q).Nack(t.Context()); err != nil {
				require.ErrorIs(t, err, protocol.ErrLost)
			}
			return nil
		},
		"Offer": func(t *testing.T, q *queue.Queue) [][]byte { offer(t, q, "ours"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (hit bool) {
				recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) { hit = reaped(t, srv, name, play, step) })
				return hit
			})
		})
	}
}

func reaped(t *testing.T, srv *recipestest.Server, name string, play func(*testing.T, *queue.Queue) [][]byte, step int) bool {
	operator := srv.Client(t)
	path := lasting(t, operator, srv.Root(t)+"/in") + "/q"
	_, err := suite.Session(t, operator).Conn().CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	other := queue.New(operator, path)
	offer(t, other, "old")
	offered, taken := []string{"old"}, []string(nil)
	if name == "Offer" {
		offered = append(offered, "ours")
	}

	link := srv.Link(t)
	q := queue.New(link.Client(t), path)
	met := suite.At(link, step, func() {
		data, err := other.Poll(t.Context())
		if err == nil {
			taken = append(taken, string(data))
		}
		srv.Embedded().ReapContainers()
		srv.Embedded().ReapContainers() // the container that the first run emptied
		offer(t, other, "new")
		offered = append(offered, "new")
	})
	ours := texts(play(t, q))
	hit := met()
	require.ElementsMatch(t, offered, slices.Concat(taken, ours, exhaust(t, other)), "step %d", step)
	return hit
}

// The queue is reaped while its only entry is a dead letter, so the numbers begin again. A letter
// that comes back beside an entry with its ID is an entry of its own.
func TestLetterComesBackToNumbersThatHaveBegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dead := queue.New(b.client, b.path)
		q := queue.New(b.client, b.path+"-work", queue.WithDeadLetter(dead, 1))
		offer(t, q, "old")
		require.NoError(t, b.reserve(q).Nack(t.Context()))
		time.Sleep(2 * time.Second) // receipts go when they are idle
		for suite.Exists(t, b.client, b.path+"-work") {
			b.srv.Embedded().ReapContainers()
		}
		offer(t, q, "new")
		_, err := q.Redrive(t.Context(), dead, 1)
		require.NoError(t, err)
		require.Equal(t, []string{firstID, firstID}, idsOf(list(t, q)))
		require.Equal(t, []string{"new", "old"}, drain(t, t.Context(), q))
	})
}
