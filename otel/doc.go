// Package zkotel turns the events of zkrecipes into OpenTelemetry metrics and spans. It is a module
// of its own, so programs that do without it link no OpenTelemetry.
//
//	observer, err := zkotel.New()
//	...
//	client, err := protocol.Connect(ctx, servers, protocol.WithObserver(observer))
//	...
//	stop := observer.ObserveClient(client)
//
// # Metrics
//
//	zkrecipes.wait.active             up-down counter  {wait}       waits that are under way
//	zkrecipes.wait.duration           histogram        s            waits that have ended; error.type if in vain
//	zkrecipes.hold.active             up-down counter  {hold}       what is held
//	zkrecipes.hold.duration           histogram        s            holds that have ended; error.type if lost
//	zkrecipes.hold.losses             counter          {loss}       holds lost, by error.type
//	zkrecipes.request.retries         counter          {retry}      requests tried again, by error.type
//	zkrecipes.request.collisions      counter          {collision}  requests repeated as another client was faster
//	zkrecipes.queue.offered           counter          {entry}      entries appended
//	zkrecipes.queue.taken             counter          {entry}      entries removed by Take, Poll or PollN
//	zkrecipes.queue.acknowledged      counter          {entry}      items acknowledged
//	zkrecipes.queue.returned          counter          {entry}      items given back with Nack
//	zkrecipes.queue.redelivered       counter          {entry}      items delivered again
//	zkrecipes.queue.dead_lettered     counter          {entry}      items moved to the dead letters
//	zkrecipes.connection.outages      counter          {report}     reports of a missing connection, by error.type
//
// A missing connection is reported after a second, and then at intervals that double up to a minute.
//
// These are measured on request, by [Observer.ObserveClient] and [Observer.ObserveQueue]:
//
//	zkrecipes.session.trust           gauge            s            time left until what is held is lost
//	zkrecipes.session.timeout         gauge            s            the session timeout that was granted
//	zkrecipes.client.state            gauge            {client}     1 for the present zookeeper.client.state, 0 for the others
//	zkrecipes.queue.depth             gauge            {entry}      entries in a queue
//
// Attributes are zookeeper.recipe, zookeeper.path, zookeeper.mode where there is one, and
// error.type. A loss has one of these error types: session_lost, trust_over, node_deleted and
// closed. See [protocol.ErrLost] for what they mean.
//
// # Cardinality
//
// Each path makes a series of each metric. The SDK collects what exceeds 2,000 series of a metric,
// by default, under otel.metric.overflow. For paths with a customer's number in them, map the
// path to a pattern, or drop it, with [WithPathAttribute].
//
// # Spans
//
// A wait has a span, such as "lock wait", and so has a hold, such as "lock hold". The parent of
// both is the span of the context with which the caller began to wait. The hold is not a child of
// the wait, as it begins when the wait ends. Its links lead
//
//   - to the span of its wait,
//   - to the span of the hold before it at the same path, by fencing token, if this observer saw
//     that hold. Holds of other processes have no link: the attribute zookeeper.fencing_token of
//     their spans puts all holds of a path in order.
//
// A loss is recorded as an error of the hold's span. A wait that ends because its caller gives up,
// or because a Try call finds the lock taken, is no error, but has an error.type.
//
// # Costs
//
// Observe runs in the goroutine in which the client calls its observer and its state listeners. It
// does no I/O. A span processor that exports synchronously blocks that goroutine. The recipes go on
// meanwhile, but listeners wait, and the client leaves out events when 1,000 are due. Then
// zkrecipes.wait.active and zkrecipes.hold.active may stay too high or too low. So use the SDK's
// batch processor, as its documentation advises.
//
// Memory is bounded. The observer follows 65,536 holds at a time. Those beyond are counted when
// they end. All holds of a session end with the first event which says that the session is over.
package zkotel
