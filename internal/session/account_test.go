package session

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Of two creates of one path, the one that fails does not take back what the other one has created,
// and one whose answer is lost stays in the account.
func TestDraftsOfOnePath(t *testing.T) {
	op := &zk.CreateRequest{Path: "/a", Flags: zk.FlagEphemeral}
	for _, outcome := range []error{nil, zk.ErrConnectionClosed} {
		var a account
		failing, err := a.draw(op)
		require.NoError(t, err)
		other, err := a.draw(op)
		require.NoError(t, err)
		require.ErrorIs(t, other.end(outcome, "/a"), outcome)
		require.ErrorIs(t, failing.end(zk.ErrNodeExists), zk.ErrNodeExists)
		require.Equal(t, size("/a", created), a.used)
	}
}
