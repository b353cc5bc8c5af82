package session

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// A counter is a value that is shared. The pointer keeps it out of blocks of tiny values, which are
// collected together.
type counter struct {
	n int
	_ *counter
}

func newCounter() *counter { return new(counter) }

// unopened returns a session and a view.
func unopened() (*Session, *View) {
	a := Offline(time.Second)
	return a.current, &a.View
}

// entries returns how many values s shares.
func (s *Session) entries() int {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return len(s.shared.values)
}

func TestSharedValueBelongsToKeySessionViewAndType(t *testing.T) {
	t.Parallel()
	s, v := unopened()
	value := Shared(s, v, "/a", newCounter)

	require.Same(t, value, Shared(s, v, "/a", newCounter))
	require.NotSame(t, value, Shared(s, v, "/b", newCounter), "another key")
	other, view := unopened()
	require.NotSame(t, value, Shared(s, view, "/a", newCounter), "another view")
	require.NotSame(t, value, Shared(other, v, "/a", newCounter), "another session")

	type thing struct{ counter }
	another := Shared(s, v, "/a", func() *thing { return &thing{counter{n: 7}} })
	require.Equal(t, 7, another.n, "another type")
	require.Same(t, value, Shared(s, v, "/a", newCounter))
	require.Same(t, another, Shared(s, v, "/a", func() *thing { return nil }))
	runtime.KeepAlive(value)
}

func TestConcurrentCallersShareOneValue(t *testing.T) {
	t.Parallel()
	s, view := unopened()
	var created atomic.Int32
	values := make([]*counter, 50)
	var callers sync.WaitGroup
	for i := range values {
		callers.Go(func() {
			values[i] = Shared(s, view, "/a", func() *counter {
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
	s, view := unopened()
	kept := Shared(s, view, "kept", newCounter)
	for key := range 10_000 {
		Shared(s, view, key, newCounter)
	}

	for limit := time.Now().Add(30 * time.Second); s.entries() > 1 && time.Now().Before(limit); {
		runtime.GC()
		runtime.Gosched()
	}
	require.Equal(t, 1, s.entries())
	require.Same(t, kept, Shared(s, view, "kept", newCounter))
}

// TestSharedValueDoesNotKeepItsSession lets a session and a value of it refer to each other, as an
// item of a queue and the watch on its node do.
func TestSharedValueDoesNotKeepItsSession(t *testing.T) {
	t.Parallel()
	s, view := unopened()
	v := Shared(s, view, "/a", newCounter)
	w, _ := s.Conn.Watches.On(func(func(*zk.Conn) error) error { return nil }, "/a")
	s.Conn.Watches.Call(w, s.Life, func() { v.n++ })
	left := weak.Make(s)

	for limit := time.Now().Add(30 * time.Second); left.Value() != nil && time.Now().Before(limit); {
		runtime.GC()
		runtime.Gosched()
	}
	require.Nil(t, left.Value())
}

// TestLateCleanUpLeavesTheNextValueAlone cleans up for a value whose key has another value by now.
func TestLateCleanUpLeavesTheNextValueAlone(t *testing.T) {
	t.Parallel()
	s, view := unopened()
	v := Shared(s, view, "/a", newCounter)
	late := sharedEntry[counter]{session: weak.Make(s), key: sharedKey[counter]{weak.Make(view), "/a"}}
	late.remove()

	require.Same(t, v, Shared(s, view, "/a", newCounter))
}

func TestPanicOfCreateLeavesNothingLocked(t *testing.T) {
	t.Parallel()
	s, view := unopened()
	require.Panics(t, func() { Shared(s, view, "/a", func() *counter { panic("no") }) })
	require.Panics(t, func() { Shared(s, view, []string{"/a"}, newCounter) })
	require.NotNil(t, Shared(s, view, "/a", newCounter))
}
