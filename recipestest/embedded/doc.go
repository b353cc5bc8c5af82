// Package embedded runs a ZooKeeper server inside the process. The server keeps its data in memory,
// and in a directory if it has one. It speaks the wire protocol: go-zookeeper, kazoo, the Java
// client and Apache Curator work against it unchanged.
//
//	s, err := embedded.Start(embedded.Config{})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	conn, events, err := zk.Connect([]string{s.ConnectString()}, 10*time.Second)
//
// It starts and stops in microseconds, so every test can have its own. A test can, at any moment:
//
//   - end a session: [Server.ExpireSession];
//   - cut all connections: [Server.DropConnections];
//   - make the server unreachable for a while: [Server.Stop], [Server.Resume];
//   - delete containers that have become empty: [Server.ReapContainers];
//   - bring a sequence counter near its end: [Server.SetSequence];
//   - make a follower lag behind the server: [Server.Follower], [Follower.Lag];
//   - stop one server of several, so that clients go on at the others: [Follower.Listen],
//     [Follower.Stop], [Follower.Resume];
//   - isolate a follower, or depose a leader, without the server noticing: [Follower.Isolate],
//     [Follower.Depose], [Follower.Rejoin];
//   - have a follower report late which sessions are alive: [Follower.Report];
//   - have a member answer syncs that are no fence: [Follower.AnswerSyncsAtOnce].
//
// Features that real servers have on demand are in [Config]: [Config.EnforceQuota],
// [Config.EagerACL], [Config.EnforceAuth].
//
// # Virtual time
//
// With [Config.InMemory] the server works inside a testing/synctest bubble. Give [Server.Dial] to
// the client as its dialer, and start, use and close the server in the same bubble. The server and
// its connections wait only on channels, condition variables and timers. No timer runs while there
// are no sessions and no containers and all followers have caught up. So a deadlock of the code
// under test is still detected.
//
// # Data across restarts
//
// With [Config.Dir] a server keeps its nodes and sessions in a directory, and the next server goes
// on with them. It is for development: one process is not an ensemble.
//
//   - Acknowledged writes are on the disk: the server can be killed at any moment. Writes that come
//     in while the disk is busy share one sync.
//   - No client sees a write that a crash would take back. Answers that rest on a write, its
//     events, and the news that a session began or ended wait for the disk. Reads wait only for
//     writes of their own connection.
//   - Clients resume their sessions with the next server. The timeout of each session begins again
//     when that server starts, so the ephemeral nodes of a client that does not come back are
//     deleted after its timeout.
//   - An interrupted write is dropped, with a warning: no client has had its answer. Any other
//     damage is an error of [Start] that names the file and the offset.
//   - If the directory cannot be written, the server ends: see [Server.Done] and [Server.Err].
//   - Two servers cannot use one directory. On Linux, macOS and the BSDs the file "lock" is locked
//     by flock, and on Windows it is opened for one process. Elsewhere nothing prevents it.
//
// The file "data" has a snapshot and the transactions since. If it has grown, it is replaced by a
// snapshot (writes wait meanwhile). That takes twice the memory for nodes, though not for their
// data. Only its owner can read the file, because it has passwords of sessions in it.
//
// # Guarantees
//
//   - Writes are ordered. Each has a zxid of its own, and a failed write consumes one too. The
//     zxids of a server are greater than the zxids of any server that was started earlier by the
//     same clock. So a client of a former server on the same address finds its session expired, and
//     goes on in a new session.
//   - The requests of a connection are carried out and answered in order.
//   - A client gets a watch event before any answer that reflects the change.
//   - A client of a follower sees its own writes. After a sync it sees all that was written before
//     the sync. It never sees anything that its follower has not applied yet.
//   - A session ends at the first tick after its timeout, never earlier. Its ephemeral nodes are
//     deleted in the same transaction.
//   - A client that does not read blocks no other client. A client that is too far behind with its
//     events is disconnected.
//   - Malformed bytes end the connection that they came on and nothing else. The server allocates
//     memory for bytes that have arrived, whatever length a packet announces.
//   - The same requests in the same order have the same effects. Where a real server depends on the
//     order of a hash table, this one uses a fixed order.
//
// # Versions
//
// With [Config.Version] "3.9" the server behaves like ZooKeeper 3.9.3, which differs from 3.8.0 in
// what clients can see:
//
//   - An event carries the zxid of its transaction. In 3.8, and in events that a client has missed
//     and gets when it sets its watches again, that is -1.
//   - A connection can have watches of several modes on a path. In 3.8 the newest mode counts.
//   - removeWatches and checkWatches have two more kinds, for persistent and for recursive watches.
//     The kinds for data and for children mean watches that fire once. checkWatches reports the
//     client's own watches only, and takes any path.
//   - exists needs the permission to read, if there is a node.
//   - A check outside of a transaction is an unknown operation.
//   - In a transaction, create2 is answered with a stat. Flags that no node can have fail the
//     request as a whole.
//
// # Differences
//
// The model is a standalone ZooKeeper 3.8 or 3.9 with the extended node types (TTL) enabled. It
// includes the security fixes that distributions add to 3.8: a client gets no events of nodes that
// it may not read. Oddities of 3.8 are kept where a client can see them:
//
//   - A sequence counter sticks at 2147483647.
//   - A connection has one watch per path, and the newest mode counts.
//   - checkWatches also reports watches of other clients.
//
// The tests in internal/real/differential send random requests to both servers. They found no
// differences but these, which are intended:
//
//   - There are no quorum, observers or read-only mode. The server is always the leader, so syncs
//     of its own clients have nothing to wait for but the disk. Nothing is stored without
//     [Config.Dir], and the files are not in ZooKeeper's format.
//   - A follower lags only in applying transactions. Requests reach the leader through it at once.
//     So does the news of which sessions are alive, which real followers send twice a tick, unless
//     [Follower.Report] says otherwise.
//   - A session that moves to another server is taken over at once. Its old connection is closed,
//     whichever server that was on.
//   - Four-letter words report on the leader and its followers together, as if they were one
//     server.
//   - A server ends where a real one writes a closeSession record that it cannot read again: see
//     [Config.MaxCloseSession].
//   - A deposed leader ends no sessions by its own clock, and does not notice by itself that it has
//     no quorum.
//   - SASL, x509, the super user, dynamic reconfiguration and the admin server do not exist.
//   - The four-letter words conf, cons, envi, isro, mntr, ruok, srvr, stat and wchs are all
//     enabled. Latencies are not measured; mntr has the main lines.
//   - A successful check outside of a transaction is answered; 3.8 forgets to.
//   - A createTTL whose flags ask for no TTL node is refused. 3.8 accepts it if the time to live is
//     -1, and shuts down.
//   - A setACL applies to every later request. In 3.8, requests sent right behind it, without
//     waiting for the answer, may still be checked against the old list.
//   - The identities of a connection are listed in the order of authentication. So are the entries
//     that replace an entry of scheme auth.
//   - A client cannot create a session within another session, which 3.8 lets it try.
//   - Access control lists and the identities of a connection are limited in number. A multiRead
//     whose answer would exceed 64 MB ends the connection.
//   - All due containers are deleted at once, not a few per second. The number of connections from
//     one address is not limited.
//   - Children and ephemeral nodes are listed in an order that is stable but, as with a real
//     server, not sorted.
package embedded
