package once_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// After a failed run, the next run waits for a pause that grows (in whichever process it is). Each
// failure counts once, even if the answer to that is lost.
func TestKeyRunsUntilARunSucceeds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		var last time.Time
		var pauses []time.Duration
		fails := func(context.Context, *once.Run) error {
			link.LoseReply(recipestest.OpSetData, 1)
			pauses = append(pauses, time.Since(last).Round(10*time.Millisecond))
			last = time.Now()
			return errFailed
		}
		var all []<-chan outcome
		for range 3 {
			all = append(all, later(t, once.New(link.Client(t), path), "key", fails))
			synctest.Wait()
		}
		for _, one := range all {
			failed := suite.Wait(t, one)
			require.True(t, failed.ran)
			require.Equal(t, errFailed, failed.err)
		}
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, pauses[1:])

		// The pause counts from the failure.
		time.Sleep(2 * time.Second)
		require.PanicsWithValue(t, "fn", func() {
			do(t, once.New(srv.Client(t), path), "key", func(context.Context, *once.Run) error {
				require.Equal(t, 4*time.Second, time.Since(last).Round(100*time.Millisecond))
				panic("fn")
			})
		})
		ran, err := once.New(srv.Client(t), path).Do(suite.Within(t, time.Second), "key", never)
		require.False(t, ran)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		calls(t, srv.Client(t), path, 0)

		requireRan(t, do(t, once.New(srv.Client(t), path), "key", nothing))
		requireDone(t, do(t, once.New(srv.Client(t), path), "key", never))
	})
}

// A server's clock that is set back doesn't make the pause after a failed run longer.
func TestPauseWithAClockThatIsSetBack(t *testing.T) {
	kept := recipestest.WithConfig(embedded.Config{Dir: t.TempDir()})
	for _, past := range []time.Duration{time.Hour, 0} { // all bubbles begin at the same time
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			defer srv.Embedded().Close()
			time.Sleep(past)
			began := time.Now()
			do(t, once.New(srv.Client(t), "/a/once"), "key", func(context.Context, *once.Run) error { return errFailed })
			require.Less(t, time.Since(began), 2*time.Second)
		}, kept)
	}
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		names := []string{
			"a", "a-run-", "x-run-a", "-run-", "-run-0000000000", "done", "order", ".", "..", "...", "/", "/a/b", "%2E", "%",
			"\x00", "\xff\xfe", "später", " ", "_c_", strings.Repeat("k", 255), strings.Repeat("\x00", 255),
		}
		runs := make([]blocked, len(names))
		var results []<-chan outcome
		for i, key := range names {
			runs[i] = newBlocked()
			results = append(results, later(t, once.New(c, path), key, runs[i].fn))
		}
		for i := range names {
			suite.Wait(t, runs[i].began)
		}
		for i := range names {
			runs[i].result <- nil
			requireRan(t, suite.Wait(t, results[i]))
			requireDone(t, do(t, once.New(c, path), names[i], never))
		}

		var done []string
		for _, key := range keys(t, once.New(c, path)) {
			done = append(done, key.Name)
		}
		require.ElementsMatch(t, names, done)
	})
}

func TestDoneNodeSaysWhoHasRun(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o := once.New(c, path)
		var want once.Key
		requireRan(t, do(t, o, "a/b", func(_ context.Context, r *once.Run) error {
			require.Equal(t, calls(t, c, path, 1), []string{r.Node()})
			require.Equal(t, path+"/"+r.Node(), r.Check().Path)
			require.NoError(t, r.Err())
			want = once.Key{Name: r.Key(), PID: os.Getpid(), Node: r.Node(), Token: r.Token()}
			return nil
		}))
		want.Host, _ = os.Hostname()
		data, _ := suite.Get(t, c, path+"/done/a%2Fb")
		var record map[string]any
		require.NoError(t, json.Unmarshal(data, &record))
		suite.Got(time.Parse(time.RFC3339Nano, record["done"].(string)))(t)

		failing := once.New(srv.Client(t), path)
		require.ErrorIs(t, do(t, failing, "failed", func(context.Context, *once.Run) error { return errFailed }).err, errFailed)
		all := keys(t, o)
		require.Len(t, all, 1)
		require.WithinDuration(t, time.Now(), all[0].Done, time.Minute)
		all[0].Done = time.Time{}
		require.Equal(t, want, all[0])
		for key, is := range map[string]bool{"a/b": true, "failed": false, "other": false} {
			done := suite.Got(failing.Done(t.Context(), key))(t)
			require.Equal(t, is, done, key)
		}
	})
}

