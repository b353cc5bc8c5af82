package queue_test

import (
	"context"
	"strings"
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

// A claim is given up, the answer to its deletion is lost, another consumer reserves the entry, and
// the deletion is repeated.
func TestGivingUpSparesTheNextClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		link := srv.Link(t)
		slow, other := queue.New(link.Client(t), path), queue.New(srv.Client(t), path)
		offer(t, other, "x")
		link.Delay(100 * time.Millisecond)

		ctx, cancel := context.WithCancel(t.Context())
		sent := link.Sent(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
		failed := make(chan error, 1)
		go func() { _, err := slow.Reserve(ctx); failed <- err }()
		await(t, sent)
		synctest.Wait()
		link.LoseReply(recipestest.OpDelete, 1)
		deletions := link.Count(recipestest.OpDelete)
		repeated := link.Answered(recipestest.OpDelete, deletions+1)
		cancel()
		it := reserve(t, other)
		require.ErrorIs(t, <-failed, context.Canceled)
		await(t, repeated)
		synctest.Wait()

		require.GreaterOrEqual(t, link.Count(recipestest.OpDelete), deletions+2, "it was not repeated")
		require.NoError(t, it.Err())
		require.Equal(t, []string{claimOf(it)}, children(t, operator, path+"/"+it.ID()))
		require.NoError(t, it.Ack(t.Context()))
	})
}

// An entry that was read ahead while it was free is not reserved twice.
func TestReservedEntryIsNotReservedAgain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		link := srv.Link(t)
		q, other := queue.New(link.Client(t), path), queue.New(srv.Client(t), path)
		offer(t, other, "a", "b")
		read := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2)
		a := reserve(t, q)
		await(t, read)

		b := reserve(t, other)
		require.Equal(t, "b", string(b.Data()))
		_, err := q.TryReserve(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		require.NoError(t, a.Ack(t.Context()))
		require.NoError(t, b.Ack(t.Context()))
	})
}

// The answer to a claim is lost, and with the receipt gone there is no telling whether it was made.
// It does not keep its own session from the entry, and its end does not end the next claim.
func TestClaimOfUnknownOutcomeIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		conn := suite.Session(t, operator).Conn()
		path := lasting(t, operator, srv.Root(t)+"/q")
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		offer(t, q, "a", "b")
		require.NoError(t, reserve(t, q).Ack(t.Context())) // from now on there are receipts
		link.Delay(10 * time.Millisecond)

		link.LoseReply(recipestest.OpMulti, 1)
		sent := link.Sent(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
		got := make(chan *queue.Item, 1)
		ctx := patient(t)
		go func() { it, _ := q.Reserve(ctx); got <- it }()
		await(t, sent)
		synctest.Wait() // the request is still on its way: it is executed when the receipt is there
		time.Sleep(15 * time.Millisecond)
		for _, name := range children(t, operator, path+"/zkrecipes") {
			if strings.HasPrefix(name, "take-") || strings.HasPrefix(name, "hold-") {
				require.NoError(t, conn.Delete(path+"/zkrecipes/"+name, -1))
			}
		}

		it := <-got
		require.NotNil(t, it)
		require.Equal(t, "b", string(it.Data()))
		require.Equal(t, 1, it.Attempt()) // the other claim on it was not handed over
		time.Sleep(time.Minute)
		require.NoError(t, it.Err())
		require.Equal(t, []string{claimOf(it)}, children(t, operator, path+"/"+it.ID()))
		require.NoError(t, it.Ack(t.Context()))
	})
}

// An Ack or a Nack that the server refuses gives the item back, whatever the reason.
func TestRefusedAckOrNackGivesTheItemBack(t *testing.T) {
	noCreate, noDelete := zk.WorldACL(zk.PermAll&^zk.PermCreate), zk.WorldACL(zk.PermAll&^zk.PermDelete)
	ack := func(it *queue.Item) error { return it.Ack(t.Context()) }
	nack := func(it *queue.Item) error { return it.Nack(t.Context()) }
	for name, c := range map[string]struct {
		queue, dead []zk.ACL
		decide      func(*queue.Item) error
	}{
		"ack without the permission to delete": {noDelete, zk.WorldACL(zk.PermAll), ack},
		"nack into forbidden dead letters":     {zk.WorldACL(zk.PermAll), noCreate, nack},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				client, root := srv.Client(t), srv.Root(t)
				lasting(t, client, root+"/base")
				conn := suite.Session(t, client).Conn()
				for node, acl := range map[string][]zk.ACL{root + "/q": c.queue, root + "/dead": c.dead} {
					_, err := conn.Create(node, nil, 0, acl)
					require.NoError(t, err)
				}
				q := queue.New(client, root+"/q", queue.WithDeadLetter(queue.New(client, root+"/dead"), 1))
				offer(t, q, "x")
				it := reserve(t, q)

				require.ErrorIs(t, c.decide(it), zk.ErrNoAuth)
				require.ErrorIs(t, it.Err(), protocol.ErrReleased)
				require.Empty(t, children(t, client, root+"/q/"+it.ID()))
				it, err := queue.New(srv.Client(t), root+"/q").TryReserve(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2, it.Attempt())
				require.NoError(t, it.Nack(t.Context()))
				_, err = conn.SetACL(root+"/q", zk.WorldACL(zk.PermAll), -1) // the test's own clean-up
				require.NoError(t, err)
			})
		})
	}
}

