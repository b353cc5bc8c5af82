package queue_test

import (
	"context"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func reserve(t *testing.T, q *queue.Queue) *queue.Item {
	t.Helper()
	it, err := q.Reserve(patient(t))
	require.NoError(t, err)
	giveBack(t, it)
	return it
}

// giveBack gives items back when the test ends, unless they have ended before.
func giveBack(t *testing.T, items ...*queue.Item) {
	t.Cleanup(func() {
		var wait sync.WaitGroup
		for _, it := range items {
			wait.Go(func() { it.Nack(context.Background()) })
		}
		wait.Wait()
	})
}

// A waiter gets an item that comes back, although nothing is offered.
func TestWaiterGetsAnItemThatComesBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder := queue.New(srv.Client(t), path)
		offer(t, holder, "a")
		it := reserve(t, holder)
		link := srv.Link(t)
		waiting := queue.New(link.Client(t), path)
		got := make(chan string, 1)
		var wait suite.Group
		wait.Go(func() error { data, err := waiting.Take(patient(t)); got <- string(data); return err })
		await(t, link.Answered(recipestest.OpGetChildren, 3))
		require.NoError(t, it.Nack(t.Context()))
		require.NoError(t, wait.Wait())
		require.Equal(t, "a", <-got)
	})
}

func TestAckGoesOnWithoutItsContext(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	q := queue.New(link.Client(t), srv.Root(t)+"/q")
	offer(t, q, "a")
	it := reserve(t, q)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	link.Stall() // or the answer may be faster
	require.ErrorIs(t, it.Ack(ctx), context.Canceled)
	link.Heal()
	require.NoError(t, it.Ack(t.Context()))
	n, err := q.Len(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// A transaction with an item's Check fails once the item is lost.
func TestCheckFences(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c := srv.Client(t)
	root := srv.Root(t)
	q := queue.New(c, root+"/q")
	offer(t, q, "a")
	it := reserve(t, q)
	conn := suite.Session(t, c).Conn()
	write := func(node string) error {
		_, err := conn.Multi(it.Check(), &zk.CreateRequest{Path: root + "/" + node, Acl: zk.WorldACL(zk.PermAll)})
		return err
	}
	require.NoError(t, write("while-held"))
	require.NoError(t, it.Ack(t.Context()))
	require.ErrorIs(t, write("afterwards"), zk.ErrNoNode)
}
