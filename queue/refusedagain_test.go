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
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func poll(ctx context.Context, q *queue.Queue) error {
	_, err := q.Poll(ctx)
	return err
}

func offerX(ctx context.Context, q *queue.Queue) error {
	_, err := q.Offer(ctx, []byte("x"))
	return err
}

func offerKeyK(ctx context.Context, q *queue.Queue) error {
	_, err := q.OfferKey(ctx, "k", []byte("x"))
	return err
}

// The queue has one entry, which is reserved, and may have one. A call was made before, so what it
// needs is there. The next call makes another request, and returns the error of that.
func TestRefusedRequestEndsALaterCall(t *testing.T) {
	for name, r := range map[string]struct {
		op   recipestest.Op
		node string
		call func(context.Context, *queue.Queue) error
		want error // of the call that is not refused
	}{
		"Poll, listing":    {recipestest.OpGetChildren, "", poll, queue.ErrEmpty},
		"Poll, sync":       {recipestest.OpSync, "", poll, queue.ErrEmpty},
		"Offer, sync":      {recipestest.OpSync, "", offerX, queue.ErrFull},
		"Offer, length":    {recipestest.OpExists, "", offerX, queue.ErrFull},
		"OfferKey, memory": {recipestest.OpExists, "/zkrecipes/keys/k", offerKeyK, queue.ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				ctx, link, path := suite.Lasting(t), srv.Link(t), srv.Root(t)
				holder := queue.New(srv.Client(t), path)
				offer(t, holder, "a")
				it := reserve(t, holder)
				q := queue.New(link.Client(t), path, queue.WithMaxLength(1))
				require.ErrorIs(t, r.call(ctx, q), r.want)

				link.Fail(r.op, path+r.node, int32(zkwire.CodeNoAuth), 1)
				require.ErrorIs(t, r.call(ctx, q), zk.ErrNoAuth)
				require.ErrorIs(t, r.call(ctx, q), r.want)
				require.NoError(t, it.Ack(ctx))
			})
		})
	}
}

// The first Poll at a path finds out whether there is a queue, and creates its records.
func TestRefusedRequestEndsTheFirstPoll(t *testing.T) {
	for name, r := range map[string]struct {
		op   recipestest.Op
		node string
	}{
		"sync":    {recipestest.OpSync, ""},
		"listing": {recipestest.OpGetChildren, ""},
		"records": {recipestest.OpAny, "/zkrecipes"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				ctx, link := suite.Lasting(t), srv.Link(t)
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				create(t, operator, path+"/qn-0000000000", "x")
				q := queue.New(link.Client(t), path)
				link.Fail(r.op, path+r.node, int32(zkwire.CodeNoAuth), 1)
				require.ErrorIs(t, poll(ctx, q), zk.ErrNoAuth)
				require.NoError(t, poll(ctx, q))
			})
		})
	}
}

// A node that is missing at the moment of a request, and there at the next one, ends no call.
func TestNodeThatIsMissingForAMomentEndsNoCall(t *testing.T) {
	const noNode = int32(zkwire.CodeNoNode)

	t.Run("Poll, queue", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			ctx, link, path := suite.Lasting(t), srv.Link(t), srv.Root(t)
			q := queue.New(link.Client(t), path)
			offer(t, q, "a")
			require.NoError(t, poll(ctx, q))
			link.Fail(recipestest.OpGetChildren, path, noNode, 1)
			require.ErrorIs(t, poll(ctx, q), queue.ErrEmpty)
		})
	})
	t.Run("Poll, register", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			ctx, link, path := suite.Lasting(t), srv.Link(t), srv.Root(t)
			holder := queue.New(srv.Client(t), path)
			offer(t, holder, "a")
			it := reserve(t, holder)
			q := queue.New(link.Client(t), path)
			require.ErrorIs(t, poll(ctx, q), queue.ErrEmpty)
			require.NoError(t, it.Nack(ctx)) // which changes the register
			link.Fail(recipestest.OpGetData, path+"/zkrecipes", noNode, 1)
			require.NoError(t, poll(ctx, q))
		})
	})
	t.Run("Peek, entry", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			ctx, link, path := suite.Lasting(t), srv.Link(t), srv.Root(t)
			q := queue.New(link.Client(t), path)
			ids, err := q.OfferAll(ctx, [][]byte{[]byte("a"), []byte("b")})
			require.NoError(t, err)
			link.Fail(recipestest.OpGetData, path+"/"+ids[0], noNode, 1)
			data, err := q.Peek(ctx)
			require.NoError(t, err)
			require.Equal(t, "b", string(data))
		})
	})
	t.Run("OfferKey, keys", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			link, path := srv.Link(t), srv.Root(t)
			q := queue.New(link.Client(t), path)
			link.Fail(recipestest.OpCreate, path+"/zkrecipes/keys", noNode, 1)
			require.NoError(t, offerKeyK(suite.Lasting(t), q))
			require.Equal(t, []string{"x"}, drain(t, t.Context(), q))
		})
	})
	t.Run("OfferWait, queue", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			ctx, link, path := suite.Lasting(t), srv.Link(t), srv.Root(t)
			q := queue.New(link.Client(t), path, queue.WithMaxLength(1))
			offer(t, q, "a")
			link.Fail(recipestest.OpGetChildren, path, noNode, 1)
			offered := suite.Later(func() error { _, err := q.OfferWait(ctx, []byte("b")); return err })
			synctest.Wait()
			require.Equal(t, []string{"a"}, drain(t, ctx, queue.New(srv.Client(t), path)))
			require.NoError(t, suite.Wait(t, offered))
		})
	})
	t.Run("Offer in turn, receipts", func(t *testing.T) {
		suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			link, path := srv.Link(t), srv.Root(t)
			q := queue.New(link.Client(t), path, queue.WithMaxLength(10))
			other := queue.New(srv.Client(t), path, queue.WithMaxLength(10))
			offer(t, q, "a")
			offer(t, other, "b")
			link.Fail(recipestest.OpSetData, path+"/zkrecipes/receipts", noNode, 1)
			offer(t, q, "c") // which collides, and is in turn
			require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), q))
		})
	})
}

