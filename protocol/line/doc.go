// Package line is the standard pattern of ZooKeeper's recipes: contenders in line. It is for
// authors of recipes.
//
// A contender creates an ephemeral sequential node, looks which contenders block it, watches those,
// and looks again. The recipe says which contenders block: [Permits] is the semaphore, and
// [Exclusive] is the mutex. A recipe that differs brings its own [Blockers].
//
//	recipe := protocol.NewRecipe(client, "mutex", "/locks/a")
//	locks := line.New(recipe, line.Locks...)
//	grant, err := locks.Enter(ctx, line.Request{Kind: "lock-", Blockers: line.Exclusive})
//
// The algorithm is that of the ZooKeeper documentation's recipe for locks. Two things are added,
// which save requests.
//
// # Alone in line
//
// Where no contender is known to be in line, one transaction creates the node and sets the line's
// own data, to nothing as they were. Its answer says how many children there are, and its number is
// the token. One child means that the contender is granted: in one round trip, token included. Data
// that others have put there is never replaced.
//
// # The next in line
//
// A waiter watches one node. That this node is gone does not say that nothing else is ahead: its
// contender may have given up while it waited. Listing the line again would tell, but costs a round
// trip and as many bytes as there are contenders. It would come at the very moment at which all of
// them wait.
//
// A holder of an exclusive kind, however, knows that nothing is ahead of it. As numbers only grow,
// nothing ever will be. So it releases with a transaction that
//
//	creates  <its node>-passed
//	deletes  <its node>-passed
//	deletes  <its node>
//
// The first of these is the release marker. The next waiter watches for its creation as well as for
// the end of the node. A server tells of events in the order in which things have happened. So the
// waiter hears of the creation right before the deletion. If its own node is untouched, and all of
// that came over one connection, it holds without another request.
//
// No client sees the marker, as a transaction is executed as one. It uses up one number of the
// sequence, which ends after two thousand million. A waiter with one node ahead needs no marker: it
// is enough that this node is gone. (A holder that replaces its node changes it first, so that its
// waiters hear of that and not of its end.)
//
// If the node goes in another way there is no marker, and the waiter lists the line: the contender
// died, gave up, was deleted by an operator, or belongs to another library. The waiter also lists
// after a reconnect, when events may have been missed.
//
// Its watch for the marker would then stay, as no other client makes that marker. So the session
// removes it, by a request that its server answers alone. No other client learns of that. A watch
// that is set over one connection ends with it, and is not set again over the next. A server before
// ZooKeeper 3.5 cannot remove watches: a session that has met such a server lists the line from
// then on.
//
// # Its own node
//
// The answer to the create tells the token, and the listing shows the node. So a contender does not
// read its own node at once, but watches it when it has waited for a tenth of a second. There are
// three exceptions. A contender right behind the first one watches its node at once, as it is
// granted without a marker. So does one whose create had no answer, and one whose request has a
// Check.
//
// If another client deletes the node of a contender within that time, and the marker of its
// predecessor comes within that time, too, the contender is granted. It loses the grant as soon as
// the holder's node is watched, as a holder does whose node is deleted just after it was granted.
// ResignTo of package election leaves no marker that could mislead a candidate like that.
//
// # Other kinds at the path
//
// A line also has the contenders of all other recipes of this module, and those of the libraries
// that share a line with one of them. A contender waits until those that came before it are gone,
// whatever their kind: a mutex waits for readers, and a permit for a mutex. Among its own kinds the
// recipe's [Blockers] decide. Kinds that are not of this module know nothing of that: a line of
// yours respects the recipes here, which do not respect it.
//
// Contenders of other libraries go by their own rules. Before a contender is granted, it looks for
// those behind it in its listing. If one of them would not wait for it, the contender returns
// [protocol.ErrMixed], as that one may hold. This is a help against mistakes and no guarantee: such
// a library may also come later, and a contender that is alone in line, or hears of a release
// marker, does not list the line. No request is added.
//
// # Cost
//
// The requests, with those of the contender's own node:
//
//	contended cycle           5: a create, a listing, 1 node read, 1 marker watched for, and a release
//	wait that lasts           1 more, which watches its own node
//	predecessor gone without  1 watch removed, a listing, 1 node read; 1 marker watched for if more than one is ahead
//	wait that is given up     nothing, and 1 watch removed if the predecessor goes without its marker later
//
// A waiter keeps the watches of its blockers and nothing else of the listing: with its stack, about
// 8 kB whatever the length of the line. It costs its session's pings. Contenders of one session and
// path share listings: one that joins shares the latest that has its node, and one that looks again
// shares the next with all that ask meanwhile. So the bytes that it takes to join grow with the
// number of sessions.
//
// # Guarantees
//
// A node is counted as ours only with the session and the nonce in its name. It is granted only if
// it exists, is owned by the current session, and nothing is ahead that blocks it. Order is by
// sequence number alone.
package line
