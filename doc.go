// Package zkrecipes is a toolkit of ZooKeeper recipes. It has no code: each recipe is a package.
//
// # Which recipe
//
//   - One process at a time: [github.com/zkrecipes/zkrecipes/lock]
//   - Many readers, or one writer: [github.com/zkrecipes/zkrecipes/rwlock]
//   - A number of processes at a time: [github.com/zkrecipes/zkrecipes/semaphore]
//   - A job that is to be done once, whichever process does it:
//     [github.com/zkrecipes/zkrecipes/once]
//   - One leader of a replicated service, which the other replicas can find:
//     [github.com/zkrecipes/zkrecipes/election]
//   - Which processes of a service are there, and which of them works at what:
//     [github.com/zkrecipes/zkrecipes/group]
//   - Tasks that processes hand to one another: [github.com/zkrecipes/zkrecipes/queue]
//   - Processes that wait until one of them opens the way: [github.com/zkrecipes/zkrecipes/barrier]
//   - Processes that begin together and end together:
//     [github.com/zkrecipes/zkrecipes/doublebarrier]
//
// # How to begin
//
// Each program connects once, with [github.com/zkrecipes/zkrecipes/protocol.Connect], and gives
// the client to its recipes:
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
// All recipes work in this way. New does no I/O. Methods take ctx, and those that wait end with it.
// What they acquire is a value, such as a lease, which reports its own loss and is given back.
//
// # Where to go on
//
//   - The documentation of each recipe lists its guarantees, its costs and its failures.
//   - [github.com/zkrecipes/zkrecipes/protocol] explains when a holder counts as lost, and why that
//     is soon enough.
//   - [github.com/zkrecipes/zkrecipes/recipestest] has a ZooKeeper for your own tests, with network
//     faults on demand. Below it, package sim finds the faults that break a program.
//   - docs/writing-a-recipe.md, in the repository, builds a recipe that is not here.
//   - go run ./examples/tour, in a clone of the repository, shows the recipes at work.
package zkrecipes
