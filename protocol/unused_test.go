package protocol_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A server deletes a container only if that has had a child. So a call that gives up between its
// container and its own node would leave a node that no server deletes.
func TestCancelledCreateLeavesNoDirectoryAtAnyStep(t *testing.T) {
	t.Parallel()
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/dir", srv.Link(t)
			s, other := session(t, link.Client(t)), session(t, srv.Client(t))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := link.At(step, func() {
				cancel()
				time.Sleep(time.Millisecond) // until the call has returned
			})

			own, err := s.CreateOwn(ctx, recipe.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-"})

			if over = stop(); err == nil {
				require.NoError(t, own.Withdraw(t.Context()))
			}
			time.Sleep(time.Minute)
			if step == 1 { // the first attempt was under way, and found no directory
				require.Zero(t, link.Count(recipestest.OpCreateContainer), "begun after the call had ended")
			}
			srv.Embedded().ReapContainers()
			stat, err := other.Exists(t.Context(), path)
			require.NoError(t, err)
			require.Nil(t, stat, "step %d", step)
		})
	}
}

// An answer of a call that gives up is lost besides, or two are, or its connection. It neither
// leaves a directory, nor asks for ever.
func TestCancelledCreateLeavesNoDirectoryWhateverIsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*recipestest.Link){
		"cut":      func(l *recipestest.Link) { l.Cut(); l.Heal() },
		"long cut": func(l *recipestest.Link) { l.Cut(); time.AfterFunc(2*time.Second, l.Heal) },
		"one":      func(l *recipestest.Link) { l.LoseReply(recipestest.OpAny, 1) },
	} {
		over := false
		for step := 1; !over; step++ {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					path, link := srv.Root(t)+"/a/dir", srv.Link(t)
					c := link.Client(t)
					s, other := session(t, c), session(t, srv.Client(t))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					stop := link.At(step, func() {
						fault(link)
						cancel()
						time.Sleep(time.Millisecond) // until the call has returned
					})

					own, err := s.CreateOwn(ctx, recipe.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-"})

					if over = stop(); err == nil {
						require.NoError(t, own.Withdraw(t.Context()))
					}
					time.Sleep(time.Minute)
					link.Heal()
					before := link.Count(recipestest.OpAny)
					time.Sleep(time.Hour)
					require.Equal(t, before, link.Count(recipestest.OpAny))
					require.NoError(t, s.Err())
					srv.Embedded().ReapContainers()
					srv.Embedded().ReapContainers()
					stat, err := other.Exists(t.Context(), path)
					require.NoError(t, err)
					require.Nil(t, stat, "step %d", step)
				})
			})
		}
	}
}
