package suite_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A watchedContext knows what waits for its end: contexts that were made from it, and functions of
// context.AfterFunc.
type watchedContext struct {
	context.Context

	mu      sync.Mutex
	waiting map[*int]string // the stacks of those who began to wait
}

// Value hides that there is a context below, or package context would ask that one to wait.
func (w *watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(f func()) (stop func() bool) {
	key := new(int)
	w.mu.Lock()
	w.waiting[key] = string(debug.Stack())
	w.mu.Unlock()
	over := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, key)
	}
	inner := context.AfterFunc(w.Context, func() { over(); f() })
	return func() bool {
		over()
		return inner()
	}
}

// watched calls do with a context that lasts for a minute, and reports what waits for its end after
// do has returned. Call it in a bubble.
func watched(t *testing.T, name string, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &watchedContext{Context: ctx, waiting: make(map[*int]string)}
	err := do(w)
	require.NotContains(t, fmt.Sprint(err), "panics")
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stack := range w.waiting {
		t.Errorf("%s has returned %v, and this still waits:\n%s", name, err, stack)
	}
}

// Programs call verbs with contexts that last as long as they do. So a verb leaves nothing behind
// that waits for the end of its context.
func TestNoVerbLeavesAnythingWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c, root := srv.Client(t), srv.Root(t)
		try := func(v verb) {
			watched(t, v.name, func(ctx context.Context) error { return v.try(t, ctx, returnsZero) })
		}

		for i, s := range append(subjects, subject{
			func(c *protocol.Client, path string) any { return doublebarrier.New(c, path, 1) }, "",
		}) {
			for _, v := range verbsOf(s.make(c, fmt.Sprintf("%s/%d", root, i)), s.text) {
				try(v)
			}
		}
		for _, h := range held(t, c, root) {
			for _, v := range verbsOf(h, owner+"lock-0000000000") {
				try(v)
			}
		}
		suite.Close(t, c)
	})
}

// Nor does one that has had to wait.
func TestNoVerbThatHasWaitedLeavesAnythingWithItsContext(t *testing.T) {
	t.Parallel()
	type call = func(context.Context) error
	for name, prepare := range map[string]func(t *testing.T, one, other *protocol.Client, path string) (wait, end call){
		"lock": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			lease, err := lock.New(one, path).Lock(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := lock.New(other, path).Lock(ctx); return err }, lease.Unlock
		},
		"simple": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			lease, err := lock.NewSimple(one, path).Lock(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := lock.NewSimple(other, path).Lock(ctx); return err }, lease.Unlock
		},
		"local queue": func(t *testing.T, one, _ *protocol.Client, path string) (wait, end call) {
			m := lock.New(one, path, lock.WithLocalQueue())
			lease, err := m.Lock(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := m.Lock(ctx); return err }, lease.Unlock
		},
		"several locks": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			lease, err := lock.New(one, path+"/2").Lock(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context) error {
				_, err := lock.LockAll(ctx, lock.New(other, path+"/1"), lock.New(other, path+"/2"))
				return err
			}, lease.Unlock
		},
		"reader": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			lease, err := rwlock.New(one, path).Lock(t.Context())
			require.NoError(t, err)
			m := rwlock.New(other, path, rwlock.WithLocalSharing())
			return func(ctx context.Context) error { _, err := m.RLock(ctx); return err }, lease.Unlock
		},
		"semaphore": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			permit, err := semaphore.New(one, path, 1).Acquire(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := semaphore.New(other, path, 1).Acquire(ctx); return err }, permit.Release
		},
		"election": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			term, err := election.New(one, path).Campaign(t.Context(), nil)
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := election.New(other, path).Campaign(ctx, nil); return err }, term.Resign
		},
		"group": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			return func(ctx context.Context) error { _, err := group.New(other, path).Await(ctx, 1); return err },
				func(ctx context.Context) error { _, err := group.New(one, path).Join(ctx, "one", nil); return err }
		},
		"queue": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			return func(ctx context.Context) error { _, err := queue.New(other, path).Reserve(ctx); return err },
				func(ctx context.Context) error { _, err := queue.New(one, path).Offer(ctx, nil); return err }
		},
		"bounded queue": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			q := queue.New(one, path, queue.WithMaxLength(1))
			_, err := q.Offer(t.Context(), nil)
			require.NoError(t, err)
			return func(ctx context.Context) error {
				_, err := queue.New(other, path, queue.WithMaxLength(1)).OfferWait(ctx, nil)
				return err
			}, func(ctx context.Context) error { _, err := q.Take(ctx); return err }
		},
		"barrier": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			require.NoError(t, barrier.New(one, path).Set(t.Context()))
			return barrier.New(other, path).Wait, barrier.New(one, path).Remove
		},
		"double barrier": func(t *testing.T, one, other *protocol.Client, path string) (wait, end call) {
			enter := func(c *protocol.Client) call {
				return func(ctx context.Context) error { _, err := doublebarrier.New(c, path, 2).Enter(ctx); return err }
			}
			return enter(other), enter(one)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				one, other := srv.Client(t), srv.Client(t)
				wait, end := prepare(t, one, other, srv.Root(t)+"/x")
				watched(t, name, func(ctx context.Context) error {
					var waiting suite.Group
					waiting.Go(func() error { return wait(ctx) })
					synctest.Wait() // it waits
					require.NoError(t, end(t.Context()))
					err := waiting.Wait()
					require.NoError(t, err)
					return err
				})
				suite.Close(t, one)
				suite.Close(t, other)
			})
		})
	}
}
