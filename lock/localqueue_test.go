package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A user's back-off may panic. (A nil attempt does so as well.)
func TestPanicEndsItsTurnInTheLocalQueue(t *testing.T) {
	l := &linger{queue: newLocalQueue()}
	for range 2 { // the second one would fail otherwise
		require.Panics(t, func() { l.take(t.Context(), nil, &line.Request{Try: true}, nil) })
	}
}

// A caller can have waited until its session ended, and the node can be the next session's, or the
// other way round. The first session ends by the clock, so no event says what has become of its
// node.
func TestNodeIsLentUnderItsOwnSession(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/sessions"
		c := link.Client(t)
		m, held := New(c, path, WithLinger(time.Hour)), suite.Must(t, New(c, path+"-2").Lock)
		use := func() int64 {
			l := suite.Must(t, m.Lock)
			require.NoError(t, l.Unlock(t.Context()))
			return l.Token()
		}
		before, token := suite.Session(t, c), use()
		synctest.Wait() // the node is watched
		link.Stall()
		suite.Wait(t, held.Done())
		link.Heal()
		next := use()
		require.Greater(t, next, token)
		require.ErrorIs(t, suite.Err(m.linger.take(t.Context(), before, &m.request, m.acquire)), protocol.ErrLost)
		require.Equal(t, next, use())
		suite.Close(t, c)
	})
}
