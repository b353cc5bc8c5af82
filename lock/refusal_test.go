package lock_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestSimpleThatMayNotWatchTheHolderFails(t *testing.T) {
	const noAuth = -102
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/lock"
	held, err := lock.NewSimple(srv.Client(t), path).Lock(t.Context())
	require.NoError(t, err)
	c := link.Client(t)
	suite.CatchUp(t, c)
	link.Fail(recipestest.OpGetData, "", noAuth, 1)
	_, err = lock.NewSimple(c, path).Lock(suite.Within(t, suite.Limit))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, held.Unlock(t.Context()))
}
