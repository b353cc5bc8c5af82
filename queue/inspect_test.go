package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// The node of the records has number 0.
const firstID, secondID = "qn-0000000001", "qn-0000000002"

// list returns what List yields.
func list(t testing.TB, q *queue.Queue) (all []queue.Info) {
	t.Helper()
	for info, err := range q.List(suite.Lasting(t)) {
		require.NoError(t, err)
		all = append(all, info)
	}
	return all
}

func idsOf(all []queue.Info) (ids []string) {
	for _, info := range all {
		ids = append(ids, info.ID)
	}
	return ids
}

func length(t testing.TB, q *queue.Queue) int {
	t.Helper()
	n, err := q.Len(suite.Lasting(t))
	require.NoError(t, err)
	return n
}

// put creates a node with these permissions for all.
func put(t testing.TB, c *protocol.Client, path, data string, permissions int32) {
	t.Helper()
	_, err := suite.Session(t, c).Conn().Create(path, []byte(data), 0, zk.WorldACL(permissions))
	require.NoError(t, err)
}

func TestListSaysWhatBecameOfEachEntry(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator, consumer := srv.Client(t), srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(operator, path)
		offer(t, q, "a", "bb", "")
		suite.CatchUp(t, consumer)
		consuming := queue.New(consumer, path)
		require.NoError(t, reserve(t, consuming).Nack(t.Context()))
		held := reserve(t, consuming)
		require.Equal(t, firstID, held.ID())

		for _, foreign := range []string{"README", "qn-", "qn-1", "entry-050-0000000009", "item-1-2-3-0000000009"} {
			put(t, operator, path+"/"+foreign, "", zk.PermAll)
		}
		due, offered := time.Now().Add(time.Hour).Truncate(time.Millisecond), time.UnixMilli(1_000_000)
		delayed := fmt.Sprintf("item-%d-%d-3-100--0000000004", due.UnixMilli(), offered.UnixMilli())
		const letter = "item-0-0-2-50-%2Fq%2D1: failed-0000000005"
		put(t, operator, path+"/"+delayed, "later", zk.PermAll)
		put(t, operator, path+"/"+letter, "dead", zk.PermAll)

		since := func(id string) time.Time {
			_, stat := suite.Get(t, operator, path+"/"+id)
			return time.UnixMilli(stat.Ctime)
		}
		_, claim := suite.Get(t, operator, path+"/"+firstID+"/"+claimOf(held))
		require.Equal(t, []queue.Info{
			{ID: letter, Size: 4, Since: since(letter), Attempts: 2, Priority: 50, Origin: "/q-1: failed"},
			{
				ID: firstID, Size: 1, Since: since(firstID), Attempts: 2, Priority: 100,
				Holder: suite.Session(t, consumer).ID(), HeldSince: time.UnixMilli(claim.Ctime),
			},
			{ID: secondID, Size: 2, Since: since(secondID), Priority: 100},
			{ID: "qn-0000000003", Since: since("qn-0000000003"), Priority: 100},
			{ID: delayed, Size: 5, Since: offered, Attempts: 3, Due: due, Priority: 100},
		}, list(t, q))
		require.Equal(t, 5, length(t, q))
		require.NoError(t, held.Ack(t.Context()))
	})
}

// A long list is read in pieces, and no further than the loop goes.
func TestListOfThousands(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		require.Empty(t, list(t, queue.New(c, path+"/none")))
		ids, err := q.OfferAll(t.Context(), numbered(0, 2000))
		require.NoError(t, err)
		require.Equal(t, ids, idsOf(list(t, q)))
		require.Equal(t, 2000, length(t, q))

		reads := link.Count(recipestest.OpExists)
		for info, err := range q.List(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, firstID, info.ID)
			break
		}
		require.LessOrEqual(t, link.Count(recipestest.OpExists)-reads, 64)

		// What goes before it is read is left out.
		other := queue.New(srv.Client(t), path)
		var found []string
		for info, err := range q.List(t.Context()) {
			require.NoError(t, err)
			if found = append(found, info.ID); len(found) == 1 {
				require.Len(t, drain(t, patient(t), other), 2000)
				suite.CatchUp(t, c)
			}
		}
		require.Equal(t, ids[:64], found)
	})
}

