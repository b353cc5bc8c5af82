package real_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A server that demands a credential ends the sessions of those that have none.
func TestServerThatDemandsACredentialIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.EnforcedAuth)
	server := ensemble.Start(t, 1, settings[suite.CredentialsDemanded]...)
	// Without the credential, the client gives up and says why.
	anonymous := suite.Got(protocol.Connect(suite.Lasting(t), server.ConnectString()))(t)
	defer anonymous.Close() // fails: the server closes no session without a credential
	require.ErrorIs(t, suite.Err(lock.New(anonymous, "/lock").Lock(suite.Lasting(t))), protocol.ErrAuthRequired)

	// With it, the lock works.
	alice := suite.Got(protocol.Connect(suite.Lasting(t), server.ConnectString(), protocol.WithAuth("digest", []byte("alice:secret"))))(t)
	defer suite.Close(t, alice)
	require.NoError(t, lock.New(alice, "/lock").Do(suite.Lasting(t), func(context.Context, *lock.Lease) error { return nil }))
}

func TestQuotaOfARealServer(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.EnforcedQuota)
	server := ensemble.Start(t, 1, ensemble.WithJVMFlags("-Dzookeeper.enforceQuota=true")).Members()[0]
	c := suite.Got(protocol.Connect(suite.Lasting(t), server.ConnectString()))(t)
	defer suite.Close(t, c)
	s := suite.Session(t, c)
	suite.Ensure(t, s, "/full/lock")
	// ZooKeeper's client creates these nodes when a quota is set, so the test does it.
	require.NoError(t, s.Create(suite.Lasting(t), "/zookeeper/quota/full", nil, 0))
	limit := []byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
	require.NoError(t, s.Create(suite.Lasting(t), "/zookeeper/quota/full/zookeeper_limits", limit, 0))
	require.NoError(t, s.Create(suite.Lasting(t), "/zookeeper/quota/full/zookeeper_stats", []byte("count=2,bytes=0"), 0))

	// The quota is used up, so nothing was created: the outcome is certain.
	require.ErrorIs(t, suite.Err(lock.New(c, "/full/lock").Lock(suite.Lasting(t))), protocol.ErrQuotaExceeded)
	_, err := queue.New(c, "/full/queue").Offer(suite.Lasting(t), []byte("x"))
	require.ErrorIs(t, err, protocol.ErrQuotaExceeded)
	require.False(t, errors.Is(err, protocol.ErrUncertain))
}
