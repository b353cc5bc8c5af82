package once_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// remembered returns the keys that are done, and requires that each of them has its entry.
func remembered(t *testing.T, c *protocol.Client, path string) []string {
	t.Helper()
	suite.CatchUp(t, c)
	var entries []string
	for _, entry := range suite.Children(t, c, path+"/order") {
		key, _ := suite.Get(t, c, path+"/order/"+entry)
		entries = append(entries, string(key))
	}
	done := suite.Children(t, c, path+"/done")
	require.ElementsMatch(t, done, entries)
	slices.Sort(done)
	return done
}

func TestOldestKeysAreForgotten(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		at := func() *once.Once { return once.New(srv.Client(t), path, once.WithKeep(3)) }
		for _, key := range []string{"z", "b", "y", "d", "x"} { // in another order than by name
			requireRan(t, do(t, at(), key, nothing))
		}
		require.Equal(t, []string{"d", "x", "y"}, remembered(t, c, path))
		for _, key := range []string{"d", "x", "y"} {
			requireDone(t, do(t, at(), key, never))
		}
		requireRan(t, do(t, at(), "z", nothing)) // again
		require.Equal(t, []string{"d", "x", "z"}, remembered(t, c, path))
	})
}

// What counts is when a key was done, not when its run began.
func TestLongRunIsNotForgottenAtOnce(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o, run := once.New(c, path, once.WithKeep(2)), newBlocked()
		long := later(t.Context(), o, "long", run.fn)
		suite.Wait(t, run.began)
		for _, key := range []string{"a", "b", "c"} {
			requireRan(t, do(t, o, key, nothing))
		}
		run.result <- nil
		requireRan(t, suite.Wait(t, long))
		require.Equal(t, []string{"c", "long"}, remembered(t, c, path))
	})
}

// A key that was deleted by hand and done again is younger than its first entry says.
func TestKeyThatRanAgainIsNotForgottenForItsFirstEntry(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o := once.New(c, path, once.WithKeep(3))
		requireRan(t, do(t, o, "again", nothing))
		requireRan(t, do(t, o, "a", nothing))
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/done/again", -1))
		requireRan(t, do(t, o, "again", nothing))
		requireRan(t, do(t, o, "b", nothing))
		require.Equal(t, []string{"a", "again", "b"}, remembered(t, c, path))
		requireRan(t, do(t, o, "c", nothing))
		require.Equal(t, []string{"again", "b", "c"}, remembered(t, c, path))
	})
}

// With many keys one call in fifty forgets, and a call forgets fifty at most.
func TestForgettingIsBounded(t *testing.T) {
	suite.Bubble(t, forgettingIsBounded)
}

func forgettingIsBounded(t *testing.T, srv *recipestest.Server) {
	path, link := srv.Root(t)+"/once", srv.Link(t)
	c := link.Client(t)
	const keep = 500
	runs := func(o *once.Once, from, to int) (listings, reads int) {
		reads, listings = link.Count(recipestest.OpGetData), link.Count(recipestest.OpGetChildren)
		for i := from; i < to; i++ {
			requireRan(t, do(t, o, fmt.Sprint(i), nothing))
		}
		return link.Count(recipestest.OpGetChildren) - listings, link.Count(recipestest.OpGetData) - reads
	}

	o := once.New(c, path, once.WithKeep(keep))
	runs(o, 0, keep+50)
	require.Len(t, remembered(t, c, path), keep+50)
	listings, _ := runs(o, keep+50, keep+51)
	require.Equal(t, 1+1, listings)
	require.Len(t, remembered(t, c, path), keep+1)
	listings, _ = runs(o, keep+51, keep+100)
	require.Equal(t, 49, listings, "those of the line")
	require.Len(t, remembered(t, c, path), keep+50)

	// The number has become smaller.
	few := once.New(c, path, once.WithKeep(10))
	for n := keep + 100; n < keep+103; n++ {
		before := len(remembered(t, c, path))
		_, reads := runs(few, n, n+1)
		require.LessOrEqual(t, reads, 1+50+2)
		require.Len(t, remembered(t, c, path), before+1-50)
	}
}

// Calls that forget at the same time forget the same keys.
func TestConcurrentCallsForgetNoYoungerKeys(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const clients, each, keep = 4, 12, 5
		path, c := srv.Root(t)+"/once", srv.Client(t)
		var wait suite.Group
		for i := range clients {
			o := once.New(srv.Client(t), path, once.WithKeep(keep))
			wait.Go(func() error {
				for n := range each {
					_, err := o.Do(t.Context(), fmt.Sprint(i, n), nothing)
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, wait.Wait())
		require.GreaterOrEqual(t, len(remembered(t, c, path)), keep)

		requireRan(t, do(t, once.New(c, path, once.WithKeep(keep)), "last", nothing))
		require.Len(t, remembered(t, c, path), keep)
	})
}

// A caller that leaves, and nodes of others, keep nothing from being forgotten for good.
func TestForgettingGoesOnInTheNextCall(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o := once.New(c, path, once.WithKeep(2))
		for _, key := range []string{"a", "b"} {
			requireRan(t, do(t, o, key, nothing))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran, err := o.Do(ctx, "c", func(context.Context, int64) error { cancel(); return nil })
		requireRan(t, outcome{ran, err})
		require.Equal(t, []string{"a", "b", "c"}, remembered(t, c, path))

		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), path+"/order/README", []byte("c"), 0))
		requireRan(t, do(t, o, "d", nothing))
		require.NoError(t, s.Delete(t.Context(), path+"/order/README", -1))
		require.Equal(t, []string{"c", "d"}, remembered(t, c, path))
	})
}