// At each step of a List its only entry is given back, acknowledged or removed.
func TestEntryChangesDuringList(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(context.Context, *queue.Item, *queue.Queue) error{
		"nack":   func(ctx context.Context, it *queue.Item, _ *queue.Queue) error { return it.Nack(ctx) },
		"ack":    func(ctx context.Context, it *queue.Item, _ *queue.Queue) error { return it.Ack(ctx) },
		"remove": func(ctx context.Context, it *queue.Item, q *queue.Queue) error { return q.Remove(ctx, it.ID()) },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				consumer := srv.Client(t)
				path := lasting(t, consumer, srv.Root(t)+"/q")
				other := queue.New(consumer, path)
				suite.Sweep(t, func(step int) bool {
					offer(t, other, "x")
					it := reserve(t, other)
					link := srv.Link(t)
					q := queue.New(link.Client(t), path)
					suite.Session(t, link.Client(t))
					met := suite.At(link, step, func() { assert.NoError(t, change(t.Context(), it, other)) })
					for _, info := range list(t, q) {
						require.Equal(t, it.ID(), info.ID)
						require.Equal(t, 1, info.Attempts)
						require.Equal(t, info.Holder == 0, info.HeldSince.IsZero())
					}
					changed := met()
					if !changed {
						require.NoError(t, change(t.Context(), it, other))
					}
					drain(t, patient(t), other)
					return changed
				})
			})
		})
	}
}

func TestListGoesOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		want, err := queue.New(srv.Client(t), path).OfferAll(t.Context(), numbered(0, 200))
		require.NoError(t, err)

		var found []string
		for info, err := range queue.New(c, path).List(patient(t)) {
			require.NoError(t, err)
			if found = append(found, info.ID); len(found) == 1 {
				srv.ExpireSession(suite.Session(t, c).ID())
			}
		}
		require.Equal(t, want, found)
	})
}

func TestPeekSkipsWhatCannotBeTaken(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		put(t, c, fmt.Sprintf("%s/item-%d-0-0-050--0000000009", path, time.Now().Add(time.Hour).UnixMilli()), "later", zk.PermAll)
		_, err := q.Peek(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		put(t, c, path+"/"+firstID, "secret", zk.PermAll&^zk.PermRead)
		_, err = q.Peek(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, firstID)

		put(t, c, path+"/"+secondID, "held", zk.PermAll)
		put(t, c, path+"/"+secondID+"/claim", "", zk.PermAll)
		put(t, c, path+"/qn-0000000003", "free", zk.PermAll)
		data, err := q.Peek(t.Context())
		require.NoError(t, err)
		require.Equal(t, "free", string(data))
	})
}

func TestRemove(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q, other := queue.New(operator, path), queue.New(srv.Client(t), path)
		offer(t, other, "a", "b", "c")
		it := reserve(t, other)
		require.NoError(t, q.Remove(t.Context(), it.ID()))
		await(t, it.Done())
		require.ErrorIs(t, it.Err(), protocol.ErrLost)
		require.ErrorIs(t, it.Ack(t.Context()), protocol.ErrLost)
		require.NoError(t, q.Remove(t.Context(), secondID))

		for _, gone := range []string{it.ID(), secondID, "item-1-2-3-4--0000000009"} {
			err := q.Remove(t.Context(), gone)
			require.ErrorIs(t, err, zk.ErrNoNode)
			require.ErrorContains(t, err, gone)
		}
		require.Equal(t, []string{"c"}, drain(t, patient(t), q))
	})
}

