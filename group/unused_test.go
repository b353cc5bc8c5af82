package group_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A server deletes a container only if that has had a child. So a Join that gives up between the
// container and its member would leave a node that no server deletes.
func TestCancelledJoinLeavesNoNodeAtAnyStep(t *testing.T) {
	t.Parallel()
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/group", srv.Link(t)
			c, other := link.Client(t), srv.Client(t)
			suite.Session(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := link.At(step, func() {
				cancel()
				time.Sleep(time.Second) // until the call has returned
			})

			member, err := group.New(c, path).Join(ctx, "a", nil)

			if over = stop(); err == nil {
				require.NoError(t, member.Leave(t.Context()))
			}
			time.Sleep(time.Minute)
			if step == 1 { // the first attempt was under way, and found no directory
				require.Zero(t, link.Count(recipestest.OpCreateContainer), "begun after the call had ended")
			}
			srv.Embedded().ReapContainers()
			require.False(t, suite.Exists(t, other, path), "step %d", step)
		})
	}
}
