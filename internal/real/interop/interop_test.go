package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestPeersExcludeTheirOwnContenders(t *testing.T) {
	for name, run := range map[string]func(testing.TB, string) *interop.Peer{
		"Curator": interop.Curator,
		"kazoo":   interop.Kazoo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := run(t, ensemble.Real(t).ConnectString())
			path := "/interop-" + name

			peer.Do(t, "lock", "a", path)
			require.Equal(t, "false", peer.Do(t, "trylock", "b", path))
			waiting := peer.Start("lock", "c", path)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := waiting.Wait(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			peer.Do(t, "unlock", "a")
			_, err = waiting.Wait(t.Context())
			require.NoError(t, err)
			peer.Do(t, "unlock", "c")

			_, err = peer.Start("no-such-command", "a").Wait(t.Context())
			require.ErrorContains(t, err, "no-such-command")
		})
	}
}

func TestCallsEndWithTheirPeer(t *testing.T) {
	peer := interop.Kazoo(t, ensemble.Real(t).ConnectString())
	path := "/interop-end"
	peer.Do(t, "lock", "a", path)
	waiting := peer.Start("lock", "b", path)
	peer.Kill()
	_, err := waiting.Wait(t.Context())
	require.ErrorContains(t, err, "has ended")
	_, err = peer.Start("unlock", "a").Wait(t.Context())
	require.ErrorContains(t, err, "has ended")
}
