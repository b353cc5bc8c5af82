// Package zkotel turns the events of zkrecipes into OpenTelemetry metrics and spans. It is a module
// of its own, so programs that do without it link no OpenTelemetry.
//
//	observer, err := zkotel.New()
//	...
//	client, err := protocol.Connect(ctx, servers, protocol.WithObserver(observer))
//	...
//	stop, err := observer.ObserveClient(client)
//
// # Metrics
//
//	zkrecipes.wait.active         {wait}       waits under way: an up-down counter
//	zkrecipes.wait.duration       s            histogram of waits that have ended
//	zkrecipes.hold.active         {hold}       locks, terms, permits and items held: an up-down counter
//	zkrecipes.hold.duration       s            histogram of holds that have ended
//	zkrecipes.hold.losses         {loss}       holds that were lost
//	zkrecipes.request.retries     {retry}      requests that failed and are tried again
//	zkrecipes.request.collisions  {collision}  requests repeated as another client was faster
//	zkrecipes.connection.outages  {report}     reports of a missing connection
//	zkrecipes.queue.offered       {entry}      entries appended
//	zkrecipes.queue.taken         {entry}      entries removed by Take, Poll or PollN
//	zkrecipes.queue.acknowledged  {entry}      items acknowledged
//	zkrecipes.queue.returned      {entry}      items given back with Nack
//	zkrecipes.queue.redelivered   {entry}      items delivered again
//	zkrecipes.queue.dead_lettered {entry}      items moved to the dead letters
//
// Metrics without a kind here are counters. A missing connection is reported after a second, and
// then at intervals that double up to a minute.
//
// [Observer.ObserveClient] and [Observer.ObserveQueue] add gauges:
//
//	zkrecipes.session.trust       s            time until the session's locks are lost
//	zkrecipes.session.timeout     s            session timeout that was granted
//	zkrecipes.session.ephemeral   By           paths of the session's ephemeral nodes (at most 1.5 MB)
//	zkrecipes.client.state        {client}     1 for the client's state, 0 for the other states
//	zkrecipes.queue.depth         {entry}      entries in a queue
//
// Attributes are zookeeper.recipe and zookeeper.path, and zookeeper.mode for recipes that have
// modes. If something has failed, was lost or is tried again, there is also error.type. A loss has
// one of these values: session_lost, trust_over, node_deleted and closed. The state of a client is
// in zookeeper.client.state.
//
// A value (package value) is neither waited for nor held, so it only has retries. A lock with
// WithLinger has a wait and a hold for each lease of a caller, and none for the time in between.
//
// # Cardinality
//
// Each path makes a series of each metric. By default, the SDK puts all series of a metric after
// the first 2,000 together under otel.metric.overflow. If your paths have a customer's number in
// them, map them to a pattern (or drop them) with [WithPathAttribute].
//
// # Spans
//
// A wait has a span (such as "lock wait") and so has a hold ("lock hold"). The parent of both is
// the span of the context with which the caller began to wait. The hold is not a child of the wait,
// because it begins when the wait ends. Its links lead
//
//   - to the span of its wait,
//   - to the span of the previous hold at the same path (by fencing token), if this observer saw
//     that hold. Holds of other processes have no link. The attribute zookeeper.fencing_token of
//     their spans puts all holds of a path in order.
//
// A loss is recorded as an error of the hold's span. If a caller gives up or a Try call finds the
// lock taken, the end of the wait is no error. But it has an error.type.
//
// # Costs
//
// Observe runs in the goroutine in which the client calls its observer and its state listeners. It
// does no I/O, but a span processor that exports synchronously blocks that goroutine. Meanwhile the
// recipes go on and listeners wait. The client leaves out events when a thousand are due. Then
// zkrecipes.wait.active and zkrecipes.hold.active can stay too high or too low. So use the SDK's
// batch processor (as its documentation advises).
//
// Memory is bounded. The observer follows 65,536 holds at a time. Further holds are counted when
// they end. All holds of a session end with the first event which says that the session has ended.
package zkotel