// A key for which there is no directory, and may be none, is refused.
func TestOfferKeyWithoutTheRightToRememberIt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		q := queue.New(link.Client(t), path)
		link.Fail(recipestest.OpCreate, path+"/zkrecipes/keys", int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, offerKeyK(suite.Lasting(t), q), zk.ErrNoAuth)
		require.NoError(t, offerKeyK(suite.Lasting(t), q))
		require.Equal(t, []string{"x"}, drain(t, t.Context(), q))
	})
}

// The transaction of an Ack is refused as a whole, once. The item comes back.
func TestRefusedTransactionOfAnAck(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		h.link.Fail(recipestest.OpMulti, h.path+"/"+h.items[0].ID(), int32(zkwire.CodeInvalidACL), 1)
		require.ErrorIs(t, h.items[0].Ack(t.Context()), zk.ErrInvalidACL)
		require.Equal(t, []string{"000001"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
	})
}

// The records have gone, and may not be created again. The item comes back.
func TestAckThatMayHaveNoReceipt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		time.Sleep(2 * time.Second) // by then the receipt has gone
		deleteRecords(t, h.operator, h.path)
		h.link.Fail(recipestest.OpAny, h.path+"/zkrecipes", int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, h.items[0].Ack(t.Context()), zk.ErrNoAuth)
		require.Equal(t, []string{"000001"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
	})
}

// A receipt that may not be written keeps a consumer from taking anything, and it says so.
func TestTakerWhoseReceiptMayNotBeWritten(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		offer(t, q, "a", "b")
		require.NoError(t, poll(t.Context(), q))
		for _, name := range children(t, operator, path+"/zkrecipes") {
			if strings.HasPrefix(name, "take-") {
				_, err := suite.Session(t, operator).Conn().SetACL(
					path+"/zkrecipes/"+name, zk.WorldACL(zk.PermRead), -1)
				require.NoError(t, err)
			}
		}
		require.ErrorIs(t, poll(t.Context(), q), zk.ErrNoAuth)
		require.Equal(t, []string{"b"}, drain(t, t.Context(), queue.New(operator, path)))
	})
}

// An answer is lost, and then the receipt cannot be read. So it is not known what became of the
// offer, even if the server would know.
func TestOfferWhoseReceiptCannotBeRead(t *testing.T) {
	for name, op := range map[string]recipestest.Op{"sync": recipestest.OpSync, "read": recipestest.OpGetData} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, operator := srv.Link(t), srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				q := queue.New(link.Client(t), path)
				offer(t, q, "a")
				receipts := children(t, operator, path+"/zkrecipes/receipts")
				require.Len(t, receipts, 1)
				link.Fail(op, path+"/zkrecipes/receipts/"+receipts[0], int32(zkwire.CodeInvalidACL), 1)
				link.LoseReply(recipestest.OpMulti, 1)
				_, err := q.Offer(suite.Lasting(t), []byte("b"))
				var uncertain *queue.UncertainError
				require.ErrorAs(t, err, &uncertain)
				require.ErrorIs(t, err, protocol.ErrUncertain)
				require.ErrorIs(t, err, zk.ErrInvalidACL)
				require.Equal(t, []string{"b"}, texts(uncertain.Data))
				offer(t, q, "c")
				require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), q))
			})
		})
	}
}
