// Package group keeps track of the members of a group: which processes of a service are there, and
// which of them works on which items.
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
// [Group.Await] waits for a number of members. [Member.Share] divides items among the members, so
// that one member at a time works on each.
//
// # Guarantees
//
//   - At most one trusted member has a name. [Member.Joined] is false before the ensemble can give
//     the name to another member. If an operator deletes a member's node, the member finds out when
//     the server's event arrives.
//   - A [Member] stays a member until [Member.Leave]. After the loss of its session it joins again
//     in the next session, with the data that were set last. It waits if the name was taken
//     meanwhile.
//   - A call that fails leaves no node behind. Leave never deletes the node of the next member of
//     that name, even if its own answer was lost.
//   - [Group.Watch] misses no member that lasts and never mistakes a member for another member that
//     had its name.
//   - An item of [Member.Share] goes to the next member after the last one has stopped working on
//     it.
//
// # Costs
//
// Join costs two requests, and a third to watch the node. Leave costs one request. [Member.Set]
// costs three. At rest a member costs what any holder costs, and further members of the session
// cost nothing. Waiting for a name costs one watch.
//
// Members costs two requests and one for each member. Watch begins with the same and makes one read
// a minute at rest. A change costs one listing (shared by the loops of a session) and one read for
// each new member. Watch doesn't watch the members' data, so Set costs watchers nothing. If a
// member leaves and comes back between two listings, each watcher reads all members anew. Each
// listing has the names of all members: with hundreds of watchers, keep groups to some thousand
// members.
//
// Each item of Share that a member works on is a lock (and costs as much).
//
// # Other libraries
//
// The layout is that of Apache Curator's GroupMember (an ephemeral node, named after the member,
// with its data). Each library sees the other's members, and names exclude each other.
//
// Members of kazoo's Party and ShallowParty appear under the random names of their nodes. A Party
// sees nodes whose names contain __party__ and shows their data. So join with such a name to be
// seen:
//
//	g.Join(ctx, "host-4__party__", []byte("host-4"))
//
// A ShallowParty sees all members, by the part of their names after the first hyphen. Curator and
// kazoo don't tell their members when they are lost.
//
// # Failure
//
// A process that crashes stays a member until its session expires. When the process is started
// again, Join waits until then, unless it joins under another name or has the same identity (see
// [WithIdentity]).
//
// A process can stop between a look at Joined and its next step and act late. Members have no
// fencing tokens. Use package lock or election for work that only one process may do.
//
// ZooKeeper's requests know a node by its name alone. Suppose an operator deletes a member's node
// and another member takes the name, just before a Leave or Set of the first member arrives. Then
// that request hits the other member's node. The other member joins again.
package group
