// Package zkrecipes is a toolkit of ZooKeeper recipes. It has no code: each recipe is a package.
//
// # Which recipe
//
//   - One process at a time: [github.com/zkrecipes/zkrecipes/lock]
//   - Many readers or one writer: [github.com/zkrecipes/zkrecipes/rwlock]
//   - Up to n processes at a time: [github.com/zkrecipes/zkrecipes/semaphore]
//   - A job that is done once, whichever process does it: [github.com/zkrecipes/zkrecipes/once]
//   - One leader of a replicated service, which the other replicas can find:
//     [github.com/zkrecipes/zkrecipes/election]
//   - Which processes of a service are there, and which of them works on what:
//     [github.com/zkrecipes/zkrecipes/group]
//   - A small value that all agree on (a limit, a counter): [github.com/zkrecipes/zkrecipes/value]
//   - Work that processes hand to one another: [github.com/zkrecipes/zkrecipes/queue]
//   - Processes that wait until another process opens the way:
//     [github.com/zkrecipes/zkrecipes/barrier]
//   - Processes that begin together and end together:
//     [github.com/zkrecipes/zkrecipes/doublebarrier]
//
// # How to begin
//
// Connect once, with [github.com/zkrecipes/zkrecipes/protocol.Connect], and give the client to your
// recipes:
//
//	func importOrders(ctx context.Context, servers string) error {
//		client, err := protocol.Connect(ctx, servers) // "zk1:2181,zk2:2181,zk3:2181"
//		if err != nil {
//			return err
//		}
//		defer client.Close()
//
//		importer := lock.New(client, "/locks/order-import")
//		return importer.Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
//			// One process at a time gets here. Its ctx is cancelled if it loses the lock.
//			return load(ctx, lease.Token())
//		})
//	}
//
// All recipes work like this. New does no I/O. Methods take ctx, and waiting methods end with it.
// They return a value (a lease, a term, a permit) that says when it is lost, fences writes, and is
// what you give back.
//
// For a server to try it, run zkr server, or go run ./examples/tour in a clone of the repository.
//
// # Where to go on
//
//   - The page of each recipe lists its guarantees, its costs and its failures.
//   - docs/cookbook.md, in the repository, has a snippet for most programs, and docs/errors.md says
//     what to do about each error and warning.
//   - [github.com/zkrecipes/zkrecipes/recipestest] has a ZooKeeper for your own tests, with network
//     faults on demand.
//   - docs/design.md says when a holder counts as lost, and why that is soon enough.
package zkrecipes
