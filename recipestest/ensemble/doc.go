// Package ensemble gives tests a real ZooKeeper: one server that is shared, or a
// cluster of members that a test stops, freezes and cuts off from one another.
//
// It is apart from recipestest so that tests that are content with the embedded
// server do not link a Docker client.
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
// [Real] uses the first of these that is there, [Start] the first but one:
//
//   - the servers that ZKRECIPES_SERVERS names in a connect string, which nobody
//     starts or stops;
//   - Docker on this machine, with the image ZKRECIPES_IMAGE, or else the official
//     image in a fixed version, which is pulled if need be. Any image will do that
//     has zkServer.sh on its PATH, or ZooKeeper from Debian's packages; its entry
//     point does not matter;
//   - a local install: zkServer.sh in ZOOKEEPER_HOME/bin or on PATH, or Debian's
//     package zookeeper.
//
// Where there is none the test is skipped and says what was looked for. With
// ZKRECIPES_REQUIRE_REAL=1 it fails instead, so that nothing is skipped unseen
// where it matters.
//
// # What is started
//
// Each server is a JVM with a heap of 256 MB, of which it uses a quarter, on ports
// of 127.0.0.1, with its data in memory where the machine has a place for that.
// It takes about a second to come up; a cluster of three takes two to three. One
// tick is half a second, so sessions last one to ten seconds. Containers that are
// empty go after a second or two, TTL nodes work, writes are not forced to disk.
//
// Test packages run as processes of their own, so each has its own shared server.
// A server ends when the process that started it does, however that ends: its
// standard input is a pipe from that process, or the like in Docker, and closes
// with it. Nothing is left behind, no container and no file.
package ensemble