// At each step of a Remove the entry is reserved or given back, the connection breaks, or the
// session expires.
func TestRemoveAtEachStep(t *testing.T) {
	t.Parallel()
	type scene struct {
		ctx     context.Context
		srv     *recipestest.Server
		link    *recipestest.Link
		session int64
		other   *queue.Queue
		it      *queue.Item
	}
	cut := func(s scene) error { s.link.Cut(); s.link.Heal(); return nil }
	expire := func(s scene) error { suite.Expire(s.srv, s.session); return nil }
	reserve := func(s scene) error {
		if _, err := s.other.TryReserve(s.ctx); !errors.Is(err, queue.ErrEmpty) {
			return err
		}
		return nil // it came too late
	}
	for name, test := range map[string]struct {
		reserved bool
		change   func(scene) error
	}{
		"reserve": {false, reserve},
		"nack": {true, func(s scene) error {
			if err := s.it.Nack(s.ctx); !errors.Is(err, protocol.ErrLost) {
				return err
			}
			return nil // likewise
		}},
		"cut, free":        {false, cut},
		"cut, reserved":    {true, cut},
		"expiry, free":     {false, expire},
		"expiry, reserved": {true, expire},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				suite.Sweep(t, func(step int) bool {
					link := srv.Link(t)
					c := link.Client(t)
					s := scene{t.Context(), srv, link, suite.Session(t, c).ID(), queue.New(srv.Client(t), path), nil}
					id, err := s.other.Offer(t.Context(), nil)
					require.NoError(t, err)
					if test.reserved {
						s.it, err = s.other.Reserve(t.Context())
						require.NoError(t, err)
					}

					met := suite.At(link, step, func() { assert.NoError(t, test.change(s)) })
					require.NoError(t, queue.New(c, path).Remove(patient(t), id))
					changed := met()
					require.Zero(t, length(t, s.other))
					return changed
				})
			})
		})
	}
}

// answerLost runs a verb on a reserved entry, and calls lose when the server has executed it and
// the answer is on its way.
func answerLost(t *testing.T, verb func(context.Context, *queue.Queue, string) error,
	lose func(*recipestest.Server, *recipestest.Link, *protocol.Session)) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		other := queue.New(srv.Client(t), path)
		offer(t, other, "x")
		it := reserve(t, other)
		next := make(chan *queue.Item, 1)
		go func() { // gets what is freed
			it, _ := queue.New(srv.Client(t), path).Reserve(t.Context())
			next <- it
		}()
		time.Sleep(time.Second) // until claims are watched
		link := srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		link.Delay(100 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- verb(t.Context(), queue.New(c, path), it.ID()) }()
		await(t, it.Done())
		synctest.Wait()
		lose(srv, link, s)
		require.NoError(t, <-done)
		synctest.Wait()

		// The next reservation is spared.
		if length(t, other) > 0 {
			it := <-next
			require.NoError(t, it.Err())
			require.NoError(t, it.Ack(t.Context()))
		} else {
			offer(t, other, "y")
			require.NoError(t, (<-next).Ack(t.Context()))
		}
	})
}

func TestLostAnswersOfRemoveAndFree(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(context.Context, *queue.Queue, string) error{
		"Remove": func(ctx context.Context, q *queue.Queue, id string) error { return q.Remove(ctx, id) },
		"Free":   func(ctx context.Context, q *queue.Queue, id string) error { return q.Free(ctx, id) },
	} {
		t.Run(name, func(t *testing.T) {
			answerLost(t, verb, func(_ *recipestest.Server, link *recipestest.Link, _ *protocol.Session) {
				link.Cut()
				link.Heal()
			})
		})
		t.Run(name+", with the session", func(t *testing.T) {
			answerLost(t, verb, func(srv *recipestest.Server, link *recipestest.Link, s *protocol.Session) {
				link.Cut()
				srv.ExpireSession(s.ID())
				link.Heal()
			})
		})
	}
}

