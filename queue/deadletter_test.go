package queue_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Nack returns why the dead letters do not take an item, and the item returns to its place.
func TestNackReturnsWhyThereIsNoDeadLetter(t *testing.T) {
	noCreate := zk.WorldACL(zk.PermAll &^ zk.PermCreate)
	for name, c := range map[string]struct {
		want   error
		refuse func(t *testing.T, conn *zk.Conn, link *recipestest.Link, closed, dead string)
	}{
		"their node may have no children": {zk.ErrNoAuth,
			func(t *testing.T, conn *zk.Conn, _ *recipestest.Link, _, dead string) {
				for _, node := range []string{dead, dead + "/zkrecipes", dead + "/zkrecipes/receipts"} {
					_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				_, err := conn.SetACL(dead, noCreate, -1)
				require.NoError(t, err)
			}},
		"their node may not be created": {zk.ErrNoAuth,
			func(t *testing.T, conn *zk.Conn, _ *recipestest.Link, closed, _ string) {
				_, err := conn.SetACL(closed, noCreate, -1)
				require.NoError(t, err)
			}},
		"their node may not be looked at": {zk.ErrInvalidACL,
			func(_ *testing.T, _ *zk.Conn, link *recipestest.Link, _, dead string) {
				link.Fail(recipestest.OpExists, dead, int32(zkwire.CodeInvalidACL), 1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				h := hold(t, srv, 0)
				closed := lasting(t, h.operator, srv.Root(t)+"/closed")
				dead := closed + "/dead"
				conn := suite.Session(t, h.operator).Conn()
				c.refuse(t, conn, h.link, closed, dead)
				defer open(conn, closed)
				q := queue.New(h.client, h.path, queue.WithDeadLetter(queue.New(h.client, dead), 1))
				offer(t, queue.New(h.operator, h.path), "x")

				require.ErrorIs(t, reserve(t, q).Nack(t.Context()), c.want)
				require.Equal(t, []string{"x"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
			})
		})
	}
}

// An entry is reserved once too often. What keeps it from becoming a dead letter is not to do with
// the dead letters. So it is tried again at once, and not set aside.
func TestDeadLetterIsTriedAgainAtOnce(t *testing.T) {
	for name, meddle := range map[string]func(t *testing.T, h *holding, id string){
		"the claim is deleted": func(t *testing.T, h *holding, id string) {
			for _, claim := range children(t, h.operator, h.path+"/"+id) {
				require.NoError(t, suite.Session(t, h.operator).Conn().Delete(h.path+"/"+id+"/"+claim, -1))
			}
		},
		"the data is changed": func(t *testing.T, h *holding, id string) {
			_, err := suite.Session(t, h.operator).Conn().Set(h.path+"/"+id, []byte("x"), -1)
			require.NoError(t, err)
		},
		"the outcome is unknown": func(t *testing.T, h *holding, _ string) {
			await(t, h.link.Sent(recipestest.OpMulti, h.link.Count(recipestest.OpMulti)+1))
			h.link.Cut() // the answer is lost
			h.link.Heal()
			receipts := h.path + "/zkrecipes/receipts"
			for _, name := range children(t, h.operator, receipts) {
				require.NoError(t, suite.Session(t, h.operator).Conn().Delete(receipts+"/"+name, -1))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				h := hold(t, srv, 0)
				dead := lasting(t, h.operator, srv.Root(t)+"/dead")
				lasting(t, h.operator, dead+"/zkrecipes/receipts")
				q := queue.New(h.client, h.path, queue.WithDeadLetter(queue.New(h.client, dead), 1))
				operated := queue.New(h.operator, h.path)
				offer(t, operated, "x")
				it := reserve(t, operated)
				require.NoError(t, it.Nack(t.Context()))

				h.link.Delay(10 * time.Millisecond)
				asked := h.link.Sent(recipestest.OpExists, h.link.Count(recipestest.OpExists)+1)
				done := make(chan error, 1)
				go func() { _, err := q.TryReserve(t.Context()); done <- err }()
				await(t, asked)
				meddle(t, h, it.ID())
				require.ErrorIs(t, <-done, queue.ErrEmpty)
				require.Len(t, entries(t, h.operator, dead), 1)
				require.Empty(t, h.entries(t))
			})
		})
	}
}

// The session is lost while an entry becomes a dead letter. Reserve goes on in the next session.
func TestReserveGoesOnAfterADeadLetterInTheNextSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 0)
		dead := queue.New(h.client, lasting(t, h.operator, srv.Root(t)+"/dead"))
		q := queue.New(h.client, h.path, queue.WithDeadLetter(dead, 1))
		operated := queue.New(h.operator, h.path)
		offer(t, operated, "x")
		require.NoError(t, reserve(t, operated).Nack(t.Context()))

		h.link.Delay(10 * time.Millisecond)
		session := suite.Session(t, h.client)
		asked := h.link.Sent(recipestest.OpExists, h.link.Count(recipestest.OpExists)+1)
		got := suite.Later(func() *queue.Item {
			it, _ := q.Reserve(suite.Lasting(t))
			return it
		})
		await(t, asked)
		srv.ExpireSession(session.ID())
		offer(t, operated, "y")
		it := <-got
		require.NotNil(t, it)
		require.Equal(t, "y", string(it.Data()))
		require.ErrorIs(t, session.Err(), protocol.ErrLost)
		require.NoError(t, it.Ack(t.Context()))
		left := append(drain(t, t.Context(), dead), drain(t, t.Context(), operated)...)
		require.Equal(t, []string{"x"}, left)
	})
}
