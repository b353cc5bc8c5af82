// Package embedded is a ZooKeeper inside the process: one server, in memory,
// that speaks the wire protocol. go-zookeeper, kazoo, the Java client and
// Apache Curator work against it unchanged.
//
//	s, err := embedded.Start(embedded.Config{})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	conn, events, err := zk.Connect([]string{s.ConnectString()}, 10*time.Second)
//
// It starts and stops in microseconds, so that every test can have its own, and
// does on demand what a real server does when it pleases: end a session
// ([Server.ExpireSession]), cut its clients ([Server.DropConnections]), be away for
// a while ([Server.Stop], [Server.Resume]), reap containers ([Server.ReapContainers])
// and come near the end of a sequence counter ([Server.SetSequence]). It can have
// followers ([Server.Follower]), each of which lags behind it as much as it is told to.
//
// # Virtual time
//
// With [Config.InMemory] it works inside a testing/synctest bubble: give
// [Server.Dial] to the client as its dialer, and start, use and close the server in
// the same bubble. Every wait of the server and of its connections is on channels,
// condition variables and timers. A server without sessions and without
// containers, whose followers have caught up, has no timer running, so a deadlock
// of the code under test is found.
//
// # Guarantees
//
//   - Writes are ordered, each has a zxid of its own, and failed ones consume one too.
//   - The requests of a connection are carried out and answered in order.
//   - A client gets a watch event before any answer that reflects the change.
//   - A client of a follower sees its own writes, and after a sync all that was written
//     before it, and never anything that its follower has yet to hear of.
//   - A session ends at the first tick after its timeout, never earlier, and its
//     ephemeral nodes go with it, in one transaction.
//   - A client that does not read holds up nobody. One that is too far behind with
//     its events is cut off.
//   - Bytes that are no protocol end the connection they came on and nothing else.
//     Memory is taken for what has arrived, whatever a length field announces.
//   - The same requests in the same order have the same effects: where a real server
//     follows the order of a hash table this one does not follow chance.
//
// # Differences
//
// The model is ZooKeeper 3.8, standalone, with the extended node types (TTL)
// enabled, and with the security fixes that distributions add to it: nobody
// hears events of nodes that they may not read. Its oddities are kept where a client can
// see them: a sequence counter that sticks at 2147483647, one watch per path and
// connection whose newest mode counts, checkWatches that reports the watches of
// anybody. Random requests to both, in recipestest/differential, have
// shown no other differences than these, which are on purpose:
//
//   - Nothing is stored, and there are no quorum, observers or read-only mode. The
//     server is always the leader, so that its own clients' syncs have nothing to wait for.
//   - A follower lags in what it carries out, and in nothing else. Requests reach the leader through it at once, and so
//     does word of the sessions that are alive, which real ones send twice a tick. A session that moves is
//     taken over at once, and its old connection is closed, wherever it was. The words of four letters
//     tell of all servers together, as if they were one, which is the leader.
//   - Quota nodes are nodes like any other, without effect. SASL, x509 and the super user
//     do not exist, nor do dynamic reconfiguration and the admin server.
//   - All of the four-letter words conf, cons, envi, isro, mntr, ruok, srvr, stat and
//     wchs are enabled. Latencies are not measured; mntr has the main lines.
//   - A successful check outside of a transaction is answered; 3.8 forgets to.
//   - A createTTL with flags that ask for no TTL node is refused; 3.8 lets it pass if the
//     time to live is -1, and ends over it.
//   - A setACL counts for whatever follows it. In 3.8 requests sent right behind it,
//     without waiting for the answer, may still be checked against the old list.
//   - The identities of a connection, and what an entry of scheme auth makes of them,
//     are listed in the order of authentication.
//   - Clients cannot create a session from within another, which 3.8 lets them try.
//   - Access control lists and the identities of a connection are limited in number,
//     and a multiRead whose answer would exceed 64 MB ends the connection.
//   - Containers are reaped all at once, not a few per second, and there is no limit to
//     connections from one address.
//   - Children and ephemeral nodes are listed in an order that is stable but, like
//     that of the real server, not sorted.
package embedded
