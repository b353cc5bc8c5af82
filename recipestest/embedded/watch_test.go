package embedded_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// The types of events in wireClient.events: 1 created, 2 deleted, 3 data changed, 4 children
// changed.

func TestWatchesFireOnce(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	w.must(t, opExists, packet{}.string("/a").bool(true))
	w.must(t, opGetChildren, packet{}.string("/").bool(true))
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	require.Equal(t, []string{"1 /a", "4 /"}, w.sync(t))

	c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
	c.must(t, opCreate, packet{}.create("/b", nil, 0))
	require.Empty(t, w.sync(t))

	w.must(t, opGetData, packet{}.string("/a").bool(true))
	w.must(t, opExists, packet{}.string("/a").bool(true)) // the same watch
	w.must(t, opGetChildren2, packet{}.string("/a").bool(true))
	c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
	c.must(t, opSetACL, packet{}.string("/a").open().int32(-1))
	require.Equal(t, []string{"3 /a"}, w.sync(t))
	c.must(t, opCreate, packet{}.create("/a/x", nil, 0))
	require.Equal(t, []string{"4 /a"}, w.sync(t))
}

func TestDeletionSendsOneEventForDataAndChildWatches(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	w.must(t, opGetData, packet{}.string("/a").bool(true))
	w.must(t, opGetChildren, packet{}.string("/a").bool(true))
	w.must(t, opGetChildren, packet{}.string("/").bool(true))
	c.must(t, opDelete, packet{}.string("/a").int32(-1))
	require.Equal(t, []string{"2 /a", "4 /"}, w.sync(t))
}

func TestReadsOfMissingNodesLeaveNoWatch(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	for _, op := range []int32{opGetData, opGetChildren, opGetChildren2} {
		require.EqualValues(t, codeNoNode, w.must(t, op, packet{}.string("/a").bool(true)).code)
	}
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	require.Empty(t, w.sync(t))
}

func TestWatchesEndWithTheirConnection(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	w.must(t, opExists, packet{}.string("/a").bool(true))
	w = connect(t, s, hello{session: w.session, password: w.password})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	require.Empty(t, w.sync(t))
	require.EqualValues(t, codeNoWatcher, w.must(t, opCheckWatches, packet{}.string("/a").int32(3)).code)
}

func TestEventComesBeforeTheAnswerThatReflectsIt(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, cfg)
			c, w := connect(t, s, hello{}), connect(t, s, hello{})
			c.must(t, opCreate, packet{}.create("/a", nil, 0))

			const rounds = 2000
			done := make(chan error, 1)
			go func() {
				for range rounds {
					if _, err := c.call(opSetData, packet{}.string("/a").buffer(nil).int32(-1)); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()

			seen, watching := int32(-1), false
			for seen < rounds {
				st := w.must(t, opExists, packet{}.string("/a").bool(true)).stat()
				events := w.takeEvents()
				switch {
				case watching && st.version > seen:
					require.Equal(t, []string{"3 /a"}, events, "version %d after %d", st.version, seen)
				case watching:
					require.Empty(t, events)
				}
				seen, watching = st.version, true
			}
			require.NoError(t, receive(t, done))
		})
	}
}

func TestSetWatchesFiresByStateOrByZxid(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]int32{"setWatches": opSetWatches, "setWatches2": opSetWatches2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, embedded.Config{InMemory: true})
			c := connect(t, s, hello{})
			for _, path := range []string{"/old", "/new", "/oldkids", "/newkids"} {
				c.must(t, opCreate, packet{}.create(path, nil, 0))
			}
			since := c.must(t, opPing, nil).zxid
			c.must(t, opSetData, packet{}.string("/new").buffer(nil).int32(-1))
			c.must(t, opCreate, packet{}.create("/newkids/x", nil, 0))

			w := connect(t, s, hello{})
			body := packet{}.int64(since).
				strings("/missing", "/new", "/old").
				strings("/old", "/later").
				strings("/missing", "/newkids", "/oldkids")
			if op == opSetWatches2 {
				body = body.strings("/persistent").strings("/recursive")
			}
			a := w.must(t, op, body)
			require.Zero(t, a.code)
			require.Empty(t, a.body)
			require.Equal(t, []string{
				"2 /missing", "3 /new", "1 /old", "2 /missing", "4 /newkids",
			}, w.takeEvents())

			// The watches that did not fire are set.
			c.must(t, opSetData, packet{}.string("/old").buffer(nil).int32(-1))
			c.must(t, opCreate, packet{}.create("/later", nil, 0))
			c.must(t, opCreate, packet{}.create("/oldkids/x", nil, 0))
			require.Equal(t, []string{"3 /old", "1 /later", "4 /oldkids"}, w.sync(t))

			// No other watches are.
			c.must(t, opSetData, packet{}.string("/new").buffer(nil).int32(-1))
			c.must(t, opCreate, packet{}.create("/newkids/y", nil, 0))
			c.must(t, opCreate, packet{}.create("/missing", nil, 0))
			require.Empty(t, w.sync(t))

			c.must(t, opCreate, packet{}.create("/persistent", nil, 0))
			c.must(t, opCreate, packet{}.create("/persistent/x", nil, 0))
			c.must(t, opCreate, packet{}.create("/recursive", nil, 0))
			c.must(t, opCreate, packet{}.create("/recursive/x", nil, 0))
			if op == opSetWatches2 {
				require.Equal(t, []string{"1 /persistent", "4 /persistent", "1 /recursive", "1 /recursive/x"}, w.sync(t))
			} else {
				require.Empty(t, w.sync(t))
			}
		})
	}
}

