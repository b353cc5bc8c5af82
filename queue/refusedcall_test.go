package queue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A refusal is a request that the server refuses once, with a call that makes it.
type refusal struct {
	op   recipestest.Op
	node string // below the queue's path; "first" and "last" stand for entries, "claim" for a claim
	code zkwire.Code
	call func(ctx context.Context, q *queue.Queue, first string) error
}

func peek(ctx context.Context, q *queue.Queue, _ string) error {
	_, err := q.Peek(ctx)
	return err
}

func free(ctx context.Context, q *queue.Queue, first string) error { return q.Free(ctx, first) }

func remove(ctx context.Context, q *queue.Queue, first string) error { return q.Remove(ctx, first) }

func drained(ctx context.Context, q *queue.Queue, _ string) error { return q.Drained(ctx) }

func listAll(ctx context.Context, q *queue.Queue, _ string) error {
	for _, err := range q.List(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

func offerOne(ctx context.Context, q *queue.Queue, _ string) error {
	_, err := q.Offer(ctx, nil)
	return err
}

func offerWait(ctx context.Context, q *queue.Queue, _ string) error {
	_, err := q.OfferWait(ctx, nil)
	return err
}

// The queue has two entries, of which the first is reserved by another session, and may have two. A
// call returns the error of the request that was refused, once, and does not hang.
func TestRefusedRequestEndsTheCallThatMadeIt(t *testing.T) {
	const noAuth, invalidACL = zkwire.CodeNoAuth, zkwire.CodeInvalidACL
	for name, r := range map[string]refusal{
		"Peek, sync":           {recipestest.OpSync, "", noAuth, peek},
		"Peek, listing":        {recipestest.OpGetChildren, "", noAuth, peek},
		"Peek, entry":          {recipestest.OpGetData, "/first", invalidACL, peek},
		"Free, sync":           {recipestest.OpSync, "", noAuth, free},
		"Free, claims":         {recipestest.OpGetChildren, "/first", noAuth, free},
		"Remove, claims":       {recipestest.OpGetChildren, "/first", noAuth, remove},
		"Drained, sync":        {recipestest.OpSync, "", noAuth, drained},
		"Drained, listing":     {recipestest.OpGetChildren, "", noAuth, drained},
		"Drained, last entry":  {recipestest.OpGetData, "/last", invalidACL, drained},
		"List, entry":          {recipestest.OpExists, "/first", invalidACL, listAll},
		"List, claims":         {recipestest.OpGetChildren, "/first", invalidACL, listAll},
		"List, claim":          {recipestest.OpExists, "/first/claim", invalidACL, listAll},
		"Offer, sync":          {recipestest.OpSync, "", noAuth, offerOne},
		"Offer, version":       {recipestest.OpExists, "/zkrecipes/receipts", noAuth, offerOne},
		"Offer, length":        {recipestest.OpExists, "", noAuth, offerOne},
		"OfferWait, first two": {recipestest.OpGetChildren, "", noAuth, offerWait},
		"OfferWait, entry":     {recipestest.OpGetData, "/first", noAuth, offerWait},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				ctx, link, root := suite.Lasting(t), srv.Link(t), srv.Root(t)
				holder := queue.New(srv.Client(t), root)
				first, err := holder.Offer(ctx, []byte("a"))
				require.NoError(t, err)
				last, err := holder.Offer(ctx, []byte("b"))
				require.NoError(t, err)
				it, err := holder.Reserve(ctx)
				require.NoError(t, err)
				require.Equal(t, first, it.ID())

				node := strings.NewReplacer("first", first, "last", last, "claim", claimOf(it)).Replace(r.node)
				c := link.Client(t)
				suite.Session(t, c)
				link.Fail(r.op, root+node, int32(r.code), 1)

				err = r.call(ctx, queue.New(c, root, queue.WithMaxLength(2)), first)
				want := zk.ErrNoAuth
				if r.code == invalidACL {
					want = zk.ErrInvalidACL
				}
				require.ErrorIs(t, err, want)
				link.Fail(r.op, root+node, int32(r.code), 0)

				if it.Err() == nil {
					require.NoError(t, it.Nack(ctx))
				}
				require.Len(t, exhaust(t, queue.New(c, root)), 2)
			})
		})
	}
}
