// Package differential compares the embedded server with a real ZooKeeper. It contains only tests.
//
// Both servers get the same steps, from up to three sessions. A step sends requests of any kind,
// one at a time or several in a row without waiting. Or it authenticates, closes its session,
// resumes it on another connection, or tries to with a wrong password.
//
// A transcript records what each session is sent, answers and watch events in order. It replaces
// values that cannot be equal on two servers. Both transcripts must be the same. Steps are drawn at
// random; the most important ones are also kept as named cases.
//
//	go test ./internal/real/differential -rapid.checks=5000
//
// The embedded server is told to behave like the version of the real one, which must be 3.8.0 or
// 3.9.3. Some cases show what differs between these. A test expects a difference there if the
// embedded server is told the other version.
//
// The documentation of package embedded lists the intended differences. The following is not
// compared:
//
//   - The order of children, of ephemeral nodes, of a connection's identities, and of the events of
//     a closed session's nodes. ZooKeeper does not define it.
//   - Whether a successful check outside of a transaction is answered.
//   - Requests that follow a setACL without waiting for its answer. The real server checks them
//     against either list.
//   - When containers and TTL nodes are deleted, and when sessions expire.
//   - Malformed packets, quota nodes, and requests about the server as a whole.
//
// A difference fails the test if it shows three times in a row. The reason is that a real server
// that was already running deletes containers at times of its own choosing.
package differential
