package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestOneCallOfManyRuns(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const clients, goroutines, keys = 4, 3, 3
		path := srv.Root(t) + "/once"
		runs := make([]int, keys)
		results := make(chan bool, clients*goroutines*keys)
		var wait suite.Group
		for range clients {
			o := once.New(srv.Client(t), path)
			for range goroutines {
				for i := range keys {
					wait.Go(func() error {
						ran, err := o.Do(t.Context(), fmt.Sprint("key ", i), func(context.Context, int64) error {
							runs[i]++ // the race detector would see two that run
							return nil
						})
						results <- ran
						return err
					})
				}
			}
		}
		require.NoError(t, wait.Wait())

		ran := 0
		for range clients * goroutines * keys {
			if <-results {
				ran++
			}
		}
		require.Equal(t, []int{1, 1, 1}, runs)
		require.Equal(t, keys, ran)
		calls(t, srv.Client(t), path, 0)
	})
}

// A call on a server that lags does not know at first that the key is done. It may wait and be
// granted, but it does not run.
func TestCallThatWaitedLearnsThatTheKeyIsDone(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/once"
		for i := range 5 {
			key, run := fmt.Sprint(i), newBlocked()
			first := later(t.Context(), once.New(srv.Client(t), path), key, run.fn)
			suite.Wait(t, run.began)
			var waiting []<-chan outcome
			for range 2 {
				waiting = append(waiting, later(t.Context(), once.New(srv.Client(t), path), key, never))
			}
			calls(t, srv.Client(t), path, 3)
			run.result <- nil
			requireRan(t, suite.Wait(t, first))
			for _, w := range waiting {
				requireDone(t, suite.Wait(t, w))
			}
			requireDone(t, do(t, once.New(srv.Client(t), path), key, never))
		}
	})
}

func TestKeyRunsUntilARunSucceeds(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/once"
		at := func() *once.Once { return once.New(srv.Client(t), path) }
		run, second := newBlocked(), newBlocked()
		failing := later(t.Context(), at(), "key", run.fn)
		suite.Wait(t, run.began)
		waiting := later(t.Context(), at(), "key", second.fn)
		calls(t, srv.Client(t), path, 2)

		run.result <- errFailed
		failed := suite.Wait(t, failing)
		require.True(t, failed.ran)
		require.ErrorIs(t, failed.err, errFailed)
		suite.Wait(t, second.began)
		second.result <- errFailed
		require.ErrorIs(t, suite.Wait(t, waiting).err, errFailed)

		require.PanicsWithValue(t, "fn", func() {
			do(t, at(), "key", func(context.Context, int64) error { panic("fn") })
		})
		calls(t, srv.Client(t), path, 0)
		var last int64
		requireRan(t, do(t, at(), "key", func(_ context.Context, token int64) error { last = token; return nil }))
		require.Positive(t, last)
		requireDone(t, do(t, at(), "key", never))
	})
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		keys := []string{
			"a", "a-run-", "x-run-a", "-run-", "-run-0000000000", "done", "order", ".", "..", "...", "/", "/a/b", "%2E", "%",
			"\x00", "\xff\xfe", "später", " ", "_c_", strings.Repeat("k", 255), strings.Repeat("\x00", 255),
		}
		runs := make([]blocked, len(keys))
		var results []<-chan outcome
		for i, key := range keys {
			runs[i] = newBlocked()
			results = append(results, later(t.Context(), once.New(c, path), key, runs[i].fn))
		}
		for i := range keys {
			suite.Wait(t, runs[i].began)
		}
		for i := range keys {
			runs[i].result <- nil
			requireRan(t, suite.Wait(t, results[i]))
			requireDone(t, do(t, once.New(c, path), keys[i], never))
		}

		var done []string
		for _, name := range suite.Children(t, c, path+"/done") {
			key, err := url.PathUnescape(name)
			require.NoError(t, err)
			done = append(done, key)
		}
		require.ElementsMatch(t, keys, done)
	})
}

func TestDoneNodeSaysWhoHasRun(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		var token int64
		var nodes []string
		requireRan(t, do(t, once.New(c, path), "a/b", func(_ context.Context, its int64) error {
			token, nodes = its, calls(t, c, path, 1)
			return nil
		}))
		data, _ := suite.Get(t, c, path+"/done/a%2Fb")
		var record map[string]any
		require.NoError(t, json.Unmarshal(data, &record))
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, host, record["host"])
		require.EqualValues(t, os.Getpid(), record["pid"])
		require.EqualValues(t, token, record["token"])
		require.Equal(t, nodes[0], record["node"])
		_, err = time.Parse(time.RFC3339Nano, record["done"].(string))
		require.NoError(t, err)

		// An operator may say that a key is done, or that it is not.
		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), path+"/done/by-hand", nil, zk.FlagPersistent))
		requireDone(t, do(t, once.New(c, path), "by-hand", never))
		require.NoError(t, s.Delete(t.Context(), path+"/done/a%2Fb", -1))
		requireRan(t, do(t, once.New(c, path), "a/b", nothing))
	})
}