// The package page describes these changes by hand.
func TestKeysAreChangedByHand(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o, s := once.New(c, path), suite.Session(t, c)
		requireRan(t, do(t, o, "key", nothing))
		require.NoError(t, o.Forget(t.Context(), "key"))
		require.NoError(t, o.Forget(t.Context(), "key"), "it is not known any more")
		require.Empty(t, remembered(t, c, path))
		requireRan(t, do(t, o, "key", nothing))
		require.NoError(t, s.Delete(t.Context(), path+"/done/key", -1))
		requireRan(t, do(t, o, "key", nothing))

		require.NoError(t, s.Create(t.Context(), path+"/done/by-hand", nil, zk.FlagPersistent))
		requireDone(t, do(t, o, "by-hand", never))
		require.Equal(t, "by-hand", keys(t, o)[0].Name)
		require.ErrorIs(t, do(t, o, "failed", func(context.Context, *once.Run) error { return errFailed }).err, errFailed)
		pauses := later(t, o, "failed", never)
		calls(t, c, path, 1)
		require.NoError(t, s.Delete(t.Context(), path+"/done/failed/open", -1))
		requireDone(t, do(t, o, "failed", never))
		requireDone(t, suite.Wait(t, pauses))

		for _, key := range []string{"key", "by-hand", "failed"} {
			require.NoError(t, o.Forget(t.Context(), key))
		}
		require.Empty(t, keys(t, o))
		require.Empty(t, remembered(t, c, path))

		// A key that is forgotten while it runs is done after that.
		requireRan(t, do(t, o, "key", func(context.Context, *once.Run) error { return o.Forget(t.Context(), "key") }))
		requireDone(t, do(t, o, "key", never))
	})
}

// If a quota fills up while fn runs, or only a smaller request than the record's would fit, fn must
// not run twice.
func TestQuotaRefusesARunBeforeItAndNotAfterIt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, link := srv.Root(t)+"/once", srv.Client(t), srv.Link(t)
		o := once.New(link.Client(t), path)
		requireRan(t, do(t, o, "first", nothing))
		full := func() { link.Fail(recipestest.OpMulti, "", int32(zkwire.CodeQuotaExceeded), 1) }
		full()
		refused := do(t, o, "key", never)
		require.False(t, refused.ran)
		require.ErrorIs(t, refused.err, protocol.ErrQuotaExceeded)
		requireRan(t, do(t, o, "key", func(context.Context, *once.Run) error { full(); return nil }))
		requireDone(t, do(t, o, "key", never))
		require.Equal(t, []string{"first", "key"}, suite.Children(t, c, path+"/done"))
		require.Len(t, keys(t, o), 2)
		for limit := 1024; limit < 2048; limit += 64 {
			tight := once.New(srv.Client(t, protocol.WithRequestLimit(limit)), path)
			ran, err := tight.Do(t.Context(), strings.Repeat("k", 200)+fmt.Sprint(limit), nothing)
			require.True(t, !ran || err == nil, "%d: %v", limit, err)
		}
	})
}

