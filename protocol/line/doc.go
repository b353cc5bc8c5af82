// Package line is the standard pattern of ZooKeeper's recipes: contenders in line. It is for
// authors of recipes.
//
// A contender creates an ephemeral sequential node and looks which contenders block it. It watches
// them and looks again. The recipe says which contenders block: [Permits] is the rule of a
// semaphore and [Exclusive] the rule of a mutex. Other recipes bring their own [Blockers].
//
//	recipe := protocol.NewRecipe(client, "mutex", "/locks/a")
//	locks := line.New(recipe, line.Locks...)
//	grant, err := locks.Enter(ctx, line.Request{Kind: "lock-", Blockers: line.Exclusive})
//
// The algorithm is the lock recipe of the ZooKeeper documentation, with two additions that save
// requests.
//
// # Alone in line
//
// If no contender is known to be in line, one transaction creates the node and writes the line's
// own data as they were. Its answer says how many children there are, and its number is the token.
// With one child, the contender is granted in one round trip. Data of others are never replaced.
//
// # The next in line
//
// A waiter watches its predecessor. When that node goes, another contender may still be ahead,
// because the predecessor may have given up. Listing the line would settle that. But it costs a
// round trip and a name for each contender just when all of them wait.
//
// A holder of an exclusive kind knows that no contender is ahead. Because numbers only grow, none
// ever will be. So it releases with a transaction that
//
//	creates  <its node>-passed
//	deletes  <its node>-passed
//	deletes  <its node>
//
// The first node is the release marker. The next waiter watches for its creation as well as for the
// end of the holder's node. A server sends events in the order in which things happened, so the
// creation's event comes right before the deletion's. If the waiter's own node is untouched and all
// of that came over one connection, the waiter holds the lock without another request.
//
// No client can read the marker, because the transaction creates and deletes it at once. It uses up
// one number of the sequence. A waiter with only one node ahead needs no marker. (A holder that
// replaces its node changes the node first, so that its waiters see the change and not the
// deletion.)
//
// Without a marker the waiter lists the line: its predecessor died, gave up or was deleted by an
// operator (or belongs to another library). It also lists the line after a reconnect, because it
// may have missed events. Its watch for the marker would stay at the server, so the session removes
// it (by a request that only its own server answers). Servers before ZooKeeper 3.5 cannot remove
// watches: a session that has met one goes on without markers.
//
// # Its own node
//
// A contender knows its token from the answer to its create. So it watches its own node only after
// it has waited for a tenth of a second, or at once if it is right behind the first contender
// (because it needs no marker) or its create had no answer.
//
// Suppose another client deletes a contender's node before that, and the predecessor's marker comes
// then. The contender is granted, and loses the grant as soon as the node is watched. (ResignTo of
// package election leaves no marker that could mislead such a candidate.)
//
// # A rule in the line's data
//
// If blockers depend on a number that changes (the permits of a semaphore), [Line.Follow] reads
// that number from the data of the line's node. A contender that lists the line also reads the data
// if they have changed, and a waiter watches them. A contender that is alone is still granted in
// one round trip: its transaction expects the version of the data that it knows, and fails if they
// have changed. The recipe changes the data. (To keep them while no contender is in line, it gives
// the line's node a persistent child named keep.)
//
// # Other kinds at the path
//
// A line also has the contenders of this module's other recipes, and of the libraries that share a
// line with them. A contender waits for all earlier contenders of other kinds (a mutex waits for
// readers, a permit for a mutex). Among its own kinds, [Blockers] decide. A line of your own kinds
// respects the recipes here, and they do not respect it.
//
// Other libraries have their own rules. If a contender is about to be granted and its listing shows
// a later contender that would not wait for it, it returns [protocol.ErrMixed]. This is a help
// against mistakes and no guarantee, because a contender that is alone or sees a release marker
// lists nothing.
//
// # Cost
//
//	contended cycle      create, list, read a node, watch for a marker, release
//	wait that lasts      one request more (the waiter watches its own node)
//	no marker comes      remove a watch, list, read a node; if two or more
//	                     contenders are ahead, also watch for a marker
//	wait is given up     none, or remove a watch if no marker comes later
//
// A waiter keeps only the watches of its blockers: about 8 kB with its stack, however long the line
// is. It costs its session's pings. Contenders of one session and path share listings, so the bytes
// for joining grow with the number of sessions.
//
// # Guarantees
//
// A node counts as ours only with the session and the nonce in its name. It is granted only if it
// exists, if the current session owns it and if no contender ahead blocks it. Order is by sequence
// number alone.
package line
