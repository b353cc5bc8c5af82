package suite_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/value"
)

// layouts are calls that leave nodes for other processes, of this version or another.
var layouts = []struct {
	name string
	call verbAt
}{
	{"barrier", func(ctx context.Context, c *protocol.Client, path string) error { return barrier.New(c, path).Set(ctx) }},
	{"doublebarrier", func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(doublebarrier.New(c, path, 1).Enter(ctx))
	}},
	{"election", acquire["term"].keep},
	{"group", func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(group.New(c, path, group.WithIdentity("pod")).Join(ctx, "name", []byte("data")))
	}},
	{"lock", acquire["mutex"].keep},
	{"lock that lingers", acquiring(lingering).keep},
	{"once", runKey},
	{"queue", func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(queue.New(c, path).Offer(ctx, []byte("data")))
	}},
	{"queue of which an entry is reserved", func(ctx context.Context, c *protocol.Client, path string) error {
		q := queue.New(c, path)
		return errors.Join(suite.Err(q.Offer(ctx, []byte("data"))), suite.Err(q.Reserve(ctx)))
	}},
	{"rwlock", acquire["writer"].keep},
	{"rwlock of a reader", acquire["reader"].keep},
	{"semaphore", acquire["permit"].keep},
	{"value", func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(value.New(c, path).Set(ctx, []byte("data")))
	}},
}

// Processes of other versions read these nodes. If this test fails, say in the changelog what
// happens while both versions are in one line (or change nothing). The test of older versions keeps
// the nodes of v0.1.
func TestLayoutsStayAsTheyAre(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var all strings.Builder
		for _, l := range layouts {
			path := srv.Root(t) + "/at"
			c := srv.Client(t, protocol.WithOwnerData(nil))
			require.NoError(t, l.call(t.Context(), c, path), l.name)
			time.Sleep(2 * time.Second) // nodes that are not used go after one
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
		want := suite.Got(os.ReadFile("testdata/layouts.txt"))(t)
		require.Equal(t, string(want), got)
	})
}
