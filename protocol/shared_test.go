package protocol

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// unopened returns a client, and a session of its own that no server knows.
func unopened() (*Client, *Session) {
	c := &Client{sessions: &sessions{ensemble: conn.NewEnsemble()}, observer: noObserver{}}
	c.ensemble.Spawn = c.spawn
	return c, newSession(c)
}

// A counter is a value that is shared. The pointer keeps it out of blocks of tiny values, which are
// collected together.
type counter struct {
	n int
	_ *counter
}

func newCounter() *counter { return new(counter) }

// entries returns how many values s shares.
func (s *Session) entries() int {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return len(s.shared)
}

func TestSharedValueBelongsToKeySessionAndView(t *testing.T) {
	t.Parallel()
	c, s := unopened()
	view := c.With()
	v := Shared(c.bind(s.session, false), "/a", newCounter)

	require.Same(t, v, Shared(c.bind(s.session, false), "/a", newCounter))
	require.Same(t, v, Shared(s, "/a", newCounter), "another Session of the same view")
	require.NotSame(t, v, Shared(c.bind(s.session, false), "/b", newCounter), "another key")
	require.NotSame(t, v, Shared(view.bind(s.session, false), "/a", newCounter), "another view")
	require.NotSame(t, v, Shared(c.bind(newSession(c).session, false), "/a", newCounter), "another session")
	runtime.KeepAlive(v)
}

func TestSharedValuesOfTwoTypesHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	_, s := unopened()
	type other struct{ counter }
	v := Shared(s, "/a", newCounter)
	o := Shared(s, "/a", func() *other { return &other{counter{n: 7}} })

	require.Same(t, v, Shared(s, "/a", newCounter))
	require.Same(t, o, Shared(s, "/a", func() *other { return nil }))
	require.Equal(t, 7, o.n)
	runtime.KeepAlive(v)
}

func TestConcurrentCallersShareOneValue(t *testing.T) {
	t.Parallel()
	_, s := unopened()
	var created atomic.Int32
	values := make([]*counter, 50)
	var callers sync.WaitGroup
	for i := range values {
		callers.Go(func() {
			values[i] = Shared(s, "/a", func() *counter {
				created.Add(1)
				runtime.Gosched()
				return newCounter()
			})
		})
	}
	callers.Wait()

	require.EqualValues(t, 1, created.Load())
	for _, v := range values {
		require.Same(t, values[0], v)
	}
}

// TestSharedValueIsCollectedAfterItsLastUse uses very many keys once, and one key all the time.
func TestSharedValueIsCollectedAfterItsLastUse(t *testing.T) {
	t.Parallel()
	_, s := unopened()
	kept := Shared(s, "kept", newCounter)
	for key := range 10_000 {
		Shared(s, key, newCounter)
	}

	for limit := time.Now().Add(30 * time.Second); s.entries() > 1 && time.Now().Before(limit); {
		runtime.GC()
		runtime.Gosched()
	}
	require.Equal(t, 1, s.entries())
	require.Same(t, kept, Shared(s, "kept", newCounter))
}

// TestSharedValueDoesNotKeepItsSession lets a session and a value of it refer to each other, as an
// item of a queue and the watch on its node do.
func TestSharedValueDoesNotKeepItsSession(t *testing.T) {
	t.Parallel()
	c, s := unopened()
	v := Shared(s, "/a", newCounter)
	w, _ := s.conn.Watches.On(func(func(*zk.Conn) error) error { return nil }, "/a")
	s.conn.Watches.Call(w, s.life, func() { v.n++ })
	c.sessions.current = s.session
	left := weak.Make(s.session)

	for limit := time.Now().Add(30 * time.Second); left.Value() != nil && time.Now().Before(limit); {
		runtime.GC()
		runtime.Gosched()
	}
	require.Nil(t, left.Value())
}

// TestLateCleanUpLeavesTheNextValueAlone cleans up for a value whose key has got another one.
func TestLateCleanUpLeavesTheNextValueAlone(t *testing.T) {
	t.Parallel()
	c, s := unopened()
	v := Shared(s, "/a", newCounter)
	late := sharedEntry[counter]{session: weak.Make(s.session), key: sharedKey[counter]{weak.Make(c), "/a"}}
	late.remove()

	require.Same(t, v, Shared(s, "/a", newCounter))
}

func TestPanicOfCreateLeavesNothingLocked(t *testing.T) {
	t.Parallel()
	_, s := unopened()
	require.Panics(t, func() { Shared(s, "/a", func() *counter { panic("no") }) })
	require.Panics(t, func() { Shared(s, []string{"/a"}, newCounter) })
	require.NotNil(t, Shared(s, "/a", newCounter))
}
