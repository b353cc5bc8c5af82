// Package once runs something once per key, across processes: a nightly report, a migration, the
// bill of a month. A lock alone lets one process after the other do it again.
//
//	reports := once.New(client, "/once/reports")
//	ran, err := reports.Do(ctx, "2030-01-31", func(ctx context.Context, token int64) error {
//		return writeReport(ctx) // ctx ends when the right to run is lost
//	})
//
// The key says what is to be done once, such as the day of the report. Every process computes the
// same key.
//
// # Guarantees
//
//   - Of all calls with a key, one at a time runs, until one has returned nil. A call that runs
//     learns that it has lost the right before ZooKeeper can give it to another.
//   - That a run has returned nil is recorded in a transaction that fails once the right is lost.
//     So at most one run of a remembered key is recorded, and a call returns true and nil only for
//     that one.
//   - A call for a key that is done does not run, and does not wait.
//   - Keys do not wait for each other.
//   - A run waits for the contenders of a lock, a shared lock, an election or a semaphore at the
//     path that came before it, and they wait for it.
//   - Keys are remembered until as many others as [WithKeep] says have been done after them.
//
// # Costs
//
// A key that is done costs one read. A new key takes six requests, one after the other: a read, the
// two of joining a line, a read, the transaction, and the deletion of the contender's node. A run
// of more than 20 milliseconds takes one read more, and the first run at a path some more, to
// create what is missing. While it lasts, it costs what a lease does. A call that waits costs its
// session's pings. When its turn has come, it may list the calls in line, reads, and deletes its
// node.
//
// All calls that wait or run at a path, whatever their keys, are listed by one that joins them. A
// key that is done takes two nodes. One call in fifty lists all of those, and takes two reads for
// each key that it forgets, so these are two requests a call on average.
//
// # Failure
//
// What cannot be promised: fn may run to its end, and its process or its session may die before
// that is recorded. The key then runs again. So fn should be such that it may be repeated, or hand
// its token to a store that refuses what it has seen. If the process has not died, [Once.Do]
// reports it: ran is true, and there is an error. That wraps [protocol.ErrUncertain] if the run may
// be recorded all the same.
//
// A run that has lost the right goes on until fn returns, which may be while the next one runs. A
// process that is paused cannot notice the loss. Let the resource compare tokens.
//
// To let a key run again, delete its node below done in the path. The node says who has run it, in
// JSON: host, pid, node, token and done, the time. To make it done by hand, create that node.
//
// [protocol.ErrUncertain]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/protocol#ErrUncertain
package once
