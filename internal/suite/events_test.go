package suite_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// events are what an observer was told of.
type events struct {
	mu  sync.Mutex
	all []protocol.Event
}

func (o *events) Observe(e protocol.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// take returns what there was of these kinds since the last call.
func (o *events) take(kinds ...protocol.EventKind) (found []protocol.Event) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.all {
		for _, kind := range kinds {
			if e.Kind == kind {
				found = append(found, e)
			}
		}
	}
	o.all = nil
	return found
}

// A waiter waits at a path with a ctx, and gives back what it gets.
type waiter func(ctx context.Context, c *protocol.Client, path string) error

// waits are the verbs that wait, by recipe and mode. prepare makes them wait until resume is
// called.
var waits = map[string]struct {
	prepare func(t *testing.T, c *protocol.Client, path string) (resume func())
	wait    waiter
	mode    string
	holds   bool
}{
	"lock": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			l, err := lock.New(c, path).Lock(t.Context())
			require.NoError(t, err)
			return func() { require.NoError(t, l.Unlock(t.Context())) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return lock.New(c, path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		}, "", true,
	},
	"rwlock": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			l, err := rwlock.New(c, path).Lock(t.Context())
			require.NoError(t, err)
			return func() { require.NoError(t, l.Unlock(t.Context())) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return rwlock.New(c, path, rwlock.WithLocalSharing()).RDo(ctx, func(context.Context, *rwlock.Lease) error { return nil })
		}, "read", true,
	},
	"semaphore": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			p, err := semaphore.New(c, path, 1).Acquire(t.Context())
			require.NoError(t, err)
			return func() { require.NoError(t, p.Release(t.Context())) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return semaphore.New(c, path, 1).Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
		}, "", true,
	},
	"election": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			term, err := election.New(c, path).Campaign(t.Context(), nil)
			require.NoError(t, err)
			return func() { require.NoError(t, term.Resign(t.Context())) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			term, err := election.New(c, path).Campaign(ctx, nil)
			if err != nil {
				return err
			}
			return term.Resign(ctx)
		}, "", true,
	},
	"once": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			running, resume := make(chan struct{}), make(chan struct{})
			ran := suite.Later(func() error {
				_, err := once.New(c, path).Do(t.Context(), "key", func(context.Context, int64) error {
					close(running)
					<-resume
					return errors.New("run again")
				})
				return err
			})
			<-running
			return func() { close(resume); require.ErrorContains(t, suite.Wait(t, ran), "run again") }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			_, err := once.New(c, path).Do(ctx, "key", func(context.Context, int64) error { return nil })
			return err
		}, "", true,
	},
	"barrier": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			b := barrier.New(c, path)
			require.NoError(t, b.Set(t.Context()))
			return func() { require.NoError(t, b.Remove(t.Context())) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return barrier.New(c, path).Wait(ctx)
		},
		"", false,
	},
	"doublebarrier": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			return func() {
				e, err := doublebarrier.New(c, path, 2).Enter(t.Context())
				require.NoError(t, err)
				go e.Leave(t.Context())
			}
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			e, err := doublebarrier.New(c, path, 2).Enter(ctx)
			if err != nil {
				return err
			}
			return e.Leave(ctx)
		}, "", true,
	},
	"group": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			return func() {
				m, err := group.New(c, path).Join(t.Context(), "a", nil)
				require.NoError(t, err)
				t.Cleanup(func() { m.Leave(context.Background()) })
			}
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			_, err := group.New(c, path).Await(ctx, 1)
			return err
		}, "await", false,
	},
	"queue take": {offerLater, func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path).Take(ctx)
		return err
	}, "take", false},
	"queue reserve": {offerLater, func(ctx context.Context, c *protocol.Client, path string) error {
		it, err := queue.New(c, path).Reserve(ctx)
		if err != nil {
			return err
		}
		return it.Ack(ctx)
	}, "reserve", true},
	"queue offer": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			q := queue.New(c, path, queue.WithMaxLength(1))
			_, err := q.Offer(t.Context(), nil)
			require.NoError(t, err)
			return func() { _, err := q.Take(t.Context()); require.NoError(t, err) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			_, err := queue.New(c, path, queue.WithMaxLength(1)).OfferWait(ctx, nil)
			return err
		}, "offer", false,
	},
	"queue Drained": {
		func(t *testing.T, c *protocol.Client, path string) func() {
			q := queue.New(c, path)
			_, err := q.Offer(t.Context(), nil)
			require.NoError(t, err)
			return func() { _, err := q.Take(t.Context()); require.NoError(t, err) }
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return queue.New(c, path).Drained(ctx)
		}, "drain", false,
	},
}

