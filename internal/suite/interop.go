package suite

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/interop"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Peer makes contenders for the lock at a path in one process of another language, in which verb takes the lock.
func Peer(p *interop.Peer) func(verb, path string) (lock, unlock func(context.Context) error) {
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

// An Arrival is a contender of some library for one lock. Lock blocks until it has the lock, Shared or for itself.
type Arrival struct {
	Lock, Unlock func(context.Context) error
	Shared       bool
}

// TakeTurns has the contenders come to the lock at path, one after the other, and demands that those who do not share
// it are alone, and that nobody gets it before somebody leaves but those who can share it with the first. It returns
// the order in which they were granted it.
func TakeTurns(t *testing.T, srv *recipestest.Server, path string, arrivals []Arrival) (order []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(arrivals)+1)*2*Patience)
	defer cancel()
	watcher := Session(t, srv.Client(t)).Conn()
	granted := make(chan int, len(arrivals))
	begin := make(chan struct{})
	var readers, writers atomic.Int32
	var wait Group
	first := 1 // how many may hold it before anybody has left
	for arrivals[0].Shared && first < len(arrivals) && arrivals[first].Shared {
		first++
	}
	for i, a := range arrivals {
		holders := &writers
		if a.Shared {
			holders = &readers
		}
		wait.Go(func() error {
			if err := a.Lock(ctx); err != nil {
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
			return a.Unlock(ctx)
		})
		require.Eventually(t, func() bool {
			children, _, err := watcher.Children(path)
			return err == nil && len(children) == i+1
		}, 2*Patience, 5*time.Millisecond)
		if i < first { // some look at the line late, and must not find in it who came after them
			require.Eventually(t, func() bool { return len(granted) > i }, Patience, time.Millisecond)
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
