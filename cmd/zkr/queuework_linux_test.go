package main

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestWorkRunsACommandForEachElement(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/queue"
		q := queue.New(s.Client(t), path)
		for _, text := range []string{"a", "b", "c"} {
			suite.Got(q.Offer(suite.Lasting(t), []byte(text)))(t)
		}

		// The first attempt at b fails.
		p := start(t, zkr(t, s.ConnectString(), "queue", "work", path, "--", "sh", "-c",
			`read -r text; echo "$text $ZKR_ATTEMPT"; [ "$text $ZKR_ATTEMPT" != "b 1" ]`))
		require.NoError(t, q.Drained(suite.Lasting(t)))
		got := []string{p.line(), p.line(), p.line(), p.line()}
		assert.ElementsMatch(t, []string{"a 1", "b 1", "b 2", "c 1"}, got)

		p.signal(syscall.SIGTERM)
		assert.Equal(t, exitSignal+15, p.status())
	})
}

func TestSignalEndsWorkAndGivesTheElementBack(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/queue"
	q := queue.New(s.Client(t), path)
	suite.Got(q.Offer(suite.Lasting(t), []byte("a")))(t)
	p := start(t, zkr(t, s.ConnectString(), "queue", "work", "--workers", "3", path, "--",
		"sh", "-c", `echo $$; exec sleep 1000`))
	pids := p.pids()
	p.signal(syscall.SIGTERM)
	// The element is free again, and its command is gone.
	assert.Equal(t, exitSignal+15, p.status())
	assert.Empty(t, running(pids))
	data := suite.Must(t, q.Take)
	assert.Equal(t, "a", string(data))
}

func TestFreedElementEndsItsCommandAndWorkGoesOn(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/queue"
		q := queue.New(s.Client(t), path)
		id := suite.Got(q.Offer(suite.Lasting(t), []byte("a")))(t)
		p := start(t, zkr(t, s.ConnectString(), "queue", "work", path, "--",
			"sh", "-c", `echo $$; trap "" TERM; [ $ZKR_ATTEMPT = 2 ] || while :; do sleep 1; done`))
		pids := p.pids()
		require.NoError(t, q.Free(suite.Lasting(t), id))
		awaitEnd(t, pids)
		require.NoError(t, q.Drained(suite.Lasting(t)))
		p.signal(syscall.SIGTERM)
		assert.Equal(t, exitSignal+15, p.status())
	})
}

func TestWorkEndsWhenThereIsNothingToDo(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/queue"
	succeed(t, s.ConnectString(), "queue", "offer", path, "a", "b")
	p := start(t, zkr(t, s.ConnectString(), "queue", "work", "--wait", "15s", path, "--",
		"sh", "-c", `read -r text; echo "$text"; sleep 1`))
	assert.Equal(t, "a", p.line())
	assert.Equal(t, "b", p.line())
	assert.Zero(t, p.status())
	assert.Contains(t, p.said(), "there was nothing to do for 15s")
	assert.Equal(t, "0\n", succeed(t, s.ConnectString(), "queue", "len", path))
}

func TestIdleIsWhatHasNothingUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		over := make(chan time.Duration, 1)
		ended := func(error) { over <- time.Since(began) }
		r := newRelay(time.Minute)
		go r.forward(t.Context(), nil, ended)
		// Anything under way stops the clock.
		time.Sleep(30 * time.Second)
		a, b := r.join(), r.join()
		time.Sleep(time.Hour)
		r.leave(a)
		time.Sleep(time.Hour)
		assert.Empty(t, over)
		r.leave(b)
		assert.Equal(t, 2*time.Hour+90*time.Second, <-over)

		// Without a limit, idling never ends anything.
		r = newRelay(0)
		go r.forward(t.Context(), nil, ended)
		r.leave(r.join())
		time.Sleep(time.Hour)
		assert.Empty(t, over)

		// A command that begins just then knows whether the work has ended.
		for range 1000 {
			r = newRelay(time.Minute)
			go r.forward(t.Context(), nil, ended)
			time.Sleep(time.Minute)
			r.join()
			before := len(over)
			synctest.Wait()
			assert.Len(t, over, before)
			if before > 0 {
				<-over
			}
		}
	})
}
