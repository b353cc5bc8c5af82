package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestFirstInFirstOut(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		ctx := patient(t)
		_, err := q.Poll(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Peek(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)

		id, err := q.Offer(ctx, []byte("a"))
		require.NoError(t, err)
		require.Equal(t, "qn-0000000001", id) // the records came first
		ids, err := other.OfferAll(ctx, [][]byte{[]byte("b"), nil, []byte("d")})
		require.NoError(t, err)
		require.Equal(t, []string{"qn-0000000002", "qn-0000000003", "qn-0000000004"}, ids)

		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		data, err := other.Peek(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(data))
		data, err = other.Poll(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(data))
		all, err := q.PollN(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"b", ""}, texts(all))
		data, err = other.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, "d", string(data))
		_, err = q.PollN(ctx, 2)
		require.ErrorIs(t, err, queue.ErrEmpty)
	})
}

func TestTakeWaits(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		ctx := patient(t)
		var wait suite.Group
		for range 3 {
			wait.Go(func() error {
				_, err := q.Take(ctx)
				return err
			})
		}
		await(t, link.Answered(recipestest.OpGetChildren, 3))
		offer(t, queue.New(srv.Client(t), path), "a", "b", "c")
		require.NoError(t, wait.Wait())
	})
}

func TestReserve(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		ctx := patient(t)
		offer(t, q, "a", "b")

		a, err := q.Reserve(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(a.Data()))
		require.Equal(t, "qn-0000000001", a.ID())
		require.Equal(t, 1, a.Attempt())
		require.NoError(t, a.Err())
		b, err := other.TryReserve(ctx)
		require.NoError(t, err)
		require.Equal(t, "b", string(b.Data()))
		require.Greater(t, b.Token(), a.Token())
		_, err = other.TryReserve(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Poll(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, n)

		require.NoError(t, a.Nack(ctx))
		require.ErrorIs(t, a.Err(), protocol.ErrReleased)
		require.ErrorIs(t, a.Ack(ctx), protocol.ErrReleased)
		again, err := other.Reserve(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(again.Data()))
		require.Equal(t, 2, again.Attempt())
		require.NoError(t, b.Ack(ctx))
		require.NoError(t, b.Ack(ctx))
		require.NoError(t, again.Ack(ctx))
		_, err = q.TryReserve(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		require.Equal(t, []string{"zkrecipes"}, children(t, srv.Client(t), path))
	})
}

func TestItems(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		q := queue.New(srv.Client(t), srv.Root(t)+"/q")
		ctx, cancel := context.WithCancel(patient(t))
		defer cancel()
		offer(t, q, "a", "b", "c")
		var seen []string
		for it, err := range q.Items(ctx) {
			require.NoError(t, err)
			seen = append(seen, string(it.Data()))
			require.NoError(t, it.Ack(patient(t)))
			if len(seen) == 3 {
				cancel()
			}
		}
		require.Equal(t, []string{"a", "b", "c"}, seen)
	})
}

// The most that is asked for is the sum of what all callers ask for.
func TestPollNOfAllBesideATake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 1)
		q := queue.New(stage.Clients[0], stage.Root(t)+"/q")
		taken := make(chan []byte, 1)
		go func() {
			data, err := q.Take(t.Context())
			assert.NoError(t, err)
			taken <- data
		}()
		synctest.Wait() // it waits

		_, err := q.PollN(t.Context(), math.MaxInt)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Offer(t.Context(), []byte("a"))
		require.NoError(t, err)
		require.Equal(t, "a", string(<-taken))
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	srv, link, c := oblivious(t)
	root := srv.Root(t)
	before := link.Count(recipestest.OpAny)
	good := queue.New(c, root+"/q")
	for name, q := range map[string]*queue.Queue{
		"nil client":   queue.New(nil, root+"/q"),
		"empty path":   queue.New(c, ""),
		"root":         queue.New(c, "/"),
		"bad length":   queue.New(c, root+"/q", queue.WithMaxLength(0)),
		"no letters":   queue.New(c, root+"/q", queue.WithDeadLetter(nil, 1)),
		"own letters":  queue.New(c, root+"/q", queue.WithDeadLetter(good, 1)),
		"no attempts":  queue.New(c, root+"/q", queue.WithDeadLetter(queue.New(c, root+"/d"), 0)),
		"dead of nil":  queue.New(c, root+"/q", queue.WithDeadLetter(queue.New(nil, root+"/d"), 1)),
		"dead nowhere": queue.New(c, root+"/q", queue.WithDeadLetter(queue.New(c, "d/"), 1)),
		"bad in a bad": queue.New(c, root+"/q", queue.WithDeadLetter(queue.New(c, root+"/d", queue.WithMaxLength(-1)), 1)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range verbs(q) {
				require.Error(t, verb(t.Context()))
			}
		})
	}
	_, err := good.PollN(t.Context(), 0)
	require.Error(t, err)
	_, err = good.Offer(t.Context(), make([]byte, recipe.MaxData))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	_, err = good.OfferAll(t.Context(), [][]byte{make([]byte, recipe.MaxData/2), make([]byte, recipe.MaxData/2)})
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	_, err = good.OfferAll(t.Context(), make([][]byte, recipe.MaxData/50))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	ids, err := good.OfferAll(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, ids)
	require.Equal(t, before, link.Count(recipestest.OpAny))

	_, err = good.Offer(t.Context(), make([]byte, recipe.MaxData-len(root+"/q")))
	require.NoError(t, err)
	_, err = good.OfferAll(t.Context(), make([][]byte, 5000))
	require.NoError(t, err)
	require.Len(t, drain(t, patient(t), good), 5001)
}

