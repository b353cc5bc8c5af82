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

// A hub that may list 10,000 of 100,000 nodes goes on showing each lock that it has seen, for ten
// minutes in which other nodes come and go, and invents no event.
func TestLocksOfALargeTreeNeitherVanishNorGetLost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		defer suite.Close(t, c)
		s := suite.Session(t, c)
		var batch []any
		flush := func() {
			_, err := s.Conn().Multi(batch...)
			require.NoError(t, err)
			batch = nil
		}
		create := func(path string, flags int32) {
			if batch = append(batch, &zk.CreateRequest{Path: path, Flags: flags, Acl: zk.WorldACL(zk.PermAll)}); len(batch) == 500 {
				flush()
			}
		}

		// Most nodes are beside the locks, before them in order, and less deep. There are more
		// locks than can be listed, too.
		create("/data", 0)
		for i := range 100 {
			dir := fmt.Sprintf("/data/%02d", i)
			create(dir, 0)
			for j := range 950 {
				create(fmt.Sprintf("%s/%03d", dir, j), 0)
			}
		}
		create("/locks", 0)
		create("/locks/team", 0)
		for i := range 2200 {
			path := fmt.Sprintf("/locks/team/%04d", i)
			create(path, 0)
			create(path+"/app", 0)
			create(path+"/app/x-lock-0000000000", zk.FlagEphemeral)
		}
		flush()

		h := NewHub(Config{Client: c, Path: "/", Interval: 28 * time.Second, Idle: 28 * time.Second, Rate: 1_000_000, Limit: 100, Nodes: 10_000})
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
		require.Greater(t, seen, 1000)
		for minute := range 10 {
			// A new directory takes its share from the locks, for a minute.
			dir := fmt.Sprintf("/a%d", minute)
			create(dir, 0)
			for i := range 300 {
				create(fmt.Sprintf("%s/%03d", dir, i), 0)
			}
			flush()
			time.Sleep(30 * time.Second)
			now, unread := locks()
			require.GreaterOrEqual(t, now, seen)
			require.Positive(t, unread, "some locks are not listed for now")
			seen = now

			for i := range 300 {
				batch = append(batch, &zk.DeleteRequest{Path: fmt.Sprintf("%s/%03d", dir, i), Version: -1})
			}
			batch = append(batch, &zk.DeleteRequest{Path: dir, Version: -1})
			flush()
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
