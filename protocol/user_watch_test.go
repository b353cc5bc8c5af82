package protocol_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A watch that was set through Session.Conn hears of what happens while the client is away,
// whatever else is answered before the watches are set again, and wherever the next connection
// breaks.
func TestWatchOfACallerSurvivesTwoCuts(t *testing.T) {
	for name, test := range map[string]struct {
		watch  func(*zk.Conn, string) (<-chan zk.Event, error)
		change func(*zk.Conn, string) error
		want   zk.EventType
	}{
		"children": {
			watch: func(c *zk.Conn, path string) (<-chan zk.Event, error) {
				_, _, fired, err := c.ChildrenW(path)
				return fired, err
			},
			change: func(c *zk.Conn, path string) error {
				_, err := c.Create(path+"/child", nil, 0, zk.WorldACL(zk.PermAll))
				return err
			},
			want: zk.EventNodeChildrenChanged,
		},
		"data": {
			watch: func(c *zk.Conn, path string) (<-chan zk.Event, error) {
				_, _, fired, err := c.GetW(path)
				return fired, err
			},
			change: func(c *zk.Conn, path string) error {
				_, err := c.Set(path, []byte("new"), -1)
				return err
			},
			want: zk.EventNodeDataChanged,
		},
		"data of a node that is known to exist": {
			watch: func(c *zk.Conn, path string) (<-chan zk.Event, error) {
				_, _, fired, err := c.ExistsW(path)
				return fired, err
			},
			change: func(c *zk.Conn, path string) error {
				_, err := c.Set(path, []byte("new"), -1)
				return err
			},
			want: zk.EventNodeDataChanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 100
			for step := 1; cutTwice(t, step, test.watch, test.change, test.want); step++ {
				require.Less(t, step, most, "no end")
			}
		})
	}
}

// cutTwice cuts a connection, changes the node meanwhile, and cuts the next one before its packet
// number step. It reports whether there was such a packet.
func cutTwice(t *testing.T, step int, watch func(*zk.Conn, string) (<-chan zk.Event, error),
	change func(*zk.Conn, string) error, want zk.EventType) (met bool) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		link, root := srv.Link(t), srv.Root(t)
		s, other := session(t, link.Client(t)), session(t, srv.Client(t)).Conn()
		_, err := other.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		fired, err := watch(s.Conn(), root)
		require.NoError(t, err)

		link.Cut()
		synctest.Wait()
		require.NoError(t, change(other, root))
		for range 4 { // zk.Conn sends these before it sets its watches again
			go s.Conn().Exists("/")
		}
		synctest.Wait()
		// What was answered before the cut is to be read by then, or nothing would be known of it.
		stop := link.At(step, func() { time.Sleep(time.Millisecond); link.Cut(); link.Heal() })
		link.Heal()

		select {
		case event := <-fired:
			require.Equal(t, want, event.Type)
		case <-time.After(time.Minute):
			require.Fail(t, "the watch has not fired", "step %d", step)
		}
		require.NoError(t, s.Err())
		met = !stop()
	})
	return met && !t.Failed()
}