// verbs are all that can be done to a queue.
func verbs(q *queue.Queue) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Offer":      func(ctx context.Context) error { _, err := q.Offer(ctx, nil); return err },
		"OfferAll":   func(ctx context.Context) error { _, err := q.OfferAll(ctx, numbered(0, 2)); return err },
		"OfferAfter": func(ctx context.Context) error { _, err := q.OfferAfter(ctx, 0, nil); return err },
		"OfferKey":   func(ctx context.Context) error { _, err := q.OfferKey(ctx, "k", nil); return err },
		"OfferWait":  func(ctx context.Context) error { _, err := q.OfferWait(ctx, nil); return err },
		"Take":       func(ctx context.Context) error { _, err := q.Take(ctx); return err },
		"Poll":       func(ctx context.Context) error { _, err := q.Poll(ctx); return err },
		"PollN":      func(ctx context.Context) error { _, err := q.PollN(ctx, 2); return err },
		"Peek":       func(ctx context.Context) error { _, err := q.Peek(ctx); return err },
		"Len":        func(ctx context.Context) error { _, err := q.Len(ctx); return err },
		"Reserve":    func(ctx context.Context) error { _, err := q.Reserve(ctx); return err },
		"TryReserve": func(ctx context.Context) error { _, err := q.TryReserve(ctx); return err },
		"Items": func(ctx context.Context) error {
			for _, err := range q.Items(ctx) {
				return err
			}
			return nil
		},
		"List": func(ctx context.Context) error {
			for _, err := range q.List(ctx) {
				return err
			}
			return nil
		},
		"Remove":  func(ctx context.Context) error { return q.Remove(ctx, "qn-0000000000") },
		"Free":    func(ctx context.Context) error { return q.Free(ctx, "qn-0000000000") },
		"Drained": q.Drained,
	}
}

func TestAfterClose(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c := srv.Client(t)
	q := queue.New(c, srv.Root(t)+"/q")
	offer(t, q, "a")
	suite.Close(t, c)
	for name, verb := range verbs(q) {
		require.ErrorIs(t, verb(t.Context()), protocol.ErrClosed, name)
	}
}

func TestCloseEndsWaits(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		q := queue.New(c, srv.Root(t)+"/q")
		failed := make(chan error, 2)
		go func() { _, err := q.Take(t.Context()); failed <- err }()
		go func() { _, err := q.Reserve(t.Context()); failed <- err }()
		await(t, link.Answered(recipestest.OpExists, 1))
		suite.Close(t, c)
		require.ErrorIs(t, <-failed, protocol.ErrClosed)
		require.ErrorIs(t, <-failed, protocol.ErrClosed)
	})
}

func TestEndedContextDoesNothing(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	q := queue.New(srv.Client(t), srv.Root(t)+"/q")
	offer(t, q, "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for name, verb := range verbs(q) {
		err := verb(ctx)
		if name == "Items" || name == "Consume" { // which go on until then
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, protocol.ErrUncertain, name)
		require.ErrorContains(t, err, "enough", name)
	}
	require.Equal(t, []string{"a"}, drain(t, patient(t), q))
}

// Expiry while blocked: the wait goes on in the next session.
func TestWaitGoesOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		link := srv.Link(t)
		c := link.Client(t)
		q := queue.New(c, path)
		ctx := patient(t)
		got := make(chan string, 2)
		var wait suite.Group
		wait.Go(func() error { data, err := q.Take(ctx); got <- string(data); return err })
		wait.Go(func() error {
			it, err := q.Reserve(ctx)
			if err != nil {
				return err
			}
			got <- string(it.Data())
			return it.Ack(ctx)
		})
		await(t, link.Answered(recipestest.OpGetChildren, 3))
		srv.ExpireSession(suite.Session(t, c).ID())
		offer(t, queue.New(srv.Client(t), path), "a", "b")
		require.NoError(t, wait.Wait())
		require.ElementsMatch(t, []string{"a", "b"}, []string{<-got, <-got})
	})
}

func TestOtherNodesAreLeftAlone(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		names := []string{"README", "qn-", "qn-1", "qn-00000000012", "x-qn-0000000000", "qn-+000000001", "qn-qn-0000000000", "lock-0000000001"}
		for _, name := range names {
			_, err := suite.Session(t, c).Conn().Create(path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		q := queue.New(c, path)
		ctx := patient(t)
		_, err := q.Poll(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		offer(t, q, "a")
		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"a"}, drain(t, ctx, q))
		require.Len(t, children(t, c, path), len(names)+1) // and the records
	})
}

