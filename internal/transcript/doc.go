// Package transcript sends the same steps to servers and records what their clients are sent. It
// is for tests.
//
// Steps come from up to three sessions. A step sends requests of any kind, one at a time or several
// in a row without waiting. Or it authenticates, closes its session, or resumes it on another
// connection (also with a wrong password). A transcript has the answers and watch events of each
// session in order. It replaces values that cannot be equal on two servers.
//
// Package embedded compares the transcripts of [Cases] with those in their files, and
// internal/real/differential compares the embedded server with a real one, for these cases and for
// random steps.
//
// The following is not recorded:
//
//   - The order of children, of ephemeral nodes, of a connection's identities, and of the events of
//     a closed session's nodes. ZooKeeper does not define it.
//   - Whether a successful check outside of a transaction is answered.
//
// The following is not sent: requests right behind a setACL, without waiting for its answer (a real
// server checks them against either list); malformed packets; what concerns quotas or the server as
// a whole.
package transcript