func offerLater(t *testing.T, c *protocol.Client, path string) func() {
	return func() { _, err := queue.New(c, path).Offer(t.Context(), nil); require.NoError(t, err) }
}

// A wait is reported when it begins, and once when it ends, with the caller's context and what its
// user calls it.
func TestWaitsAreReported(t *testing.T) {
	for name, w := range waits {
		t.Run(name, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				type key struct{}
				const waiting, acquired = protocol.EventWaiting, protocol.EventAcquired
				path, link, told := srv.Root(t)+"/x", srv.Link(t), new(events)
				other, c := srv.Client(t), link.Client(t, protocol.WithObserver(told))
				s := suite.Session(t, c)
				recipe, _, _ := strings.Cut(name, " ")
				check := func(e protocol.Event, kind protocol.EventKind, who string) {
					t.Helper()
					require.Equal(t, kind, e.Kind)
					require.Equal(t, recipe, e.Recipe)
					require.Equal(t, path, e.Path)
					require.Equal(t, w.mode, e.Mode)
					require.Equal(t, who, e.Context.Value(key{}))
				}
				resume := w.prepare(t, other, path)

				// The first one ends with its ctx.
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "one"))
				waited := suite.Later(func() error { return w.wait(ctx, c, path) })
				time.Sleep(3 * time.Second)
				all := told.take(waiting, acquired)
				require.Len(t, all, 1)
				check(all[0], waiting, "one")
				cancel()
				require.ErrorIs(t, suite.Wait(t, waited), context.Canceled)
				time.Sleep(time.Second)
				all = told.take(waiting, acquired)
				require.Len(t, all, 1)
				check(all[0], acquired, "one")
				require.ErrorIs(t, all[0].Err, context.Canceled)
				require.GreaterOrEqual(t, all[0].Duration, 3*time.Second)

				// The second one may have to repeat a request, and succeeds.
				link.LoseReply(recipestest.OpAny, 1)
				ctx = context.WithValue(t.Context(), key{}, "two")
				waited = suite.Later(func() error { return w.wait(ctx, c, path) })
				time.Sleep(3 * time.Second)
				all = told.take(waiting, acquired, protocol.EventRetried)
				waits := 0
				for _, e := range all {
					if e.Kind == waiting {
						check(e, waiting, "two")
						waits++
						continue
					}
					require.Equal(t, protocol.EventRetried, e.Kind)
					require.Equal(t, recipe, e.Recipe)
					require.Equal(t, path, e.Path)
				}
				require.Equal(t, 1, waits)
				resume()
				require.NoError(t, suite.Wait(t, waited))
				all = told.take(waiting, acquired, protocol.EventReleased)
				check(all[0], acquired, "two")
				require.NoError(t, all[0].Err)
				if w.mode != "await" { // which goes on in any session
					require.Equal(t, s.ID(), all[0].Session)
				}
				require.Equal(t, w.holds, all[0].Token != 0)
				if w.holds {
					check(all[1], protocol.EventReleased, "two")
					require.Equal(t, all[0].Token, all[1].Token)
				}
			})
		})
	}
}

