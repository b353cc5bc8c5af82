// Package once runs a job once for each key, across processes (a nightly report, a migration, the
// bill of a month). With a lock alone, one process after the other would do the job again.
//
//	reports := once.New(client, "/once/reports")
//	ran, err := reports.Do(ctx, "2030-01-31", func(ctx context.Context, r *once.Run) error {
//		return writeReport(ctx, r.Key()) // ctx ends if the right to run is lost
//	})
//
// The key says which job it is (the day of the report, for example). Every process computes the
// same key.
//
// # Guarantees
//
//   - Of all calls with a key, one at a time runs (until a run returns nil). A call that runs finds
//     out that it has lost its right before ZooKeeper can give the right to another call.
//   - A run that returns nil is recorded in a transaction that fails if the right was lost. So at
//     most one run of a key is recorded. Only that call returns true and nil.
//   - A call for a key that is done doesn't run and doesn't wait.
//   - Keys don't wait for each other.
//   - A failed job is tried again after a pause that grows (whichever process tries).
//   - Keys are remembered until as many others are done as [WithKeep] says or for as long as
//     [WithRetention] says.
//
// A run also waits for earlier contenders at the path that belong to a lock, a shared lock, an
// election or a semaphore. They wait for the run as well.
//
// # Costs
//
// A key that is done costs one read. A new key takes six requests in a row (a read, two to join the
// line, two transactions and a delete). A run of more than 20 milliseconds takes one read more. A
// run that fails takes a write, and the next run of the key seven requests more. While it lasts, a
// run costs as much as a lease. A call that waits costs its session's pings.
//
// A call that joins lists all calls that wait or run at the path (whatever their keys). A key that
// is done takes one node. A key whose runs have all failed takes two. Once there are a tenth more
// keys than [WithKeep] says, one call reads all of them and forgets that tenth.
//
// # Failure
//
// A job can run twice. If a process dies after fn has done its work and before Do has recorded
// that, the key runs again. The second run has a greater token, so comparing tokens doesn't stop
// it. Make the work repeatable, or record the key in the store's own transaction:
//
//	INSERT INTO done (key) VALUES ($1) ON CONFLICT DO NOTHING -- no row inserted: it is done already
//
// If the data are in ZooKeeper, let [Run.Multi] create a node that is named after the key. If the
// process lives and only the record failed, [Once.Do] returns true and an error. The error wraps
// [protocol.ErrUncertain] if the run may be recorded all the same.
//
// A run that has lost its right goes on until fn returns (perhaps while the next run is at work). A
// paused process cannot notice the loss. Tokens do help against that: let the store refuse a token
// that is smaller than the greatest token it has seen.
//
// # By hand
//
// [Once.Forget] lets a key run again. So does deleting the key's node below the node "done" in the
// path. That node says in JSON who ran the job (host, pid, node and token) and when it was done.
// While it has a child named open, the key is not done yet. To make a key done by hand, create its
// node or delete that child.
//
// [protocol.ErrUncertain]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/protocol#ErrUncertain
package once