func TestFree(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		holder, q := queue.New(srv.Client(t), path), queue.New(operator, path)
		offer(t, holder, "x")
		it := reserve(t, holder)
		link := srv.Link(t)
		waiting := queue.New(link.Client(t), path)
		next := make(chan string, 1)
		var wait suite.Group
		wait.Go(func() error { data, err := waiting.Take(patient(t)); next <- string(data); return err })
		await(t, link.Answered(recipestest.OpGetChildren, 3))

		require.NoError(t, q.Free(t.Context(), it.ID()))
		data, stat := suite.Get(t, operator, path+"/zkrecipes")
		require.Equal(t, it.ID(), string(data))
		require.Positive(t, stat.Version)
		await(t, it.Done())
		require.ErrorIs(t, it.Ack(t.Context()), protocol.ErrLost)
		require.NoError(t, wait.Wait())
		require.Equal(t, "x", <-next)
	})
}

// Without the permission to write to the register, what is freed is found all the same, in time.
func TestFreeWithoutTheRegister(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		put(t, operator, path+"/zkrecipes", "", zk.PermAll&^zk.PermWrite)
		holder, q := queue.New(srv.Client(t), path), queue.New(operator, path)
		offer(t, holder, "x")
		it := reserve(t, holder)
		next := suite.Later(func() error { _, err := queue.New(srv.Client(t), path).Take(patient(t)); return err })
		time.Sleep(time.Second)
		require.NoError(t, q.Free(t.Context(), it.ID()))
		await(t, it.Done())
		require.NoError(t, <-next)

		// And where there is no register.
		path = lasting(t, operator, path+"-raw")
		put(t, operator, path+"/"+firstID, "", zk.PermAll)
		put(t, operator, path+"/"+firstID+"/claim", "", zk.PermAll)
		require.NoError(t, queue.New(operator, path).Free(t.Context(), firstID))
		require.Empty(t, children(t, operator, path+"/"+firstID))
	})
}

func TestFreeOfWhatIsNotReserved(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		err := q.Free(t.Context(), firstID)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, "no entry")
		offer(t, q, "x")
		err = q.Free(t.Context(), firstID)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, "not reserved")
		require.Equal(t, []string{"x"}, drain(t, patient(t), q))
	})
}

// A reservation that ends before it is freed is not mistaken for the next one.
func TestReservationEndsDuringFree(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		other := queue.New(srv.Client(t), path)
		offer(t, other, "x")
		link := srv.Link(t)
		c := link.Client(t)
		suite.Session(t, c)
		it := reserve(t, other)
		spared := 0
		suite.Sweep(t, func(step int) bool {
			held := it
			met := suite.At(link, step, func() {
				if held.Nack(t.Context()) == nil { // or else it was freed before
					var err error
					it, err = other.Reserve(t.Context())
					assert.NoError(t, err)
				}
			})
			err := queue.New(c, path).Free(t.Context(), firstID)
			changed := met()
			if err != nil {
				require.ErrorIs(t, err, zk.ErrNoNode)
				require.NoError(t, it.Err())
				spared++
			} else {
				await(t, it.Done())
				it = reserve(t, other)
			}
			return changed
		})
		require.Positive(t, spared)
		require.NoError(t, it.Ack(t.Context()))
	})
}

func TestOperatorsVerbsRefuseWhatIsNoID(t *testing.T) {
	t.Parallel()
	srv, link, c := oblivious(t)
	q := queue.New(c, srv.Root(t)+"/q")
	before := link.Count(recipestest.OpAny)
	for _, id := range []string{
		"", ".", "zkrecipes", "qn-1", "/" + firstID, firstID + "/claim", "../" + firstID, "entry-100-0000000001",
		"item-0-0-0-100-a/b-0000000001", "item-0-0-0-100-\x01-0000000001",
	} {
		require.ErrorIs(t, q.Remove(t.Context(), id), zk.ErrInvalidPath)
		require.ErrorIs(t, q.Free(t.Context(), id), zk.ErrInvalidPath)
	}
	require.Equal(t, before, link.Count(recipestest.OpAny))
}

