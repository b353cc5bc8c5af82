// Package group keeps track of the members of a group: which processes of a service are there.
//
//	g := group.New(client, "/services/search")
//	me, err := g.Join(ctx, "host-4", []byte("10.0.0.4:8080"))
//	if err != nil {
//		return err
//	}
//	defer me.Leave(context.WithoutCancel(ctx))
//	for peers, err := range g.Watch(ctx) {
//		if err != nil {
//			return err
//		}
//		connect(peers) // now, and whenever a member has joined, left or died
//	}
//
// [Group.Await] waits for a number of members. [Share] divides items among the members, so that one
// of them at a time works at each.
//
// # Guarantees
//
//   - At most one trusted member has a name. [Member.Joined] is false before the ensemble can give
//     the name to another member. An operator who deletes a member's node takes its name away at
//     once, and the member learns of it by a message.
//   - A [Member] stays one until [Member.Leave]. After the loss of its session it joins again in
//     the next, with the data that was set last. A name that was taken meanwhile is waited for.
//   - A call that fails leaves no node behind. Leave never deletes the node of the next member of
//     that name, also if its answer was lost.
//   - [Group.Watch] misses no member that lasts, and takes none for another one that had its name.
//   - What [Share] hands over is worked at by the next member once the last one has stopped.
//
// # Costs
//
// Join costs two requests, and a third one to watch the node, and creates the missing nodes of the
// path the first time. At rest a member costs what any holder does, however many members a session
// has. Leave costs one request. [Member.Set] costs three, one of them to watch the node again. A
// name that is waited for costs one watch.
//
// Members costs two requests, and one for each member. Watch costs the same to begin, and pings at
// rest: each loop makes one read a minute. A change costs one listing, which the loops of a session
// share, and each loop one read for each member that is new. Watch does not watch the members'
// data, so Set costs watchers nothing. A member that leaves and comes back between two listings
// makes each watcher read all members anew. Each listing has the names of all members: with
// hundreds of watchers keep groups to some thousand members.
//
// An item that moves costs [Share] what a lock that is waited for does. Each item that is held is a
// lock.
//
// # Other libraries
//
// The layout is that of Apache Curator's GroupMember: an ephemeral node, named by the member, with
// its data. Each sees the other's members, and names exclude each other.
//
// kazoo's Party and ShallowParty appear as members too. Their nodes have random names:
// <uuid>__party__ with the identifier as data, and <uuid>-<identifier> without data. A Party sees
// nodes whose names contain __party__, and shows their data. So a member that is to be seen by a
// Party joins with such a name:
//
//	g.Join(ctx, "host-4__party__", []byte("host-4"))
//
// A ShallowParty sees all members, by what comes after the first hyphen of their names. Curator and
// kazoo do not compute trust from clocks, and do not tell their members when they are lost.
//
// # Failure
//
// A process that crashes stays a member until its session ends. When it is started again it gets
// [ErrNameTaken] until then, unless it joins with another name.
//
// A process that is stopped between looking at Joined and acting on it acts late. Members have no
// fencing tokens: use package lock or election for what must be done by one.
//
// No request of ZooKeeper names a node but by its name. If an operator deletes a member's node, and
// another member takes the name in the moment before a Leave or Set of the first one arrives, that
// request meets the other member's node. The other member then joins again.
package group