func TestCosts(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		o := once.New(link.Client(t), path)
		requireRan(t, do(t, o, "first", nothing))
		ops := map[string]recipestest.Op{
			"exists": recipestest.OpExists, "create": recipestest.OpCreate, "children": recipestest.OpGetChildren,
			"get": recipestest.OpGetData, "multi": recipestest.OpMulti, "delete": recipestest.OpDelete,
			"container": recipestest.OpCreateContainer, "sync": recipestest.OpSync,
		}
		cost := func(call func()) map[string]int {
			before := make(map[string]int)
			for name, op := range ops {
				before[name] = link.Count(op)
			}
			call()
			cost := make(map[string]int)
			for name, op := range ops {
				if n := link.Count(op) - before[name]; n > 0 {
					cost[name] = n
				}
			}
			return cost
		}
		same := func(want, got map[string]int) error {
			if fmt.Sprint(want) != fmt.Sprint(got) {
				return fmt.Errorf("%v instead of %v", got, want)
			}
			return nil
		}

		n := 0
		suite.Measure(t, func() error {
			n++
			return same(map[string]int{"exists": 2, "create": 1, "children": 1, "multi": 1, "delete": 1}, cost(func() {
				requireRan(t, do(t, o, fmt.Sprint(n), nothing))
			}))
		})
		suite.Measure(t, func() error {
			return same(map[string]int{"exists": 1}, cost(func() { requireDone(t, do(t, o, "first", never)) }))
		})

		// A call that has waited, and is the next in line, knows that without a listing.
		other := once.New(srv.Client(t), path)
		suite.Measure(t, func() error {
			n++
			key, run := fmt.Sprint(n), newBlocked()
			first := later(t.Context(), other, key, run.fn)
			suite.Wait(t, run.began)
			asleep := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+2)
			waiting := later(t.Context(), o, key, never)
			suite.Wait(t, asleep)
			return same(map[string]int{"exists": 1, "delete": 1}, cost(func() {
				run.result <- nil
				requireRan(t, suite.Wait(t, first))
				requireDone(t, suite.Wait(t, waiting))
			}))
		})
	})
}

func TestEndOfTheContextWhileWaiting(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, run := srv.Root(t)+"/once", newBlocked()
		first := later(t.Context(), once.New(srv.Client(t), path), "key", run.fn)
		suite.Wait(t, run.began)
		ctx, giveUp := context.WithCancel(t.Context())
		waiting := later(ctx, once.New(srv.Client(t), path), "key", never)
		calls(t, srv.Client(t), path, 2)
		giveUp()
		given := suite.Wait(t, waiting)
		require.ErrorIs(t, given.err, context.Canceled)
		require.ErrorContains(t, given.err, "once: "+path+": ")
		require.False(t, given.ran)
		calls(t, srv.Client(t), path, 1)
		run.result <- nil
		requireRan(t, suite.Wait(t, first))

		_, err := once.New(srv.Client(t), path).Do(ctx, "another", never)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A run that returns nil has run to its end, whatever has become of ctx.
func TestRunWhoseContextEndsIsRecorded(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/once"
		ctx, cancel := context.WithCancel(t.Context())
		ran, err := once.New(srv.Client(t), path).Do(ctx, "key", func(ctx context.Context, _ int64) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		requireRan(t, outcome{ran, err})
		requireDone(t, do(t, once.New(srv.Client(t), path), "key", never))
		calls(t, srv.Client(t), path, 0)
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	bad := func(*once.Once) error { return errors.New("bad option") }

	for name, test := range map[string]struct {
		o    *once.Once
		key  string
		want error
	}{
		"nil client":    {once.New(nil, "/a"), "key", nil},
		"empty path":    {once.New(c, ""), "key", zk.ErrInvalidPath},
		"relative path": {once.New(c, "a"), "key", zk.ErrInvalidPath},
		"root":          {once.New(c, "/"), "key", zk.ErrInvalidPath},
		"bad option":    {once.New(c, "/a", bad), "key", nil},
		"keeps none":    {once.New(c, "/a", once.WithKeep(0)), "key", nil},
		"keeps all":     {once.New(c, "/a", once.WithKeep(100_001)), "key", nil},
		"no key":        {once.New(c, "/a"), "", nil},
		"long key":      {once.New(c, "/a"), strings.Repeat("k", 256), nil},
		"bad view":      {once.New(c.With(protocol.WithACL(nil)), "/a"), "key", nil},
	} {
		ran, err := test.o.Do(t.Context(), test.key, nothing)
		require.False(t, ran, name)
		require.ErrorContains(t, err, "once: ", name)
		if test.want != nil {
			require.ErrorIs(t, err, test.want, name)
		}
	}
	_, err := once.New(c, "/a").Do(t.Context(), "", nothing)
	require.EqualError(t, err, "once: /a: a key needs from 1 to 255 bytes, got 0")
	_, err = once.New(c, "/a", once.WithKeep(0)).Do(t.Context(), "key", nothing)
	require.EqualError(t, err, "once: /a: WithKeep needs a number from 1 to 100000, got 0")
	require.Equal(t, before, link.Packets())
}