// The operator's server lags behind that of the others.
func TestOperatorSeesWhatHasJustHappened(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *queue.Queue, *queue.Item){
		"Len":  func(t *testing.T, q *queue.Queue, _ *queue.Item) { require.Equal(t, 1, length(t, q)) },
		"List": func(t *testing.T, q *queue.Queue, _ *queue.Item) { require.NotZero(t, list(t, q)[0].Holder) },
		"Free": func(t *testing.T, q *queue.Queue, it *queue.Item) { require.NoError(t, q.Free(t.Context(), it.ID())) },
		"Remove": func(t *testing.T, q *queue.Queue, it *queue.Item) {
			require.NoError(t, q.Remove(t.Context(), it.ID()))
		},
		"Drained": func(t *testing.T, q *queue.Queue, it *queue.Item) {
			ctx, cancel := contextFor(t, time.Minute)
			defer cancel()
			require.ErrorIs(t, q.Drained(ctx), context.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				follower, link := srv.Embedded().Follower(), srv.Link(t)
				link.Move(follower)
				c := link.Client(t)
				suite.Session(t, c)
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				follower.Lag(100 * time.Millisecond)
				other := queue.New(srv.Client(t), path)
				offer(t, other, "x")
				it := reserve(t, other)
				test(t, queue.New(c, path), it)
				if err := it.Ack(t.Context()); err != nil {
					require.ErrorIs(t, err, protocol.ErrLost)
				}
				drain(t, t.Context(), other)
			})
		})
	}
}

// What is refused has no effect, and its error says so.
func TestOperatorWithoutPermission(t *testing.T) {
	test := func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		put(t, c, path+"/"+firstID, "", zk.PermAll&^zk.PermRead)
		put(t, c, path+"/"+firstID+"/claim", "", zk.PermAll)
		put(t, c, path+"/"+secondID, "", zk.PermAll&^zk.PermDelete)
		put(t, c, path+"/"+secondID+"/claim", "", zk.PermAll&^zk.PermRead)

		found := list(t, q)
		require.Equal(t, []string{firstID, secondID}, idsOf(found))
		require.False(t, found[1].HeldSince.IsZero())
		if suite.Has(t, srv, suite.HiddenStats) {
			require.Equal(t, queue.Info{ID: firstID, Priority: found[1].Priority}, found[0])
		} else {
			require.False(t, found[0].HeldSince.IsZero())
		}
		for _, id := range idsOf(found) {
			require.ErrorIs(t, q.Remove(t.Context(), id), zk.ErrNoAuth)
			require.ErrorIs(t, q.Free(t.Context(), id), zk.ErrNoAuth)
		}
		require.Equal(t, 2, length(t, q))
		_, err := suite.Session(t, c).Conn().SetACL(path+"/"+secondID, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)

		closed := path + "-closed"
		put(t, c, closed, "", zk.PermAll&^zk.PermRead)
		for name, verb := range verbs(queue.New(c, closed)) {
			if name == "List" || name == "Drained" || name == "Len" || name == "Peek" {
				require.ErrorIs(t, verb(t.Context()), zk.ErrNoAuth, name)
			}
		}
	}

	suite.EmbeddedAndReal(t, test)
	t.Run("3.9", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = "3.9" })))
	})
}

func TestDrained(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q, other := queue.New(c, path), queue.New(srv.Client(t), path)
		put(t, c, path+"/README", "", zk.PermAll)
		require.NoError(t, q.Drained(t.Context()))
		require.NoError(t, queue.New(c, path+"/none").Drained(t.Context()))

		later := fmt.Sprintf("item-%d-0-0-100--0000000009", time.Now().Add(time.Hour).UnixMilli())
		put(t, c, path+"/"+later, "", zk.PermAll)
		ids, err := q.OfferAll(t.Context(), numbered(0, 2))
		require.NoError(t, err)
		drained := suite.Later(func() error { return q.Drained(patient(t)) })
		it := reserve(t, queue.New(c, path))
		require.NoError(t, other.Remove(t.Context(), later))
		require.NoError(t, other.Remove(t.Context(), ids[1]))
		select {
		case err := <-drained:
			t.Fatal("not drained yet", err)
		default:
		}
		require.NoError(t, it.Ack(t.Context()))
		require.NoError(t, suite.Wait(t, drained))
	})
}

