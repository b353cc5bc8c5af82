package interop_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
	"github.com/zkrecipes/zkrecipes/value"
)

func plusOne(old value.State) ([]byte, error) {
	n, _ := strconv.Atoi(string(old.Data))
	return []byte(strconv.Itoa(n + 1)), nil
}

func TestKazooCountsWithUs(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	path, peer := srv.Root(t)+"/v", interop.Kazoo(t, srv.ConnectString())
	v := value.New(srv.Client(t), path)
	peer.Do(t, "count", "h", path, "1")
	// Both count at the same time. If an update were lost, the sum would be smaller.
	counting := suite.Later(func() error {
		for range 50 {
			if _, err := v.Update(t.Context(), plusOne); err != nil {
				return err
			}
		}
		return nil
	})
	peer.Do(t, "count", "h", path, "50")
	require.NoError(t, suite.Wait(t, counting))
	state := suite.Must(t, v.Get)
	require.Equal(t, "101", string(state.Data))
	require.NoError(t, v.Delete(t.Context()))
}

func TestCuratorsSharedValueIsOurs(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	path, peer := srv.Root(t)+"/v", interop.Curator(t, srv.ConnectString())
	v := value.New(srv.Client(t), path)
	suite.Got(v.Set(t.Context(), []byte("ours")))(t)
	peer.Do(t, "share", "h", path)
	require.Equal(t, "ours", peer.Do(t, "shared", "h"))
	require.Equal(t, "true", peer.Do(t, "trysetshared", "h", "theirs"))
	state := suite.Must(t, v.Get)
	require.Equal(t, "theirs", string(state.Data))

	// Curator's value follows ours, too (by a watch).
	suite.Got(v.Set(t.Context(), []byte("ours again")))(t)
	suite.Soon(t, func() bool { return peer.Do(t, "shared", "h") == "ours again" }, "Curator sees it")
	peer.Do(t, "unshare", "h")
	require.NoError(t, v.Delete(t.Context()))
}
