package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Ten minutes of a tree with ten times as many nodes as are listed, in which unrelated nodes come and
// go: no lock that was seen vanishes, and nothing is said to have happened.
func TestNothingHappensBeyondTheBudget(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		t.Cleanup(func() { c.Close() })
		s := suite.Session(t, c)
		plant := func(dir string, n int) {
			ops := []any{&zk.CreateRequest{Path: dir, Acl: zk.WorldACL(zk.PermAll)}}
			for i := range n {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%03d", dir, i), Acl: zk.WorldACL(zk.PermAll)})
			}
			_, err := s.Multi(t.Context(), ops...)
			require.NoError(t, err)
		}
		_, err := s.EnsurePath(t.Context(), root)
		require.NoError(t, err)
		for i := range 20 {
			dir := fmt.Sprintf("%s/dir-%02d", root, i)
			plant(dir, 50)
			require.NoError(t, s.Create(t.Context(), dir+"/002/n-lock-0000000000", nil, zk.FlagEphemeral))
		}

		looks := srv.Client(t)
		t.Cleanup(func() { looks.Close() })
		h := NewHub(Config{Client: looks, Path: root, Interval: 250 * time.Millisecond, Rate: 1_000_000, Nodes: 100, Limit: 100})
		require.True(t, h.enter())
		ctx, cancel := context.WithCancel(t.Context())
		done := suite.Later(func() struct{} { h.Run(ctx); return struct{}{} })
		seen, unread := make(map[string]bool), 0
		for i := range 600 {
			dir := fmt.Sprintf("%s/come-%02d", root, i%20)
			if i/20%2 == 0 {
				plant(dir, i%20*5)
			} else {
				for n := range i % 20 * 5 {
					require.NoError(t, s.Delete(t.Context(), fmt.Sprintf("%s/%03d", dir, n), -1))
				}
				require.NoError(t, s.Delete(t.Context(), dir, -1))
			}
			time.Sleep(time.Second)
			h.mu.Lock()
			shown := make(map[string]bool)
			for _, r := range h.rows {
				if r.Recipe == survey.Lock {
					seen[r.Path], shown[r.Path] = true, true
				}
				if r.Unread {
					unread++
				}
			}
			require.Equal(t, seen, shown, "after %d s", i)
			require.Empty(t, h.timeline.events)
			h.mu.Unlock()
		}
		require.NotEmpty(t, seen)
		require.Positive(t, unread, "some that were read once were left out later")
		cancel()
		suite.Wait(t, done)
	})
}