// While Drained waits it costs nothing, whatever becomes of the last entry but its end.
func TestDrainedIsQuiet(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		other := queue.New(srv.Client(t), path)
		offer(t, other, "a", "b")
		drained := suite.Later(func() error { return queue.New(c, path).Drained(t.Context()) })
		synctest.Wait()
		requests := func() (n int) {
			for _, op := range []recipestest.Op{
				recipestest.OpGetChildren, recipestest.OpSync, recipestest.OpMulti, recipestest.OpGetData, recipestest.OpExists,
			} {
				n += link.Count(op)
			}
			return n
		}
		before := requests()
		time.Sleep(time.Hour)
		require.Equal(t, before, requests())

		// The watch is on the second.
		first, second := reserve(t, other), reserve(t, other)
		require.NoError(t, first.Ack(t.Context()))
		synctest.Wait()
		require.Equal(t, before+1, requests(), "its data was read again")
		require.NoError(t, second.Ack(t.Context()))
		require.NoError(t, <-drained)
		require.Equal(t, before+1+3, requests())
	})
}

func TestDrainedGoesOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		other := queue.New(srv.Client(t), path)
		offer(t, other, "a")
		watching := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+1)
		again := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2)
		drained := suite.Later(func() error { return queue.New(c, path).Drained(patient(t)) })
		await(t, watching)
		srv.ExpireSession(suite.Session(t, c).ID())
		await(t, again)
		require.Equal(t, []string{"a"}, drain(t, patient(t), other))
		require.NoError(t, suite.Wait(t, drained))
	})
}

// At each step of a Drained the connection breaks, or the session expires, or the last entry goes.
func TestDrainedAtEachStep(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*recipestest.Server, *recipestest.Link, int64){
		"none":   func(*recipestest.Server, *recipestest.Link, int64) {},
		"cut":    func(_ *recipestest.Server, link *recipestest.Link, _ int64) { link.Cut(); link.Heal() },
		"expiry": func(srv *recipestest.Server, _ *recipestest.Link, session int64) { suite.Expire(srv, session) },
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				other := queue.New(operator, path)
				suite.Sweep(t, func(step int) bool {
					offer(t, other, "a")
					link := srv.Link(t)
					c := link.Client(t)
					session := suite.Session(t, c).ID()
					met := suite.At(link, step, func() {
						fault(srv, link, session)
						_, err := other.Take(t.Context())
						assert.NoError(t, err)
					})
					drained := suite.Later(func() error { return queue.New(c, path).Drained(patient(t)) })
					time.Sleep(time.Second)
					changed := met()
					if !changed {
						drain(t, patient(t), other)
					}
					require.NoError(t, <-drained)
					return changed
				})
			})
		})
	}
}

// An entry that may not be read is waited for all the same.
func TestDrainedOfWhatMayNotBeRead(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		put(t, c, path+"/"+firstID, "", zk.PermAll&^zk.PermRead)
		listed := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+2)
		drained := suite.Later(func() error { return q.Drained(patient(t)) })
		await(t, listed)
		require.NoError(t, q.Remove(t.Context(), firstID))
		require.NoError(t, suite.Wait(t, drained))
	})
}

func TestOperatorsVerbsBelowAChroot(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		lasting(t, srv.Client(t), root+"/c/q")
		c, err := protocol.Connect(t.Context(), srv.ConnectString()+root+"/c", protocol.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		q := queue.New(c, "/q")
		ids, err := q.OfferAll(t.Context(), numbered(0, 2))
		require.NoError(t, err)
		it := reserve(t, q)
		require.Equal(t, suite.Session(t, c).ID(), list(t, q)[0].Holder)
		require.NoError(t, q.Free(t.Context(), ids[0]))
		await(t, it.Done())
		data, _ := suite.Get(t, srv.Client(t), root+"/c/q/zkrecipes")
		require.Equal(t, ids[0], string(data))
		require.NoError(t, q.Remove(t.Context(), ids[0]))
		drained := suite.Later(func() error { return q.Drained(patient(t)) })
		require.NoError(t, q.Remove(t.Context(), ids[1]))
		require.NoError(t, suite.Wait(t, drained))
	})
}
