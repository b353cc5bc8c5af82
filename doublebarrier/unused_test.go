package doublebarrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A server deletes a container only if that has had a child. So an Enter that gives up between the
// container and its member would leave a node that no server deletes.
func TestCancelledEnterLeavesNoNodeAtAnyStep(t *testing.T) {
	t.Parallel()
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/b", srv.Link(t)
			c, other := link.Client(t), srv.Client(t)
			session(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stop := link.At(step, func() {
				cancel()
				time.Sleep(time.Second) // until the call has returned
			})

			_, err := doublebarrier.New(c, path, 2).Enter(ctx)
			require.Error(t, err)

			over = stop()
			time.Sleep(time.Minute)
			srv.Embedded().ReapContainers()
			srv.Embedded().ReapContainers()
			require.False(t, suite.Exists(t, other, path), "step %d", step)
		})
	}
}

// Another member comes at any step of an Enter that gives up. It keeps its place, and the one that
// gives up leaves it in peace.
func TestCancelledEnterSparesTheMembersOfOthers(t *testing.T) {
	t.Parallel()
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/b", srv.Link(t)
			c, others := link.Client(t), clients(t, srv, 2)
			session(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var first *entering
			stop := link.At(step, func() {
				cancel()
				time.Sleep(time.Second) // until the call has returned
				first = enter(t.Context(), doublebarrier.New(others[0], path, 2))
				time.Sleep(time.Second) // until it waits
			})

			_, err := doublebarrier.New(c, path, 2).Enter(ctx)
			require.Error(t, err)
			stop()
			if over = errors.Is(err, protocol.ErrUncertain); over { // it has a member, which may be counted
				return
			}
			time.Sleep(time.Minute)
			requests := link.Count(recipestest.OpAny)
			time.Sleep(time.Hour)
			require.Equal(t, requests, link.Count(recipestest.OpAny))

			second := enter(t.Context(), doublebarrier.New(others[1], path, 2))
			require.Len(t, first.must(t).Members(), 2, "step %d", step)
			leave(t, first.entry, second.must(t))
		})
	}
}

// Enter gives up while the node above its member is created. It creates no member after that, which
// a gate might count.
func TestEnterThatHasGivenUpCreatesNoMember(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		persistent(t, srv.Client(t), path)
		wipe(t, session(t, srv.Client(t)).Conn(), path+"/process")
		gate := &suite.Gate{Op: recipestest.OpCreateContainer}
		c := link.Client(t, gate.Option(link))
		session(t, c)
		gate.Shut()
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		synctest.Wait()
		require.True(t, gate.Holding())
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, protocol.ErrUncertain)

		members := link.Count(recipestest.OpCreate)
		gate.Open()
		synctest.Wait()
		require.Equal(t, members, link.Count(recipestest.OpCreate))
	})
}
