// Package value has a small value that all processes agree on (configuration, a flag or a counter).
//
//	limit := value.New(client, "/config/limit")
//	for state, err := range limit.Watch(ctx) {
//		if err != nil {
//			return err
//		}
//		apply(state.Data) // nil until a process calls limit.Set
//	}
//
// The value is the data of the node at its path, exactly as given. The node is persistent. So the
// path can be shared with Apache Curator's SharedValue, SharedCount, DistributedAtomicValue and
// NodeCache (and kazoo's Counter and DataWatch) if the programs agree on the data.
//
// Get costs two requests. Set and Update cost three (for a receipt, a read and the write) and one
// more in the background. They begin again if another client has written in between. A watching
// client costs its session's pings and one read for each change, however many goroutines watch.
//
// # Guarantees
//
//   - Each [Value.Set] and [Value.Update] happens exactly once, however often the reply is lost. If
//     the session or ctx ends together with the reply, the error wraps [protocol.ErrUncertain].
//     Other libraries' writers can only write in between.
//   - Reads, writes and updates are linearizable. (There is one exception: a deposed leader can go
//     on answering for a while. See [protocol.Session.Sync].)
//   - [Value.Watch] never misses the last state, whatever happens to the connection. It can skip
//     states in between.
//
// # Failure
//
// A value outlives its writers. While a write is under way, an ephemeral node called receipt-… is
// below the value. So the ACL must let writers create and delete children, and [Value.Delete] waits
// for receipts. If a writer dies, its receipt stays until its session has expired. If an operator
// deletes a receipt, a write whose reply is lost can happen twice.
//
// Watch usually sees a change within a round trip. If the connection was lost, Watch sees the
// change once there is a new connection.
package value
