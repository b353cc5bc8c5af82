package queue_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// claimOf is the name of the node that reserves an item.
func claimOf(it *queue.Item) string { return path.Base(it.Check().Path) }

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

func TestCrashedConsumersItemComesBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		crashed, c := srv.Client(t), srv.Client(t)
		q := queue.New(c, path)
		offer(t, q, "a", "b", "c")
		suite.CatchUp(t, crashed)
		it := reserve(t, queue.New(crashed, path))
		suite.CatchUp(t, c)
		b := reserve(t, q) // and has seen the other one
		require.Equal(t, "b", string(b.Data()))
		srv.ExpireSession(suite.Session(t, crashed).ID())
		require.Eventually(t, func() bool {
			data, err := q.Peek(t.Context())
			return err == nil && string(data) == "a"
		}, suite.Limit, time.Millisecond)
		ctx := patient(t)
		again := reserve(t, q)
		for string(again.Data()) != "a" { // in its old place, once q has heard of it
			require.NoError(t, again.Nack(t.Context()))
			require.NoError(t, ctx.Err())
			again = reserve(t, q)
		}
		require.Equal(t, 2, again.Attempt())
		<-it.Done()
		require.ErrorIs(t, it.Err(), protocol.ErrLost)
		require.ErrorIs(t, it.Ack(t.Context()), protocol.ErrLost)
		require.NoError(t, again.Ack(t.Context()))
		require.NoError(t, b.Ack(t.Context()))
		require.Equal(t, []string{"c"}, drain(t, patient(t), q))
	})
}

// What a crashed consumer had reserved is next at once.
func TestItemOfACrashedConsumerIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		crashed := srv.Client(t)
		q := queue.New(srv.Client(t), path)
		offer(t, q, "a", "b", "c")
		reserve(t, queue.New(crashed, path))
		b := reserve(t, q)
		require.Equal(t, "b", string(b.Data()))
		synctest.Wait()
		srv.ExpireSession(suite.Session(t, crashed).ID())
		synctest.Wait()
		again := reserve(t, q)
		require.Equal(t, "a", string(again.Data()))
		require.NoError(t, again.Ack(t.Context()))
		require.NoError(t, b.Ack(t.Context()))
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

// A consumer whose claim was deleted can do nothing to the claim of the next one.
func TestStaleItemChangesNothing(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(*queue.Item) error{
		"ack":  func(it *queue.Item) error { return it.Ack(t.Context()) },
		"nack": func(it *queue.Item) error { return it.Nack(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
				offer(t, q, "a")
				it := reserve(t, q)
				node := path + "/" + it.ID() + "/" + claimOf(it)
				require.NoError(t, suite.Session(t, operator).Conn().Delete(node, -1))
				again := reserve(t, other)
				require.Equal(t, "a", string(again.Data()))

				require.ErrorIs(t, decide(it), protocol.ErrLost)
				require.NotErrorIs(t, decide(it), protocol.ErrUncertain)

				require.NoError(t, again.Err())
				require.Equal(t, []string{claimOf(again)}, children(t, operator, path+"/"+it.ID()))
				require.NoError(t, again.Ack(t.Context()))
				n, err := q.Len(t.Context())
				require.NoError(t, err)
				require.Zero(t, n)
			})
		})
	}
}

func TestDeadLetters(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		path := lasting(t, srv.Client(t), root+"/q")
		crashing := srv.Client(t)
		for name, end := range map[string]func(*queue.Item){
			"nack":  func(it *queue.Item) { require.NoError(t, it.Nack(t.Context())) },
			"crash": func(it *queue.Item) { srv.ExpireSession(suite.Session(t, crashing).ID()); <-it.Done() },
		} {
			dead := queue.New(srv.Client(t), root+"/dead-"+name)
			q := queue.New(crashing, path, queue.WithDeadLetter(dead, 3))
			offer(t, queue.New(srv.Client(t), path), "poison", "good")
			for attempt := 1; attempt <= 3; attempt++ {
				it := reserve(t, q)
				require.Equal(t, "poison", string(it.Data()))
				require.Equal(t, attempt, it.Attempt())
				end(it)
			}
			it := reserve(t, q)
			require.Equal(t, "good", string(it.Data()), name)
			require.NoError(t, it.Ack(t.Context()))
			letter, err := dead.Peek(t.Context()) // and leaves it there, or the server may remove the empty queue meanwhile
			require.NoError(t, err)
			require.Equal(t, "poison", string(letter))
			n, err := dead.Len(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
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
