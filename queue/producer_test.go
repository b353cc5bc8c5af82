package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// wipe deletes a node and all nodes below it, in one transaction. What goes by itself meanwhile (an
// empty container, a producer's turn) makes it look again.
func wipe(t testing.TB, c *protocol.Client, path string) {
	t.Helper()
	s, err := recipe.SessionOf(t.Context(), c)
	require.NoError(t, err)
	var ops []any
	var add func(node string) error
	add = func(node string) error {
		names, _, err := s.Children(t.Context(), node)
		for _, name := range names {
			err = cmp.Or(err, add(node+"/"+name))
		}

		ops = append(ops, &zk.DeleteRequest{Path: s.Path(node), Version: -1})
		return err
	}

	for range 100 {
		require.NoError(t, s.Sync(t.Context(), path))
		ops = nil
		if err = add(path); err == nil {
			_, err = s.Conn().Multi(ops...)
		}
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
			break
		}
	}
	require.NoError(t, err)
}

// inMemory runs a test in virtual time.
func inMemory(t *testing.T, test func(t *testing.T, srv *recipestest.Server, path string)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		test(t, srv, srv.Root(t)+"/q")
	})
}

// Once there is a receipt, an offer is one request. Far from the bound, a producer looks at the
// length after a pause.
func TestOfferIsOneRequest(t *testing.T) {
	for name, opts := range map[string][]queue.Option{
		"unbounded": nil, "far from the bound": {queue.WithMaxLength(1 << 20)}, "near the bound": {queue.WithMaxLength(100)},
	} {
		want := 20
		if name == "far from the bound" {
			want = 40
		}

		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
				link := srv.Link(t)
				q := queue.New(link.Client(t), path, opts...)
				offer(t, q, "first")
				time.Sleep(150 * time.Millisecond)
				before, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
				for range 20 {
					offer(t, q, "x")
					time.Sleep(150 * time.Millisecond)
				}
				require.Equal(t, want, link.Count(recipestest.OpAny)-before-(link.Count(recipestest.OpPing)-pings))
			})
		})
	}
}

// An entry is never delivered before its delay has passed, not even by a fraction of a millisecond.
func TestOfferAfterIsNotEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		got := suite.Later(func() time.Time { q.Take(t.Context()); return time.Now() })
		time.Sleep(time.Second + 900*time.Microsecond)
		began := time.Now()
		_, err := q.OfferAfter(t.Context(), time.Second, []byte("x"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, suite.Wait(t, got).Sub(began), time.Second)
	})
}

func TestOfferPriority(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		link := srv.Link(t)
		c := link.Client(t)
		q := queue.New(c, path, queue.WithPriorities())
		suite.Session(t, c)
		before := link.Count(recipestest.OpAny)
		for _, priority := range []int{-1, 1000} {
			require.ErrorContains(t, suite.Err(q.OfferPriority(t.Context(), priority, nil)), "from 0 to 999")
		}

		require.ErrorContains(t, suite.Err(queue.New(c, path).OfferPriority(t.Context(), 1, nil)), "WithPriorities")
		require.Equal(t, before, link.Count(recipestest.OpAny))

		for _, priority := range []int{0, 7, 999} {
			id := suite.Got(q.OfferPriority(t.Context(), priority, []byte("x")))(t)
			require.Regexp(t, fmt.Sprintf("^entry-%03d-[0-9]{10}$", priority), id)
		}

		id := suite.Got(q.Offer(t.Context(), []byte("y")))(t)
		require.Regexp(t, "^entry-100-[0-9]{10}$", id)
	})
}

// The same key appends nothing again, across processes and after the entry was consumed.
func TestOfferKey(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/q"
		for _, key := range []string{"a", "a/b", ".", "..", "%2E", "ü", "a b\x00c", strings.Repeat("k", 1000)} {
			first := queue.New(srv.Client(t), path)
			id, err := first.OfferKey(t.Context(), key, []byte(key))
			require.NoError(t, err, key)
			require.NotEmpty(t, id)
			second := queue.New(srv.Client(t), path)
			for range 2 {
				id, err = second.OfferKey(t.Context(), key, []byte(key))
				require.NoError(t, err)
				require.Empty(t, id)
			}

			require.Equal(t, []string{key}, drain(t, patient(t), first))
			id, err = second.OfferKey(t.Context(), key, []byte(key))
			require.NoError(t, err)
			require.Empty(t, id)
		}

		q := queue.New(srv.Client(t), path)
		require.Empty(t, drain(t, patient(t), q))
		for _, key := range []string{"", strings.Repeat("k", 1001)} {
			require.ErrorContains(t, suite.Err(q.OfferKey(t.Context(), key, nil)), "a key of")
		}
	})
}