// A foreign node below an entry keeps it from being removed, which is no loss of the item.
func TestAckOfAnEntryWithAnotherChild(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		client := srv.Client(t)
		path := lasting(t, client, srv.Root(t)+"/q")
		q := queue.New(client, path)
		offer(t, q, "x")
		it := reserve(t, q)
		node := path + "/" + it.ID()
		_, err := suite.Session(t, client).Conn().Create(node+"/foreign", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		err = it.Ack(t.Context())
		require.ErrorIs(t, err, zk.ErrNotEmpty)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.Equal(t, []string{"foreign"}, children(t, client, node))
	})
}

// The dead letters have no numbers left.
func TestNackIntoExhaustedDeadLetters(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	client, root := srv.Client(t), srv.Root(t)
	path, letters := lasting(t, client, root+"/q"), lasting(t, client, root+"/dead")
	_, err := suite.Session(t, client).Conn().Create(letters+"/qn-2147483647", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, srv.Embedded().SetSequence(letters, 1<<31-1))
	q := queue.New(client, path, queue.WithDeadLetter(queue.New(client, letters), 1))
	offer(t, q, "x")
	it := reserve(t, q)
	require.ErrorIs(t, it.Nack(t.Context()), protocol.ErrSequenceExhausted)
	require.Empty(t, children(t, client, path+"/"+it.ID()))
}

// An item whose attempts are used up, and that cannot be moved to the dead letters, does not stay
// reserved by the consumer that has tried, and does not keep it from others.
func TestItemThatCannotBecomeADeadLetterIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		client, log := logged(srv.Client(t))
		path := lasting(t, client, root+"/q")
		conn := suite.Session(t, client).Conn()
		_, err := conn.Create(root+"/dead", nil, 0, zk.WorldACL(zk.PermRead|zk.PermAdmin))
		require.NoError(t, err)
		q := queue.New(client, path, queue.WithDeadLetter(queue.New(client, root+"/dead"), 1))
		offer(t, q, "x", "good")
		it := reserve(t, queue.New(srv.Client(t), path))
		require.NoError(t, it.Nack(t.Context()))

		good, err := q.TryReserve(t.Context())
		require.NoError(t, err)
		require.Equal(t, "good", string(good.Data()))
		_, err = q.TryReserve(t.Context())
		require.NotErrorIs(t, err, queue.ErrEmpty)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, it.ID())
		require.Contains(t, log(), it.ID())
		require.Contains(t, log(), zk.ErrNoAuth.Error())
		synctest.Wait()
		require.Empty(t, children(t, client, path+"/"+it.ID()))
		require.NoError(t, good.Ack(t.Context()))

		// Once they take it, it goes there.
		_, err = conn.SetACL(root+"/dead", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, _ = q.TryReserve(t.Context()) // what counts is where the entry goes
			return len(entries(t, client, root+"/dead")) == 1
		}, time.Minute, time.Second)
	})
}

// Another client creates the dead letters' directory just when this one finds it missing.
func TestDeadLettersCreatedByAnotherClientMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator, root := srv.Client(t), srv.Root(t)
		path := lasting(t, operator, root+"/q")
		link := srv.Link(t)
		client := link.Client(t)
		letters := queue.New(operator, root+"/dead")
		q := queue.New(client, path, queue.WithDeadLetter(queue.New(client, root+"/dead"), 1))
		offer(t, q, "x")
		it := reserve(t, q)
		link.Delay(10 * time.Millisecond)

		refused := link.Answered(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
		done := make(chan error, 1)
		go func() { done <- it.Nack(t.Context()) }()
		await(t, refused)
		lasting(t, operator, root+"/dead")
		require.NoError(t, <-done)
		data, err := letters.Poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, "x", string(data))
	})
}

// What is reserved is looked at now and then, also the entries that are not watched.
func TestEachReservedEntryIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder, waiting := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		var items []*queue.Item
		for _, data := range numbered(0, 8) {
			offer(t, holder, string(data))
		}
		for range 8 {
			items = append(items, reserve(t, holder))
		}
		_, err := waiting.TryReserve(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		for _, i := range []int{7, 0, 6, 1} {
			require.NoError(t, items[i].Nack(t.Context()))
			again := reserve(t, waiting)
			require.Equal(t, items[i].ID(), again.ID())
			items[i] = again
		}
		for _, it := range items {
			require.NoError(t, it.Ack(t.Context()))
		}
	})
}

// The register names one entry. If several were released since it was read, all are found.
func TestAllReleasedEntriesAreFound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		items := reserved(t, 4, holder, heldBy(holder))
		_, err := other.TryReserve(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		for _, it := range items[:3] {
			require.NoError(t, it.Nack(t.Context()))
		}
		var found []string // in an order that is approximate beside another consumer
		for range 3 {
			it, err := other.TryReserve(t.Context())
			require.NoError(t, err)
			found = append(found, it.ID())
			require.NoError(t, it.Ack(t.Context()))
		}
		require.ElementsMatch(t, []string{items[0].ID(), items[1].ID(), items[2].ID()}, found)
		require.NoError(t, items[3].Ack(t.Context()))
	})
}

// An item whose claim is gone does not become a dead letter.
func TestLostItemIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	client, root := srv.Client(t), srv.Root(t)
	path := lasting(t, client, root+"/q")
	letters := queue.New(client, root+"/dead")
	q := queue.New(client, path, queue.WithDeadLetter(letters, 1))
	offer(t, q, "x")
	it := reserve(t, q)
	require.NoError(t, suite.Session(t, client).Conn().Delete(path+"/"+it.ID()+"/"+claimOf(it), -1))
	require.ErrorIs(t, it.Nack(patient(t)), protocol.ErrLost)
	n, err := letters.Len(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, []string{"x"}, drain(t, patient(t), q))
}
