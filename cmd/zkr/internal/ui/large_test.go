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

// A hub that may list 100 of 1,000 nodes goes on showing each lock that it has seen, for ten
// minutes in which other nodes come and go, and invents no event.
func TestLocksOfALargeTreeNeitherVanishNorGetLost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		defer suite.Close(t, c)
		s := suite.Session(t, c)
		numbered := func(dir string, n int) (paths []string) {
			suite.Ensure(t, s, dir)
			for i := range n {
				paths = append(paths, fmt.Sprintf("%s/%02d", dir, i))
				suite.Ensure(t, s, paths[i])
			}
			return paths
		}

		// Most nodes are beside the locks, before them in order, and less deep. There are more
		// locks than can be listed, too.
		for _, dir := range numbered("/data", 10) {
			numbered(dir, 95)
		}
		for _, path := range numbered("/locks/team", 22) {
			suite.Ensure(t, s, path+"/app")
			require.NoError(t, s.Create(t.Context(), path+"/app/x-lock-0000000000", nil, zk.FlagEphemeral))
		}

		h := NewHub(Config{Client: c, Path: "/", Interval: 28 * time.Second, Idle: 28 * time.Second, Rate: 1_000_000, Limit: 100, Nodes: 100})
		ctx, cancel := context.WithCancel(t.Context())
		done := suite.Later(func() struct{} { h.Run(ctx); return struct{}{} })
		locks := func() (n, unread int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, r := range h.rows {
				if r.Recipe == survey.Lock && r.Holding == 1 {
					n++
				}
				if r.Unread {
					unread++
				}
			}
			return n, unread
		}

		time.Sleep(10 * time.Second)
		seen, _ := locks()
		require.Greater(t, seen, 10)
		for minute := range 10 {
			// A new directory takes its share from the locks, for a minute.
			dir := fmt.Sprintf("/a%d", minute)
			nodes := append(numbered(dir, 30), dir)
			time.Sleep(30 * time.Second)
			now, unread := locks()
			require.GreaterOrEqual(t, now, seen)
			require.Positive(t, unread, "some locks are not listed for now")
			seen = now

			for _, node := range nodes {
				require.NoError(t, s.Delete(t.Context(), node, -1))
			}
			time.Sleep(30 * time.Second)
			now, _ = locks()
			require.GreaterOrEqual(t, now, seen)
			seen = now
		}
		h.mu.Lock()
		require.Empty(t, h.timeline.events)
		h.mu.Unlock()
		cancel()
		suite.Wait(t, done)
	})
}
