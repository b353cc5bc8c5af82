package interop_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// inProcess returns a function that makes contenders in one process of another language. verb
// acquires the lock at path there.
func inProcess(p *interop.Peer) func(verb, path string) (lock, unlock func(context.Context) error) {
	var handles atomic.Int32
	return func(verb, path string) (lock, unlock func(context.Context) error) {
		handle := strconv.Itoa(int(handles.Add(1)))
		do := func(words ...string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := p.Start(words...).Wait(ctx)
				return err
			}
		}

		return do(verb, handle, path), do("unlock", handle)
	}
}

// A contender asks for one lock with some library. Lock blocks until it holds the lock, shared or
// exclusive.
type contender struct {
	Lock, Unlock func(context.Context) error
	Shared       bool
}

// acquireInOrder makes contenders ask for the lock at path, one after the other. It fails t if an
// exclusive holder is not alone, or if a contender acquires the lock before the first release,
// except for those that can share it with the first contender. It returns the order of the grants.
func acquireInOrder(t *testing.T, srv *recipestest.Server, path string, contenders []contender) (order []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(contenders)+1)*2*suite.Limit)
	defer cancel()

	watcher := srv.Client(t)
	granted := make(chan int, len(contenders))
	begin := make(chan struct{}) // to release

	var readers, writers atomic.Int32
	var wait suite.Group
	first := 1 // how many may hold the lock before the first release
	for contenders[0].Shared && first < len(contenders) && contenders[first].Shared {
		first++
	}

	for i, c := range contenders {
		holders := &writers
		if c.Shared {
			holders = &readers
		}
		wait.Go(func() error {
			if err := c.Lock(ctx); err != nil {
				return fmt.Errorf("contender %d: %w", i, err)
			}

			holders.Add(1)
			granted <- i
			if w, r := writers.Load(), readers.Load(); w > 1 || w == 1 && r > 0 {
				return fmt.Errorf("contender %d: %d writers and %d readers hold the lock", i, w, r)
			}

			select {
			case <-begin:
			case <-ctx.Done():
			}

			holders.Add(-1)
			return c.Unlock(ctx)
		})
		require.Eventually(t, func() bool {
			return len(suite.Children(t, watcher, path)) == i+1
		}, 2*suite.Limit, 5*time.Millisecond)
		if i < first { // a library may list the line late, and must not find later contenders in it
			require.Eventually(t, func() bool { return len(granted) > i }, suite.Limit, time.Millisecond)
		}
	}

	require.Len(t, granted, first, "holders of a lock that was not released yet")
	close(begin)
	require.NoError(t, wait.Wait())
	close(granted)
	for i := range granted {
		order = append(order, i)
	}

	return order
}