// If a run ends because its ctx has ended, that's no failure: the next run doesn't wait. If the run
// returns nil all the same, it is recorded, however long it went on.
func TestRunWhoseContextEnds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/once"
		for _, want := range []error{context.Canceled, nil} {
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			ran, err := once.New(srv.Client(t), path).Do(ctx, "key", func(ctx context.Context, _ *once.Run) error {
				cancel()
				<-ctx.Done()
				time.Sleep(time.Minute)
				return want
			})
			require.True(t, ran)
			require.ErrorIs(t, err, want)
			require.Less(t, time.Since(began), time.Minute+100*time.Millisecond)
			require.Equal(t, want == nil, len(keys(t, once.New(srv.Client(t), path))) == 1)
			calls(t, srv.Client(t), path, 0)
		}
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/a"
		c := link.Client(t)
		before := link.Packets()
		longest := strings.Repeat("k", 255)
		for _, test := range []struct {
			keep int
			key  string
			want string
		}{
			{1, "", "a key needs from 1 to 255 bytes, got 0"},
			{0, "key", "WithKeep needs a number from 1 to 100000, got 0"},
			{100_001, "key", "WithKeep needs a number from 1 to 100000, got 100001"},
			{1, longest + "k", "a key needs from 1 to 255 bytes, got 256"},
		} {
			bad := do(t, once.New(c, path, once.WithKeep(test.keep)), test.key, never)
			require.EqualError(t, bad.err, "once: "+path+": "+test.want)
			require.False(t, bad.ran)
		}
		require.Equal(t, before, link.Packets())
		requireRan(t, do(t, once.New(c, path, once.WithKeep(1)), "k", nothing))
		requireRan(t, do(t, once.New(c, path, once.WithKeep(100_000)), longest, nothing))
	})
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

		// The age of a key counts from when it was done, not from when its run began.
		run := newBlocked()
		long := later(t, at(), "long", run.fn)
		suite.Wait(t, run.began)
		for _, key := range []string{"e", "f", "g", "h"} {
			requireRan(t, do(t, at(), key, nothing))
		}
		run.result <- nil
		requireRan(t, suite.Wait(t, long))
		require.Equal(t, []string{"g", "h", "long"}, remembered(t, c, path))
	})
}

// Only keys that are done count. Many keys that still run don't make calls forget more often.
func TestOnlyDoneKeysCount(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, running := srv.Link(t), blocked{make(chan context.Context), make(chan error)}
		o, fails := once.New(link.Client(t), srv.Root(t)+"/once", once.WithKeep(10)), func(context.Context, *once.Run) error { return errFailed }
		reads, forgets := 0, 0
		for i := range 14 {
			requireRan(t, do(t, o, fmt.Sprint(i), nothing))
			if now := link.Count(recipestest.OpGetData); now > reads {
				reads, forgets = now, forgets+1
			}
			if i < 10 {
				require.Equal(t, errFailed, do(t, o, fmt.Sprint("fails ", i), fails).err)
				later(t, o, fmt.Sprint("runs ", i), running.fn)
				suite.Wait(t, running.began)
				forgets = 0
			}
		}
		require.GreaterOrEqual(t, len(keys(t, o)), 10)
		require.Equal(t, 2, forgets)
		close(running.result)
	})
}

func TestOldKeysAreForgotten(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		o := once.New(c, path, once.WithRetention(time.Hour))
		for _, key := range []string{"a", "b", "c", "d"} {
			requireRan(t, do(t, o, key, nothing))
			time.Sleep(25 * time.Minute)
		}
		require.Equal(t, []string{"b", "c", "d"}, remembered(t, c, path))
		require.ErrorContains(t, do(t, once.New(c, path, once.WithRetention(0)), "k", never).err, "WithRetention needs a positive duration")
	})
}

