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

// A contender asks for one lock with some library. Lock blocks until it holds the lock, shared or
// exclusive.
type contender struct {
	Lock, Unlock func(context.Context) error
	Shared       bool
}

// A newcomer makes one contender of some library for the lock at path.
type newcomer func(t *testing.T, srv *recipestest.Server, path string, exclusive bool) contender

// peer makes contenders in one process of another language, by a verb to write and one to read.
func peer(p *interop.Peer, write, read string) newcomer {
	var handles atomic.Int32
	return func(_ *testing.T, _ *recipestest.Server, path string, exclusive bool) contender {
		handle, verb := strconv.Itoa(int(handles.Add(1))), read
		if exclusive {
			verb = write
		}
		do := func(words ...string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := p.Start(words...).Wait(ctx)
				return err
			}
		}
		return contender{do(verb, handle, path), do("unlock", handle), !exclusive}
	}
}

// of makes a contender of ours from a function that acquires the lock.
func of[L interface{ Unlock(context.Context) error }](acquire func(context.Context) (L, error), shared bool) contender {
	var l L
	return contender{
		func(ctx context.Context) (err error) { l, err = acquire(ctx); return err },
		func(ctx context.Context) error { return l.Unlock(ctx) },
		shared,
	}
}

// acquireInOrder makes contenders ask for the lock at path, one after the other. It fails t if an
// exclusive holder is not alone, or if a contender acquires the lock before the first release,
// except for those that can share it with the first contender. They must be granted it in that
// order, but readers may overtake readers.
func acquireInOrder(t *testing.T, srv *recipestest.Server, path string, contenders []contender) {
	t.Helper()
	ctx := suite.Within(t, time.Duration(len(contenders)+1)*2*suite.Limit)

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
		// The next contender begins only once this contender is in line.
		require.Eventually(t, func() bool {
			return len(suite.Children(t, watcher, path)) == i+1
		}, 2*suite.Limit, 5*time.Millisecond)
		if i < first { // a library may list the line late, and must not find later contenders in it
			require.Eventually(t, func() bool { return len(granted) > i }, suite.Limit, time.Millisecond)
		}
	}

	// No contender has released yet. Then all release, and the order of grants shows.
	require.Len(t, granted, first, "holders of a lock that was not released yet")
	close(begin)
	require.NoError(t, wait.Wait())
	close(granted)
	var order []int
	for i := range granted {
		for _, before := range order {
			if before > i {
				require.True(t, contenders[i].Shared && contenders[before].Shared, "%d before %d", before, i)
			}
		}
		order = append(order, i)
	}
	require.Len(t, order, len(contenders))
}
