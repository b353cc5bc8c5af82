package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// 50 readers, each in a session of its own, wait behind a writer that gives up. None of them
// writes. Each removes one watch, lists the line, and watches the writer that is left.
func TestReadersBehindAWriterThatGivesUpWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/rw"
		h, err := rwlock.New(srv.Client(t), path).Lock(t.Context())
		require.NoError(t, err)
		wctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan struct{})
		wc := srv.Client(t)
		go func() { rwlock.New(wc, path).Lock(wctx); close(gone) }()
		synctest.Wait()
		const n = 50
		rctx, stop := context.WithCancel(t.Context())
		var links []*recipestest.Link
		done := make(chan struct{}, n)

		for range n {
			l := srv.Link(t)
			c := l.Client(t)
			l.Delay(time.Millisecond)
			links = append(links, l)
			go func() { rwlock.New(c, path).RLock(rctx); done <- struct{}{} }()
		}

		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		sum := func(op recipestest.Op) (all int) {
			for _, l := range links {
				all += l.Count(op)
			}
			return all
		}

		ops := []recipestest.Op{recipestest.OpCreate, recipestest.OpMulti, recipestest.OpSetData,
			recipestest.OpRemoveWatches, recipestest.OpGetChildren, recipestest.OpGetData, recipestest.OpExists}
		counts := func() (each []int) {
			for _, op := range ops {
				each = append(each, sum(op))
			}
			return each
		}

		before := counts()
		giveUp()
		<-gone
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		for i, after := range counts() {
			require.Equal(t, []int{0, 0, 0, n, n, n, 0}[i], after-before[i], ops[i])
		}

		stop()
		for range n {
			<-done
		}

		time.Sleep(time.Second)
		require.NoError(t, h.Unlock(t.Context()))
	})
}
