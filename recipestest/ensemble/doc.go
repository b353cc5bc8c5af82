// Package ensemble provides tests with a real ZooKeeper: one shared server, or a cluster whose
// members a test can stop, freeze and cut off from each other.
//
// It is separate from recipestest so that tests on the embedded server don't link a Docker client.
//
//	func TestOnARealServer(t *testing.T) {
//		server := ensemble.Real(t)
//		mutex := lock.New(server.Client(t), server.Root(t))
//		…
//	}
//
//	func TestWithoutAMajority(t *testing.T) {
//		cluster := ensemble.Start(t, 3)
//		for _, follower := range cluster.Followers() {
//			follower.Stop()
//		}
//		…
//	}
//
// # Where ZooKeeper comes from
//
// [Real] uses the first of these that exists. ([Start] skips the first.)
//
//   - The servers in the connect string ZKRECIPES_SERVERS. They are neither started nor stopped.
//   - Docker on this machine. The image is ZKRECIPES_IMAGE, or else the official image in a fixed
//     version. It is pulled if it is missing. An image must have zkServer.sh on its PATH, or
//     ZooKeeper from Debian's packages. Its entry point doesn't matter.
//   - A local install: zkServer.sh in ZOOKEEPER_HOME/bin or on PATH, or Debian's package zookeeper.
//
// If there is none, the test is skipped, and says where it has looked. With
// ZKRECIPES_REQUIRE_REAL=1 it fails instead, so that no test is skipped unnoticed.
//
// With go test -short, or with ZKRECIPES_REAL=0 in the environment, all tests on real servers are
// skipped (even on servers at ZKRECIPES_SERVERS). Together with ZKRECIPES_REQUIRE_REAL=1 that is a
// contradiction, so the tests fail.
//
// # What is started
//
// Each server is a JVM with a heap of at most 256 MB (it uses a quarter of that). It listens on
// ports of 127.0.0.1, and keeps its data in memory if the machine has /dev/shm. It takes about a
// second to start, and a cluster of three takes two to three. A tick is half a second, so sessions
// can last one to ten seconds. Empty containers are deleted after a second or two, TTL nodes are
// enabled, and writes are not forced to disk.
//
// Each test package runs in its own process, so it has its own shared server. A server ends when
// the process that started it ends, for any reason: the server's standard input is a pipe from that
// process, or a Docker connection, and closes with it. Neither a container nor a file is left
// behind.
package ensemble
