package conn

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestDeniedTransactionNamesTheOperation(t *testing.T) {
	t.Parallel()
	ops := []any{
		&zk.CheckVersionRequest{Path: "/a"}, &zk.CreateRequest{Path: "/b/c"},
		&zk.DeleteRequest{Path: "/d/e"}, &zk.SetDataRequest{Path: "/f"},
	}

	for i, want := range []string{"read /a:", "create /b/c:", "delete /d/e:", "write /f:"} {
		answers := make([]zk.MultiResponse, len(ops))
		answers[i].Error = zk.ErrNoAuth
		err := DeniedIn(zk.ErrNoAuth, answers, ops)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no permission to "+want)
	}
	require.Equal(t, zk.ErrBadVersion, DeniedIn(zk.ErrBadVersion, make([]zk.MultiResponse, len(ops)), ops))
}