// A call that does not wait gets the error of its recipe, and so does the observer.
func TestCallsThatDoNotWaitAreReported(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, told := srv.Root(t), new(events)
		c := srv.Client(t, protocol.WithObserver(told))
		other, ctx := srv.Client(t), t.Context()
		held, err := lock.New(other, root+"/lock").Lock(ctx)
		require.NoError(t, err)
		shared, err := rwlock.New(other, root+"/rwlock").Lock(ctx)
		require.NoError(t, err)
		permit, err := semaphore.New(other, root+"/semaphore", 1).Acquire(ctx)
		require.NoError(t, err)

		for want, try := range map[error]func() error{
			lock.ErrLocked:   func() error { _, err := lock.New(c, root+"/lock").TryLock(ctx); return err },
			rwlock.ErrLocked: func() error { _, err := rwlock.New(c, root+"/rwlock").TryLock(ctx); return err },
			semaphore.ErrNoPermit: func() error {
				_, err := semaphore.New(c, root+"/semaphore", 1).TryAcquire(ctx)
				return err
			},
			queue.ErrEmpty: func() error { _, err := queue.New(c, root+"/queue").TryReserve(ctx); return err },
		} {
			require.ErrorIs(t, try(), want)
			all := told.take(protocol.EventWaiting, protocol.EventAcquired)
			require.Len(t, all, 2)
			require.ErrorIs(t, all[1].Err, want)
		}
		require.NoError(t, errors.Join(held.Unlock(ctx), shared.Unlock(ctx), permit.Release(ctx)))
	})
}

// Verbs that begin a second wait report its end, too, whatever that is.
func TestFurtherWaitsAreReported(t *testing.T) {
	type wait struct {
		mode string
		err  error
	}
	for name, w := range map[string]struct {
		use  func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string)
		want []wait
	}{
		"downgrade": {func(t *testing.T, _ *recipestest.Server, c *protocol.Client, path string) {
			l, err := rwlock.New(c, path).Lock(t.Context())
			require.NoError(t, err)
			reader, err := l.Downgrade(t.Context())
			require.NoError(t, err)
			_, err = l.Downgrade(t.Context())
			require.ErrorIs(t, err, protocol.ErrReleased)
			require.NoError(t, reader.Unlock(t.Context()))
		}, []wait{{"write", nil}, {"read", nil}, {"read", protocol.ErrReleased}}},
		"leave": {func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string) {
			other := suite.Later(func() error {
				e, err := doublebarrier.New(srv.Client(t), path, 2).Enter(t.Context())
				if err == nil {
					time.Sleep(time.Minute)
					err = e.Leave(t.Context())
				}
				return err
			})
			e, err := doublebarrier.New(c, path, 2).Enter(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, e.Leave(ctx), context.DeadlineExceeded)
			require.NoError(t, e.Leave(t.Context()))
			require.NoError(t, suite.Wait(t, other))
		}, []wait{{"", nil}, {"leave", context.DeadlineExceeded}, {"leave", nil}}},
		"rejoin": {func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string) {
			m, err := group.New(c, path).Join(t.Context(), "a", nil)
			require.NoError(t, err)
			srv.ExpireSession(suite.Session(t, c).ID())
			time.Sleep(time.Minute)
			require.True(t, m.Joined())
			require.NoError(t, m.Leave(t.Context()))
		}, []wait{{"", nil}, {"", nil}}},
		"rejoin that Leave ends": {func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string) {
			m, err := group.New(c, path).Join(t.Context(), "a", nil)
			require.NoError(t, err)
			other := srv.Client(t)
			_, err = suite.Session(t, other).Multi(t.Context(),
				&zk.DeleteRequest{Path: path + "/a", Version: -1},
				&zk.CreateRequest{Path: path + "/a", Flags: zk.FlagEphemeral})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.False(t, m.Joined())
			require.NoError(t, m.Leave(t.Context()))
			suite.Close(t, other)
		}, []wait{{"", nil}, {"", context.Canceled}}},
	} {
		t.Run(name, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				told := new(events)
				w.use(t, srv, srv.Client(t, protocol.WithObserver(told)), srv.Root(t)+"/x")
				all := told.take(protocol.EventWaiting, protocol.EventAcquired)
				require.Len(t, all, 2*len(w.want))
				for i, want := range w.want {
					begin, end := all[2*i], all[2*i+1]
					require.Equal(t, protocol.EventWaiting, begin.Kind)
					require.Equal(t, want.mode, begin.Mode)
					require.Equal(t, protocol.EventAcquired, end.Kind)
					require.Equal(t, want.mode, end.Mode)
					require.ErrorIs(t, end.Err, want.err)
					require.NotZero(t, end.Context)
				}
			})
		})
	}
}