// What the Java DistributedQueue writes is read, and it finds what we write.
func TestForeignEntries(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		conn := suite.Session(t, c).Conn()
		_, err := conn.Create(path+"/qn-", []byte("theirs"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		q := queue.New(c, path)
		offer(t, q, "ours")
		require.Equal(t, []string{"qn-0000000000", "qn-0000000002", "zkrecipes"}, children(t, c, path))
		require.NoError(t, conn.Delete(path+"/qn-0000000000", -1))
		_, err = conn.Set(path+"/qn-0000000002", []byte("changed"), -1)
		require.NoError(t, err)
		require.Equal(t, []string{"changed"}, drain(t, patient(t), q))
	})
}

// A queue whose node is a container is reaped when it is empty, and created again by the next
// offer.
func TestReapedQueueIsCreatedAgain(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	path, client := srv.Root(t)+"/q", srv.Client(t)
	session := suite.Session(t, client)
	consumer := srv.Client(t)
	q, other := queue.New(client, path), queue.New(consumer, path)
	ctx := patient(t)
	for i := range 5 {
		_, err := session.EnsurePath(ctx, path)
		require.NoError(t, err)
		want := []string{fmt.Sprint(i), "b", "c"}
		offer(t, q, want...)
		suite.CatchUp(t, consumer)   // otherwise it may remove what it takes for an entry of the deleted queue
		data, err := other.Take(ctx) // which knows the others now
		require.NoError(t, err)
		require.Equal(t, want[0], string(data))
		require.Equal(t, want[1:], drain(t, ctx, q))
		srv.Embedded().ReapContainers()
		if i%2 == 0 { // with and without the event
			suite.CatchUp(t, client)
		}
		offer(t, q, "created again")
		require.Equal(t, []string{"created again"}, drain(t, ctx, q))
		wipe(t, client, path)
	}
}

// A queue needs rights on its own node only. Here that node belongs to one identity, and its parent
// may be read and no more.
func TestQueueNeedsItsOwnNodeOnly(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const scheme, user, password = "digest", "mail", "secret"
		acl := zk.DigestACL(zk.PermAll, user, password)
		identity := protocol.WithAuth(scheme, []byte(user+":"+password))
		operator := srv.Client(t, identity)
		root := lasting(t, operator, srv.Root(t)+"/queues")
		path := root + "/mail"
		conn := suite.Session(t, operator).Conn()
		_, err := conn.Create(path, nil, 0, acl)
		require.NoError(t, err)
		_, err = conn.SetACL(root, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		t.Cleanup(func() { open(conn, root) })

		newQueue := func() *queue.Queue {
			return queue.New(srv.Client(t, identity, protocol.WithACL(acl)), path)
		}
		q, other := newQueue(), newQueue()
		for name, use := range map[string]func(t *testing.T){
			"Offer and Poll": func(t *testing.T) {
				offer(t, q, "a")
				data, err := q.Poll(t.Context())
				require.NoError(t, err)
				require.Equal(t, "a", string(data))
			},
			"OfferAll and PollN": func(t *testing.T) {
				_, err := q.OfferAll(t.Context(), numbered(0, 3))
				require.NoError(t, err)
				data, err := q.PollN(t.Context(), 3)
				require.NoError(t, err)
				require.Equal(t, texts(numbered(0, 3)), texts(data))
			},
			"Reserve, Nack and Ack": func(t *testing.T) {
				offer(t, q, "a")
				it, err := q.Reserve(t.Context())
				require.NoError(t, err)
				require.NoError(t, it.Nack(t.Context()))
				it, err = q.TryReserve(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2, it.Attempt())
				require.NoError(t, it.Ack(t.Context()))
			},
			"a Take that waits": func(t *testing.T) {
				taken := suite.Later(func() string {
					data, _ := q.Take(patient(t))
					return string(data)
				})
				offer(t, other, "a")
				require.Equal(t, "a", suite.Wait(t, taken))
			},
			"Len and Peek": func(t *testing.T) {
				offer(t, q, "a")
				n, err := other.Len(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				data, err := other.Peek(t.Context())
				require.NoError(t, err)
				require.Equal(t, "a", string(data))
			},
		} {
			t.Log(name)
			use(t)
			drain(t, t.Context(), q)
		}
	})
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

// An answer is lost, and then the receipt cannot be read. So it is not known what became of the
// offer, even if the server would know.
func TestOfferWhoseReceiptCannotBeRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, operator := srv.Link(t), srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(link.Client(t), path)
		offer(t, q, "a")
		receipts := children(t, operator, path+"/zkrecipes/receipts")
		require.Len(t, receipts, 1)
		link.Fail(recipestest.OpGetData, path+"/zkrecipes/receipts/"+receipts[0], int32(zkwire.CodeInvalidACL), 1)
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
}
