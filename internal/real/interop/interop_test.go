package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// The recipes of other libraries work by themselves, on the embedded server as well.
func TestPeersWork(t *testing.T) {
	for name, run := range map[string]func(testing.TB, string) *interop.Peer{"Curator": interop.Curator, "kazoo": interop.Kazoo} {
		for on, server := range map[string]func() *recipestest.Server{
			"embedded": func() *recipestest.Server { return recipestest.Start(t) },
			"real":     func() *recipestest.Server { return ensemble.Real(t) },
		} {
			t.Run(name+" on "+on, func(t *testing.T) {
				t.Parallel()
				srv := server()
				works(t, run(t, srv.ConnectString()), keep(t, srv.Client(t), srv.Root(t)))
			})
		}
	}
}

func works(t *testing.T, peer *interop.Peer, root string) {
	// One handle holds the lock: a second handle can't have it at once, and a third handle waits.
	peer.Do(t, "lock", "a", root+"/lock")
	require.Equal(t, "false", peer.Do(t, "trylock", "b", root+"/lock"))
	waiting := peer.Start("lock", "c", root+"/lock")
	waits := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, suite.Err(waiting.Wait(ctx)), context.DeadlineExceeded)
	}
	waits()
	peer.Do(t, "unlock", "a")
	suite.Got(waiting.Wait(t.Context()))(t)
	peer.Do(t, "unlock", "c")

	// Two readers share the lock, and a writer waits.
	peer.Do(t, "rlock", "r1", root+"/shared")
	peer.Do(t, "rlock", "r2", root+"/shared")
	waiting = peer.Start("wlock", "w", root+"/shared")
	waits()
	peer.Do(t, "unlock", "r1")
	peer.Do(t, "unlock", "r2")
	suite.Got(waiting.Wait(t.Context()))(t)
	peer.Do(t, "unlock", "w")

	peer.Do(t, "offer", "q", root+"/queue", "data")
	require.Equal(t, "data", peer.Do(t, "poll", "q", root+"/queue"))
	peer.Do(t, "join", "m", root+"/group", "member", "here")
	require.Contains(t, peer.Do(t, "members", "m"), "member")
	peer.Do(t, "leave", "m")

	require.ErrorContains(t, suite.Err(peer.Start("no-such-command", "a").Wait(t.Context())), "no-such-command")
}

func TestCallsEndWithTheirPeer(t *testing.T) {
	peer := interop.Kazoo(t, ensemble.Real(t).ConnectString())
	path := "/interop-end"
	peer.Do(t, "lock", "a", path)
	waiting := peer.Start("lock", "b", path)
	peer.Kill()
	require.ErrorContains(t, suite.Err(waiting.Wait(t.Context())), "has ended")
	require.ErrorContains(t, suite.Err(peer.Start("unlock", "a").Wait(t.Context())), "has ended")
}
