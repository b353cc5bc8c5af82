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

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
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

// Programs call verbs with contexts that last as long as they do. So a verb leaves nothing behind
// that waits for the end of its context.
func TestNoVerbLeavesAnythingWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c, root := srv.Client(t), srv.Root(t)
		try := func(v verb) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w := &watchedContext{Context: ctx, waiting: make(map[*int]string)}
			err := v.try(t, w, returnsZero)
			require.NotContains(t, fmt.Sprint(err), "panics")
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, stack := range w.waiting {
				t.Errorf("%s has returned %v, and this still waits:\n%s", v.name, err, stack)
			}
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
		require.NoError(t, c.Close())
	})
}
