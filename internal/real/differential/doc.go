// Package differential compares the embedded server with a real ZooKeeper. It contains only tests.
//
// Both servers get the same steps, and their transcripts must be the same: see package transcript.
// Steps are drawn at random. The most important steps are also kept as named cases.
//
//	go test ./internal/real/differential -rapid.checks=5000
//
// The embedded server is told to behave like the version of the real one, which must be 3.8.0 or
// 3.9.3. Some cases show what differs between these. A test expects a difference there if the
// embedded server is told the other version.
//
// The documentation of package embedded lists the intended differences. When containers and TTL
// nodes are deleted, and when sessions expire, is not compared.
//
// A difference fails the test if it shows three times in a row. The reason is that a real server
// that was already running deletes containers at times of its own choosing.
package differential