// Goroutines that offer the same key at the same time append one entry. They do not disturb others.
func TestSameKeyInOneBatch(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		offer(t, q, "first")
		link.Delay(time.Millisecond)
		var appended atomic.Int32
		require.NoError(t, together(50, func() error {
			id, err := q.OfferKey(t.Context(), "k", []byte("keyed"))
			if id != "" {
				appended.Add(1)
			}

			if err == nil {
				_, err = q.Offer(t.Context(), []byte("plain"))
			}
			return err
		}))
		require.EqualValues(t, 1, appended.Load())
		require.Len(t, drain(t, patient(t), q), 1+1+50)
	})
}

// Keys are remembered for the retention and deleted later.
func TestKeysAreSwept(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		operator := srv.Client(t)
		var producers []*queue.Queue
		for range 3 {
			c := srv.Client(t, protocol.WithRequestLimit(2<<10)) // for fewer keys than a directory has
			producers = append(producers, queue.New(c, path, queue.WithKeyRetention(time.Minute)))
		}

		for i := range 300 { // five minutes
			id, err := producers[i%3].OfferKey(t.Context(), fmt.Sprint(i), nil)
			require.NoError(t, err)
			require.NotEmpty(t, id)
			if i >= 55 {
				id, err = producers[(i+1)%3].OfferKey(t.Context(), fmt.Sprint(i-55), nil)
				require.NoError(t, err)
				require.Empty(t, id, "remembered for a minute")
			}
			time.Sleep(time.Second)
		}

		synctest.Wait()
		require.LessOrEqual(t, len(suite.Children(t, operator, path+"/zkrecipes/keys")), 3)
		id := suite.Got(producers[0].OfferKey(t.Context(), "0", nil))(t)
		require.NotEmpty(t, id, "forgotten")
	})
}

// If a queue or its records are wiped, the next offer creates them again.
func TestOfferAfterWipe(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		for name, opts := range map[string][]queue.Option{"plain": nil, "bounded": {queue.WithMaxLength(10)}} {
			path := srv.Root(t) + "/" + name
			q := queue.New(srv.Client(t), path, opts...)
			ctx := patient(t)
			for _, target := range []string{path, path + "/zkrecipes", path + "/zkrecipes/receipts", path + "/zkrecipes/keys"} {
				_, err := q.OfferKey(ctx, "k"+target, []byte("before"))
				require.NoError(t, err)
				wipe(t, operator, target)
				_, err = q.OfferKey(ctx, "again"+target, []byte("after"))
				require.NoError(t, err)
				_, err = q.OfferAfter(ctx, 0, nil)
				require.NoError(t, err)
				left := drain(t, ctx, queue.New(operator, path))
				require.Equal(t, []string{"after", ""}, left[len(left)-2:])
				wipe(t, operator, path)
			}
		}
	})
}

// produce offers until its time has passed. It returns the number of offers that worked.
func produce(ctx context.Context, q *queue.Queue) (n int, err error) {
	for ctx.Err() == nil {
		_, err := q.Offer(context.WithoutCancel(ctx), nil)
		if errors.Is(err, queue.ErrFull) {
			time.Sleep(time.Millisecond)
			continue
		} else if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A bounded producer that is farther away gets its share (far from the bound and near it).
func TestFarProducerGetsItsShare(t *testing.T) {
	seconds := suite.Size(10, 4)
	// near and far are numbers of offers a second, at least.
	for name, test := range map[string]struct{ most, near, far int }{
		"far from the bound": {1 << 20, 450, 75},
		"near the bound":     {1000, 80, 18},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
				ctx := suite.Within(t, time.Duration(seconds)*time.Second)
				var wait suite.Group
				consumer := queue.New(srv.Client(t), path)
				var longest int
				if test.most == 1000 {
					wait.Go(func() error { // keeps it half full
						for ctx.Err() == nil {
							n, err := consumer.Len(t.Context())
							if longest = max(longest, n); err == nil && n > 500 {
								_, err = consumer.PollN(t.Context(), 100)
							}
							if err != nil {
								return err
							}
							time.Sleep(5 * time.Millisecond)
						}
						return nil
					})
				}
				var done [2]int
				for i, delay := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
					link := srv.Link(t)
					q := queue.New(link.Client(t), path, queue.WithMaxLength(test.most))
					offer(t, q, "first")
					link.Delay(delay)
					wait.Go(func() (err error) {
						time.Sleep(time.Duration(i) * 2 * time.Second) // the far one comes later
						done[i], err = produce(ctx, q)
						return err
					})
				}
				require.NoError(t, wait.Wait())
				t.Log(done)
				require.GreaterOrEqual(t, done[0], test.near*seconds)
				require.GreaterOrEqual(t, done[1], test.far*(seconds-2))
				require.LessOrEqual(t, longest, test.most)
			})
		})
	}
}

