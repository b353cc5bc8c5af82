package conn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestChangeBeforeItIsAskedForIsTold(t *testing.T) {
	c, _ := begun()
	w := &Watched{}
	early, told := c.Watches.Changed(w), 0
	c.Watches.Call(w, t.Context(), func() { told++ })
	require.False(t, IsClosed(early))
	require.False(t, w.Fired())
	require.Zero(t, told)

	w.fire()

	require.True(t, IsClosed(early))
	require.True(t, w.Fired())
	require.Equal(t, 1, told)
	c.Watches.Call(w, t.Context(), func() { told++ })
	require.Equal(t, 2, told)
	late := &Watched{}
	late.fire()
	require.True(t, IsClosed(c.Watches.Changed(late)))
}

// A watch lasts for longer than its waiters, and than the holders that want to hear of its change.
func TestWaitersThatHaveLeftGiveTheirRoomUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := begun()
		var watches []*Watched
		c.Watches.watches = map[string]*Watched{}
		for _, path := range []string{"/a", "/b", "/c"} {
			w := &Watched{}
			watches, c.Watches.watches[path] = append(watches, w), w
		}

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		steady := make(chan bool, 1)
		go func() { steady <- c.Watches.Any(t.Context(), watches) }()
		synctest.Wait()
		for range 1000 {
			require.False(t, c.Watches.Any(gone, watches))
			c.Watches.Call(watches[1], gone, func() { t.Error("called after its life") })
		}
		for _, w := range watches {
			require.LessOrEqual(t, cap(w.calls), 4)
		}

		c.Watches.notify(zk.Event{Type: zk.EventNodeDeleted, Path: "/b"})
		require.True(t, <-steady)
		require.Empty(t, watches[1].calls)
		require.True(t, c.Watches.Any(t.Context(), watches), "it has fired before")
	})
}
