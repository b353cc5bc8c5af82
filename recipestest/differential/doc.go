// Package differential holds the embedded server against a real ZooKeeper. It has
// tests only.
//
// The same steps go to both, from up to three sessions: requests of every kind,
// one at a time or several in a row without waiting, authentication, sessions that
// close, come back on another connection, or try to with a wrong password. What each session
// is sent, answers and watch events in their order, is written down without what
// cannot be equal (see transcript), and both records must be the same. Steps
// are drawn at random; what matters most is also kept as cases with names.
//
//	go test ./recipestest/differential -rapid.checks=5000
//
// What is meant to differ is listed in the documentation of package embedded.
// The following is not compared:
//
//   - The order of children, of ephemeral nodes, of a connection's identities, and of the
//     events of a closed session's nodes, which nobody promises.
//   - Whether a successful check outside of a transaction is answered.
//   - What follows a setACL without waiting for its answer: the real server is
//     of two minds about it.
//   - When containers are reaped and TTL nodes deleted, and when sessions expire.
//   - Malformed packets, quota nodes, and what concerns the server as a whole.
//
// A difference counts if it shows three times in a row, as a real server that runs already reaps
// containers at a time of its own.
package differential