// OfferWait waits for room. One call of each process is in line, and no call is left behind.
func TestOfferWait(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := srv.Root(t) + "/q"
		const most, waiters = 3, 12
		var queues []*queue.Queue
		for range 3 {
			queues = append(queues, queue.New(srv.Client(t), path, queue.WithMaxLength(most)))
		}

		offer(t, queues[0], "a", "b", "c")
		var wait suite.Group
		for i := range waiters {
			wait.Go(func() error {
				_, err := queues[i%3].OfferWait(patient(t), []byte("waited"))
				return err
			})
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		_, err := queues[1].OfferWait(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "enough")

		consumer := queue.New(operator, path)
		for range most + waiters {
			n := suite.Got(consumer.Len(t.Context()))(t)
			require.LessOrEqual(t, n, most)
			_, err = consumer.Take(patient(t))
			require.NoError(t, err)
		}

		require.NoError(t, wait.Wait())
		_, err = consumer.Poll(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		suite.Soon(t, func() bool { return len(suite.Children(t, operator, path+"/zkrecipes/offering")) == 0 }, "the line is left")
	})
}

// The first call in line finds room at once. If its session expires, the call goes on. While
// nothing happens, it asks little.
func TestOfferWaitIsWokenAndQuiet(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		link := srv.Link(t)
		c := link.Client(t)
		q := queue.New(c, path, queue.WithMaxLength(2))
		consumer := queue.New(srv.Client(t), path)
		offer(t, q, "a", "b")
		done := make(chan error, 10)
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 {
			go func() { _, err := q.OfferWait(ctx, []byte("waited")); done <- err }()
		}

		time.Sleep(10 * time.Second)
		before := link.Count(recipestest.OpAny)
		time.Sleep(10 * time.Second)
		require.Less(t, link.Count(recipestest.OpAny)-before, 100)

		began := time.Now()
		_, err := consumer.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, suite.Wait(t, done))
		require.Less(t, time.Since(began), 10*time.Millisecond)

		time.Sleep(10 * time.Second)
		srv.ExpireSession(suite.Session(t, c).ID())
		time.Sleep(10 * time.Second)
		_, err = consumer.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, suite.Wait(t, done))

		cancel()
		for range 8 {
			require.ErrorIs(t, suite.Wait(t, done), context.Canceled)
		}

		time.Sleep(time.Minute)
		require.Empty(t, suite.Children(t, c, path+"/zkrecipes/offering"))
		require.Empty(t, suite.Children(t, c, path+"/zkrecipes/receipts"))
		n := suite.Got(consumer.Len(t.Context()))(t)
		require.Equal(t, 2, n)
	})
}

// Producers that go from far away to the bound at the same time end exactly there.
func TestMaxLengthIsExactFromFarAway(t *testing.T) {
	for _, most := range []int{1100, 2500} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
				var wait suite.Group
				for i := range 4 {
					link := srv.Link(t)
					q := queue.New(link.Client(t), path, queue.WithMaxLength(most))
					link.Delay(time.Duration(i+1) * time.Millisecond)
					for range 8 {
						wait.Go(func() error {
							for {
								if _, err := q.Offer(t.Context(), nil); errors.Is(err, queue.ErrFull) {
									return nil
								} else if err != nil {
									return err
								}
							}
						})
					}
				}
				require.NoError(t, wait.Wait())
				n := suite.Got(queue.New(srv.Client(t), path).Len(t.Context()))(t)
				require.Equal(t, most, n)
			})
		})
	}
}

