package ensemble_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Call it TestLockOnARealServer, in a file of yours. It is skipped where there is no ZooKeeper.
func lockOnARealServer(t *testing.T) {
	locksAndUnlocks(t, ensemble.Real(t))
}

// Call it TestLockSurvivesALeader, in a file of yours.
func lockSurvivesALeader(t *testing.T) {
	cluster := ensemble.Start(t, 3, ensemble.WithSyncLimit(4),
		ensemble.WithConfig("maxClientCnxns=100"), ensemble.WithJVMFlags("-Dzookeeper.nio.numWorkerThreads=4"))
	server := cluster.Server(t) // clients are spread over the members
	locksAndUnlocks(t, server)

	leader := cluster.Leader()
	leader.Stop()
	locksAndUnlocks(t, server)
	leader.Start()
	cluster.WaitHealthy()
}

// secureMember starts a server that speaks TLS, too, and demands certificates that the CAs have
// signed. The blocks are PEM.
func secureMember(t *testing.T, certificateAndKey, clientCAs []byte) *ensemble.Member {
	t.Helper()
	cluster := ensemble.Start(t, 1, ensemble.WithTLS(certificateAndKey, clientCAs),
		ensemble.WithFile("banner.txt", []byte("lines of WithConfig find this file in {dir}")))
	member := cluster.Members()[0]
	t.Log("connect with TLS to", member.SecureConnectString())
	return member
}

func locksAndUnlocks(t *testing.T, server *recipestest.Server) {
	t.Helper()
	lease, err := lock.New(server.Client(t), server.Root(t)+"/lock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Tests on one real server, and on an ensemble whose leader is stopped.
func Example() {
	_, _, _ = lockOnARealServer, lockSurvivesALeader, secureMember // go test calls them
}