// With many keys, a call forgets only once a tenth too many have come. That call reads all of them,
// and forgets in as many requests as the limit demands.
func TestForgettingIsRare(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		c := link.Client(t, protocol.WithRequestLimit(4096))
		const keep = 500
		runs := func(o *once.Once, from, to int) int {
			reads := link.Count(recipestest.OpGetData)
			for i := from; i < to; i++ {
				requireRan(t, do(t, o, fmt.Sprint(i), nothing))
			}
			return link.Count(recipestest.OpGetData) - reads
		}

		o := once.New(c, path, once.WithKeep(keep))
		require.Zero(t, runs(o, 0, keep+50))
		require.Len(t, remembered(t, c, path), keep+50)
		require.Equal(t, keep+51+51, runs(o, keep+50, keep+51))
		require.Len(t, remembered(t, c, path), keep)
		require.Zero(t, runs(o, keep+51, keep+101))
		require.Len(t, remembered(t, c, path), keep+50)

		// The number has become smaller.
		runs(once.New(c, path, once.WithKeep(10)), keep+101, keep+102)
		require.Len(t, remembered(t, c, path), 10)
	})
}

// While a call forgets a key, an operator forgets the key, too. Then the key runs again. So it was
// done last, and must stay done.
func TestKeyThatRanAgainMeanwhileIsNotForgotten(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, met := srv.Client(t), 0
		for packet := 1; packet < 30; packet++ {
			path, link := fmt.Sprint(srv.Root(t), "/", packet), srv.Link(t)
			forgetful, other := once.New(link.Client(t), path, once.WithKeep(1)), once.New(c, path)
			requireRan(t, do(t, other, "old", nothing))
			again, struck := false, (func() bool)(nil)
			requireRan(t, do(t, forgetful, "new", func(context.Context, *once.Run) error {
				struck = suite.At(link, packet, func() {
					if again, _ = other.Done(t.Context(), "new"); again {
						require.NoError(t, other.Forget(t.Context(), "old"))
						requireRan(t, do(t, other, "old", nothing))
					}
				})
				return nil
			}))
			if struck() && again {
				met++
				require.Contains(t, remembered(t, c, path), "old", packet)
			}
		}
		require.Greater(t, met, 10)
	})
}

// The key is made done while the run goes on, and the reply that says so is lost: by an operator,
// or by another run after this one has lost its right. Then it must not take the record for its
// own.
func TestKeyThatWasMadeDoneMeanwhile(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/once", srv.Link(t), srv.Client(t)
		o, other := once.New(link.Client(t), path), suite.Session(t, c)
		requireRan(t, do(t, o, "first", nothing))
		requireRan(t, do(t, o, "hand", func(context.Context, *once.Run) error {
			link.LoseReply(recipestest.OpMulti, 1)
			return other.Delete(t.Context(), path+"/done/hand/open", -1)
		}))
		lost := do(t, o, "key", func(_ context.Context, r *once.Run) error {
			require.NoError(t, other.Delete(t.Context(), path+"/"+r.Node(), -1))
			requireRan(t, do(t, once.New(c, path), "key", nothing))
			link.LoseReply(recipestest.OpMulti, 1)
			return nil
		})
		require.True(t, lost.ran)
		require.ErrorIs(t, lost.err, protocol.ErrLost)
		for _, key := range []string{"hand", "key"} {
			requireDone(t, do(t, o, key, never))
		}
	})
}

// A record that may not be read is an error, and no wait for ever.
func TestRecordOfAFailureThatMayNotBeRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		o := once.New(srv.Client(t, protocol.WithACLFor(func(path string) []zk.ACL {
			if strings.HasSuffix(path, "/open") {
				return zk.WorldACL(zk.PermAll &^ zk.PermRead)
			}
			return nil
		})), srv.Root(t)+"/once")
		fail := func(context.Context, *once.Run) error { return errFailed }
		require.ErrorIs(t, do(t, o, "key", fail).err, errFailed)
		_, err := o.Do(suite.Within(t, time.Minute), "key", fail)
		require.ErrorIs(t, err, zk.ErrNoAuth)
	}, recipestest.WithConfig(embedded.Config{Version: "3.9"}))
}
