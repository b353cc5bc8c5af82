package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestSemaphoreIsShownAndResized(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path, servers := s.Root(t)+"/semaphore", s.ConnectString()
		r := inProcess(t, servers, "", "semaphore", "show", path)
		assert.Equal(t, exitBusy, r.status)
		assert.Contains(t, r.stderr, "is no semaphore")

		p, err := semaphore.New(client(t, s), path, 2).Acquire(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "1 of 2 held, 0 wait\n", succeed(t, servers, "semaphore", "show", path))
		assert.Empty(t, succeed(t, servers, "semaphore", "resize", path, "5"))
		assert.JSONEq(t, `{"permits":5,"held":1,"waiting":0}`, succeed(t, servers, "semaphore", "show", path, "--json"))
		require.NoError(t, p.Release(t.Context()))
		assert.Equal(t, "0 of 5 held, 0 wait\n", succeed(t, servers, "semaphore", "show", path))

		r = inProcess(t, servers, "", "semaphore", "resize", path, "0")
		assert.Equal(t, exitUsage, r.status)
	})
}

func TestKeysOfAOnceAreListedAskedForAndForgotten(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path, servers := s.Root(t)+"/once", s.ConnectString()
		_, err := once.New(client(t, s), path).Do(t.Context(), "a\x1b", func(context.Context, *once.Run) error { return nil })
		require.NoError(t, err)
		assert.Regexp(t, `\A"a\\x1b"  \d{4}-.*:\d+\n\z`, succeed(t, servers, "once", "keys", path))
		assert.Contains(t, succeed(t, servers, "once", "keys", path, "--json"), `{"key":"a\u001b","done":"2`)
		assert.Empty(t, succeed(t, servers, "once", "done", path, "a\x1b"))

		assert.Empty(t, succeed(t, servers, "once", "forget", path, "a\x1b"))
		assert.Empty(t, succeed(t, servers, "once", "keys", path))
		r := inProcess(t, servers, "", "once", "done", path, "a\x1b")
		assert.Equal(t, exitBusy, r.status)
		assert.Contains(t, r.stderr, "is not done")
	})
}

func TestElementsAreListedFreedRemovedAndRedriven(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root, servers, c := s.Root(t), s.ConnectString(), client(t, s)
		path := root + "/queue"
		q := queue.New(c, path, queue.WithDeadLetter(queue.New(c, root+"/dead"), 1))
		reserve := func() *queue.Item {
			_, err := q.Offer(t.Context(), []byte("element"))
			require.NoError(t, err)
			item, err := q.Reserve(t.Context())
			require.NoError(t, err)
			return item
		}
		require.NoError(t, reserve().Nack(t.Context(), queue.Because(errors.New("no paper"))))
		assert.Contains(t, succeed(t, servers, "queue", "list", root+"/dead"), `no paper`)
		assert.Contains(t, succeed(t, servers, "queue", "list", root+"/dead", "--json"), `no paper`)
		assert.Equal(t, "1\n", succeed(t, servers, "queue", "redrive", path, root+"/dead"))
		assert.Equal(t, "{\"moved\":0}\n", succeed(t, servers, "queue", "redrive", path, root+"/dead", "--json"))
		assert.Equal(t, "element", succeed(t, servers, "queue", "take", path))

		item := reserve()
		assert.Contains(t, blank(succeed(t, servers, "queue", "list", path), root), "qn-N  7  TIME  1  held by session SESSION since TIME\n")
		assert.Empty(t, succeed(t, servers, "queue", "free", path, item.ID()))
		<-item.Done()
		assert.Contains(t, blank(succeed(t, servers, "queue", "list", path), root), "qn-N  7  TIME  1  waits\n")
		assert.Empty(t, succeed(t, servers, "queue", "remove", path, item.ID()))
		assert.Equal(t, "0\n", succeed(t, servers, "queue", "len", path))

		for _, args := range [][]string{{"free", path, item.ID()}, {"remove", path, item.ID()}} {
			r := inProcess(t, servers, "", append([]string{"queue"}, args...)...)
			assert.Equal(t, exitFailed, r.status, r.stderr)
			assert.Contains(t, r.stderr, "no entry")
		}
		for _, args := range [][]string{{path, "dead"}, {path, root + "/dead", "--most", "0"}} {
			r := inProcess(t, servers, "", append([]string{"queue", "redrive"}, args...)...)
			assert.Equal(t, exitUsage, r.status, r.stderr)
		}
	})
}
