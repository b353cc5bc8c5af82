package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Each verb fails without the permissions that the package documentation says, and without no
// other.
func TestPermissionsThatVerbsNeed(t *testing.T) {
	t.Parallel()
	type call func(context.Context) error
	item := func(end func(context.Context, *queue.Item) error) func(*testing.T, *queue.Queue) call {
		return func(t *testing.T, q *queue.Queue) call {
			it := reserve(t, q)
			return func(ctx context.Context) error { return end(ctx, it) }
		}
	}
	verbs := map[string]struct {
		begin func(*testing.T, *queue.Queue) call
		needs string
	}{
		"Offer": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.Offer(ctx, []byte("x")); return err }
		}, "queue:c receipts:c"},
		"OfferAfter": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.OfferAfter(ctx, 0, []byte("x")); return err }
		}, "queue:c receipts:c zkrecipes:w"},
		"OfferKey": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.OfferKey(ctx, "k", []byte("x")); return err }
		}, "keys:c queue:c receipts:c"},
		"Poll": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.Poll(ctx); return err }
		}, "entry:r queue:d queue:r zkrecipes:c"},
		"TryReserve": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.TryReserve(ctx); return err }
		}, "entry:c entry:r entry:w queue:r zkrecipes:c"},
		"Ack":    {item(ack), "entry:d queue:d receipts:c"},
		"Nack":   {item(nack), "entry:d receipts:c zkrecipes:w"},
		"AtTail": {item(atTail), "entry:d queue:c queue:d receipts:c zkrecipes:w"},
		"Peek": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { _, err := q.Peek(ctx); return err }
		}, "entry:r queue:r"},
		"List": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error {
				for _, err := range q.List(ctx) {
					return err
				}
				return errors.New("no entries")
			}
		}, "queue:r"},
		"Remove": {func(_ *testing.T, q *queue.Queue) call {
			return func(ctx context.Context) error { return q.Remove(ctx, "qn-0000000000") }
		}, "queue:d"},
		"Remove of a reserved entry": {func(t *testing.T, q *queue.Queue) call {
			it := reserve(t, q)
			return func(ctx context.Context) error { return q.Remove(ctx, it.ID()) }
		}, "entry:d entry:r queue:d"},
		"Free": {func(t *testing.T, q *queue.Queue) call {
			it := reserve(t, q)
			return func(ctx context.Context) error { return q.Free(ctx, it.ID()) }
		}, "entry:d entry:r"},
	}
	nodes := map[string]string{
		"queue": "", "entry": "/qn-0000000000", "zkrecipes": "/zkrecipes", "receipts": "/zkrecipes/receipts",
		"keys": "/zkrecipes/keys",
	}
	permissions := map[string]int32{"c": zk.PermCreate, "d": zk.PermDelete, "r": zk.PermRead, "w": zk.PermWrite}

	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				conn := suite.Session(t, operator).Conn()
				var needs []string
				for node, at := range nodes {
					for letter, permission := range permissions {
						path := lasting(t, operator, fmt.Sprintf("%s/%s-%s", srv.Root(t), node, letter))
						for _, node := range []string{
							"/qn-0000000000", "/zkrecipes", "/zkrecipes/receipts", "/zkrecipes/keys",
						} {
							lasting(t, operator, path+node)
						}

						client := srv.Client(t)
						call := verb.begin(t, queue.New(client, path))
						_, err := conn.SetACL(path+at, zk.WorldACL(zk.PermAll&^permission), -1)
						require.NoError(t, err)
						if errors.Is(call(t.Context()), zk.ErrNoAuth) {
							needs = append(needs, node+":"+letter)
						}
						open(conn, path)
						suite.Close(t, client)
					}
				}
				slices.Sort(needs)
				require.Equal(t, verb.needs, strings.Join(needs, " "))
			})
		})
	}
}
