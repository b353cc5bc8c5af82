package protocol_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A back-off that blocks holds up neither its call, once ctx has ended, nor the clean-up.
func TestBackOffThatBlocksHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, release := srv.Link(t), make(chan struct{})
		c := link.Client(t, protocol.WithBackOff(func() backoff.BackOff { <-release; return &backoff.ZeroBackOff{} }))
		s, path := session(t, c), srv.Root(t)+"/x"
		link.LoseReply(recipestest.OpGetData, 1)
		began := time.Now()
		_, _, err := s.Get(within(t, time.Second), "/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)

		link.LoseReply(recipestest.OpCreate, 1)
		_, err = lineAt(c, path).Enter(within(t, time.Second), request)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
		names, _, _ := session(t, srv.Client(t)).Children(lasting(t), path)
		require.Empty(t, names, "an orphan")
		close(release)
		require.NoError(t, c.Close())
		synctest.Wait()
	})
}
