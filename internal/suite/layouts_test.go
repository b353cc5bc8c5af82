package suite_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
	"github.com/zkrecipes/zkrecipes/value"
)

// layouts are calls that leave nodes for other processes, of this version or another.
var layouts = []struct {
	name string
	call func(ctx context.Context, c *protocol.Client, path string) error
}{
	{"barrier", func(ctx context.Context, c *protocol.Client, path string) error { return barrier.New(c, path).Set(ctx) }},
	{"doublebarrier", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(doublebarrier.New(c, path, 1).Enter(ctx))
	}},
	{"election", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(election.New(c, path).Campaign(ctx, []byte("value")))
	}},
	{"group", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(group.New(c, path, group.WithIdentity("pod")).Join(ctx, "name", []byte("data")))
	}},
	{"lock", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(lock.New(c, path).Lock(ctx))
	}},
	{"lock that lingers", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(lock.New(c, path, lock.WithLinger(time.Hour)).Lock(ctx))
	}},
	{"once", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(once.New(c, path).Do(ctx, "a/key", func(context.Context, *once.Run) error { return nil }))
	}},
	{"queue", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(queue.New(c, path).Offer(ctx, []byte("data")))
	}},
	{"queue of which an entry is reserved", func(ctx context.Context, c *protocol.Client, path string) error {
		q := queue.New(c, path)
		if _, err := q.Offer(ctx, []byte("data")); err != nil {
			return err
		}
		return errOf(q.Reserve(ctx))
	}},
	{"rwlock", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(rwlock.New(c, path).Lock(ctx))
	}},
	{"rwlock of a reader", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(rwlock.New(c, path).RLock(ctx))
	}},
	{"semaphore", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(semaphore.New(c, path, 3).Acquire(ctx))
	}},
	{"value", func(ctx context.Context, c *protocol.Client, path string) error {
		return errOf(value.New(c, path).Set(ctx, []byte("data")))
	}},
}

// What stands in ZooKeeper is read by processes of other versions. If this test fails, say in the
// changelog what happens while both are in one line, or change nothing.
func TestLayoutsStayAsTheyAre(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var all strings.Builder
		for _, l := range layouts {
			path := srv.Root(t) + "/at"
			c := srv.Client(t, protocol.WithOwnerData(nil))
			require.NoError(t, l.call(t.Context(), c, path), l.name)
			time.Sleep(time.Second)
			all.WriteString("# " + l.name + "\n" + srv.Dump(path) + srv.Dump(path+"-identities"))
			suite.Close(t, c)
		}
		got := all.String()
		for _, chance := range [][2]string{
			{`[0-9a-f]{16}-[0-9a-f]{8}`, "OWNER"}, {`session 0x[0-9a-f]+`, "session ID"}, {`/TestLayouts[^/ ]*`, ""},
			{`\d+ bytes "{[^\n]*`, "JSON"}, // whose length depends on the host: see TestDoneNodeSaysWhoHasRun
		} {
			got = regexp.MustCompile(chance[0]).ReplaceAllString(got, chance[1])
		}
		want, err := os.ReadFile("testdata/layouts.txt")
		require.NoError(t, err)
		require.Equal(t, string(want), got)
	})
}