// What another producer has appended just before an offer that is far from the bound is noticed.
func TestLengthIsReadAgainAfterOthersHaveAppended(t *testing.T) {
	for _, pause := range []time.Duration{0, 5 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
				const most = 2000
				q := queue.New(srv.Client(t), path, queue.WithMaxLength(most))
				other := queue.New(srv.Client(t), path, queue.WithMaxLength(most))
				offer(t, q, "first")
				time.Sleep(5 * time.Second)
				offer(t, q, "with a check")
				offer(t, other, "look")
				offer(t, q, "look")
				_, err := other.OfferAll(t.Context(), make([][]byte, 900))
				require.NoError(t, err)
				offer(t, q, "far away")
				time.Sleep(pause)
				for err = nil; err == nil; _, err = q.Offer(t.Context(), nil) {
					time.Sleep(time.Millisecond)
				}
				require.ErrorIs(t, err, queue.ErrFull)
				n := suite.Got(other.Len(t.Context()))(t)
				require.Equal(t, most, n)
			})
		})
	}
}

// A producer waits for its turn behind another library's node. It leaves the line with its last
// offer.
func TestCancelledOfferLeavesTheLine(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		operator := srv.Client(t)
		s := suite.Session(t, operator)
		q := queue.New(srv.Client(t), path, queue.WithMaxLength(100))
		offer(t, q, "first")
		_, err := s.EnsurePath(t.Context(), path+"/zkrecipes/offering")
		require.NoError(t, err)
		const foreign = "/zkrecipes/offering/turn-0000000000"
		require.NoError(t, s.Create(t.Context(), path+foreign, nil, 0))
		time.Sleep(time.Second) // until the turn has ended

		ctx := suite.Within(t, 5*time.Second)
		_, err = q.Offer(ctx, []byte("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		time.Sleep(time.Second)
		require.Len(t, suite.Children(t, operator, path+"/zkrecipes/offering"), 1)

		require.NoError(t, s.Delete(t.Context(), path+foreign, -1))
		offer(t, q, "y")
		require.Equal(t, []string{"first", "y"}, drain(t, patient(t), q))
	})
}

// OfferKey reports an earlier offer of a key only after that offer has succeeded.
func TestSameKeyWaitsForTheFirstOffer(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		operator := srv.Client(t)
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		_, err := q.OfferKey(t.Context(), "other", nil)
		require.NoError(t, err)
		link.Delay(100 * time.Millisecond)
		var wait suite.Group
		wait.Go(func() error { _, err := q.Offer(t.Context(), nil); return err })
		synctest.Wait()
		var fine atomic.Int32
		for range 2 {
			wait.Go(func() error {
				if _, err := q.OfferKey(t.Context(), "k", nil); err == nil {
					fine.Add(1)
				}
				return nil
			})
		}

		time.Sleep(450 * time.Millisecond) // the first offer has arrived and the second is on its way
		_, err = suite.Session(t, operator).Conn().SetACL(path, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		require.NoError(t, wait.Wait())
		n := suite.Got(queue.New(operator, path).Len(t.Context()))(t)
		require.Equal(t, 2+int(min(fine.Load(), 1)), n)
		require.Positive(t, fine.Load())
	})
}

// A back-off that ends bounds a lone offer, and the next offer finds nothing in its way.
func TestBackOffThatEndsBoundsOffers(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *recipestest.Server, path string) {
		link := srv.Link(t)
		once := protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} })
		q := queue.New(link.Client(t, once, protocol.WithSessionTimeout(20*time.Second)), path, queue.WithMaxLength(10))
		offer(t, q, "a")
		link.LoseReply(recipestest.OpAny, 1000)
		time.AfterFunc(3*time.Second, func() { link.LoseReply(recipestest.OpAny, 0) })
		_, err := q.OfferKey(patient(t), "k", []byte("b"))
		if err != nil {
			require.ErrorIs(t, err, protocol.ErrUncertain)
		}

		_, err = q.OfferKey(patient(t), "k", []byte("b"))
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, drain(t, patient(t), queue.New(srv.Client(t), path)))
	})
}

func TestKeyOfferedBeforeIsNoErrorWhereTheQueueIsFull(t *testing.T) {
	srv := recipestest.Start(t)
	c := srv.Client(t)
	q := queue.New(c, srv.Root(t)+"/q", queue.WithMaxLength(1))
	ctx := patient(t)
	_, err := q.OfferKey(ctx, "k", []byte("x"))
	require.NoError(t, err)
	id := suite.Got(q.OfferKey(ctx, "k", []byte("x")))(t)
	require.Empty(t, id)
	_, err = q.OfferKey(ctx, "other", []byte("x"))
	require.ErrorIs(t, err, queue.ErrFull)
	suite.Close(t, c)
}