func TestPersistentWatchesStay(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	a := w.must(t, opAddWatch, packet{}.string("/a").int32(0))
	require.Zero(t, a.code)
	require.Zero(t, a.int32())
	for range 2 {
		c.must(t, opCreate, packet{}.create("/a", nil, 0))
		c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
		c.must(t, opCreate, packet{}.create("/a/x", nil, 0))
		c.must(t, opSetData, packet{}.string("/a/x").buffer(nil).int32(-1))
		c.must(t, opDelete, packet{}.string("/a/x").int32(-1))
		c.must(t, opDelete, packet{}.string("/a").int32(-1))
		require.Equal(t, []string{"1 /a", "3 /a", "4 /a", "4 /a", "2 /a"}, w.sync(t))
	}
	require.EqualValues(t, codeMarshalling, w.must(t, opAddWatch, packet{}.string("/a").int32(2)).code)
}

func TestRecursiveWatchesFireForDescendants(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	w.must(t, opAddWatch, packet{}.string("/a").int32(1))
	w.must(t, opAddWatch, packet{}.string("/a/x").int32(1)) // adds no second event
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	c.must(t, opCreate, packet{}.create("/a/x", nil, 0))
	c.must(t, opCreate, packet{}.create("/a/x/y", nil, 0))
	c.must(t, opCreate, packet{}.create("/ab", nil, 0))
	c.must(t, opSetData, packet{}.string("/a/x/y").buffer(nil).int32(-1))
	c.must(t, opDelete, packet{}.string("/a/x/y").int32(-1))
	require.Equal(t, []string{"1 /a", "1 /a/x", "1 /a/x/y", "3 /a/x/y", "2 /a/x/y"}, w.sync(t))

	root := connect(t, s, hello{})
	root.must(t, opAddWatch, packet{}.string("/").int32(1))
	c.must(t, opDelete, packet{}.string("/a/x").int32(-1))
	require.Equal(t, []string{"2 /a/x"}, root.sync(t))
}

func TestTheNewestModeOfAWatchCounts(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	w.must(t, opAddWatch, packet{}.string("/a").int32(1))
	w.must(t, opExists, packet{}.string("/a").bool(true))

	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
	c.must(t, opCreate, packet{}.create("/a/x", nil, 0))
	// The recursive watch in the table of children remains, but fires for deletions only.
	c.must(t, opDelete, packet{}.string("/a/x").int32(-1))
	require.Equal(t, []string{"1 /a", "2 /a/x"}, w.sync(t))
}

func TestWatchesCanBeRemoved(t *testing.T) {
	t.Parallel()
	const children, data, either = 1, 2, 3
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	c.must(t, opCreate, packet{}.create("/a", nil, 0))
	call := func(op, kind int32) int32 {
		return w.must(t, op, packet{}.string("/a").int32(kind)).code
	}
	require.EqualValues(t, codeNoWatcher, call(opCheckWatches, either))
	require.EqualValues(t, codeNoWatcher, call(opRemoveWatches, either))

	w.must(t, opGetData, packet{}.string("/a").bool(true))
	require.Zero(t, call(opCheckWatches, data))
	require.Zero(t, call(opCheckWatches, either))
	require.EqualValues(t, codeNoWatcher, call(opCheckWatches, children))
	require.EqualValues(t, codeNoWatcher, call(opRemoveWatches, children))
	require.Zero(t, call(opRemoveWatches, data))
	require.EqualValues(t, codeNoWatcher, call(opCheckWatches, either))
	c.must(t, opSetData, packet{}.string("/a").buffer(nil).int32(-1))
	require.Empty(t, w.sync(t))

	w.must(t, opAddWatch, packet{}.string("/a").int32(1))
	require.Zero(t, call(opRemoveWatches, either))
	c.must(t, opCreate, packet{}.create("/a/x", nil, 0))
	require.Empty(t, w.sync(t))
	require.EqualValues(t, codeMarshalling, call(opCheckWatches, 0))
	require.EqualValues(t, codeMarshalling, call(opRemoveWatches, 4))
	require.EqualValues(t, codeMarshalling, w.must(t, opCheckWatches, packet{}.string("a").int32(either)).code)
}

func TestEventsNeedReadPermission(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c, w := connect(t, s, hello{}), connect(t, s, hello{})
	w.must(t, opAddWatch, packet{}.string("/").int32(1))
	w.must(t, opExists, packet{}.string("/secret").bool(true))
	c.must(t, opCreate, packet{}.string("/secret").buffer(nil).acl(30, "world", "anyone").int32(0))
	c.must(t, opCreate, packet{}.create("/public", nil, 0))
	c.must(t, opSetData, packet{}.string("/secret").buffer(nil).int32(-1))
	c.must(t, opDelete, packet{}.string("/secret").int32(-1))
	require.Equal(t, []string{"1 /public"}, w.sync(t))
}

func TestClientTooSlowForItsEventsIsCutOffAndBlocksNoOthers(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.MaxSessionTimeout = time.Hour // the slow client sends no pings
			s := start(t, cfg)
			c, slow := connect(t, s, hello{}), connect(t, s, hello{timeout: 3_600_000})
			slow.must(t, opAddWatch, packet{}.string("/").int32(1))

			path := "/" + strings.Repeat("x", 500_000)
			c.must(t, opCreate, packet{}.create(path, nil, 0))
			for range 60 { // 30 MB of events
				c.must(t, opSetData, packet{}.string(path).buffer(nil).int32(-1))
			}

			require.NoError(t, slow.nc.SetDeadline(time.Now().Add(waitLimit)))
			_, err := io.Copy(io.Discard, slow.nc)
			require.NoError(t, err, "the bytes that were sent, then the end")

			// Its session lives on.
			require.NotZero(t, connect(t, s, hello{session: slow.session, password: slow.password}).session)
		})
	}
}
