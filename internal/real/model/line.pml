/*
 * Contenders in line for a lock, their sessions and watches, and two servers, one of which lags.
 *
 * A contender is a process of guarded commands. A command is what one Go function does at one
 * moment, and the comment before it names that function. README.md says what was left out and
 * why that is sound. Each macro that is tested below takes a protection out of the model, and spin
 * must find an error then: see model_test.go.
 *
 * There is no time here. What is assumed of it is what trust.pml shows: the leader expires a
 * session only once its client does not trust it any more.
 */

#define CONTENDERS 3

#ifndef NODES
#define NODES 4    /* how many nodes are created in a run */
#endif
#ifndef CUTS
#define CUTS 1     /* how many connections break */
#endif
#ifndef ENDS
#define ENDS 1     /* how many sessions end before their time */
#endif
#ifndef CANCELS
#define CANCELS 1  /* how many callers stop waiting */
#endif

/*
 * A step is printed, for spin -t: the contender, what it does, a node, its server,
 * what it does next, which contenders hold, and which nodes the leader has.
 */
mtype = { Enter, Create, Answer, Cut, Resume, Sync, Settle, List, Watch, Marker, Event, Confirm, Agree, Hold,
	Release, Delete, Cancel, Lose, Silent, Expired, Apply, Expire, Close };
#define step(who, what, n, at, next) \
	printf("%d %e %d %d %e %d%d%d %d%d%d%d\n", who, what, n, at, next, holds[0], holds[1], holds[2], \
		there(1, zxid), there(2, zxid), there(3, zxid), there(4, zxid))
#define say(what, n) step(me, what, n, server, doing)

/*
 * The servers. Every change is a transaction with a number. What a server knows is the number of
 * the latest transaction that it has executed: zxid at the leader, applied at the follower. A
 * follower that is isolated from its leader executes none for a while.
 */
#define NONE     0
#define LEADER   1
#define FOLLOWER 2
#define known(s) (s == LEADER -> zxid : applied)

byte zxid, applied;
byte users; /* how many sessions are connected to the follower */

/* A node's number is its place in line. Numbers of transactions say when the node was there. */
typedef Node {
	byte owner;
	byte made;    /* the transaction that has created it: the fencing token */
	byte gone;    /* the transaction that has deleted it, or 0 */
	bool marked;  /* that transaction has made the release marker */
	bool unwanted; /* its owner deletes it in the background */
	bool release; /* and makes the release marker with that */
#ifdef UNMARKS
	byte cleared; /* the transaction in which another client has made its marker, or 0 */
#endif
}
#define PLACES 4
Node node[PLACES + 1];
byte nodes;    /* how many were created */
byte promised; /* how many may be created, with requests that are on their way */

/* A server that knows that the session has expired has hung up. */
#define up (server != NONE)

#define OVER CONTENDERS /* the owner of the nodes of sessions that their clients have given up */

#define there(n, z) (node[n].made != 0 && node[n].made <= z && (node[n].gone == 0 || node[n].gone > z))
#define mine(n)     (node[n].owner == me && node[n].made != 0 && node[n].gone == 0)
#define leaving(n)  (mine(n) && node[n].unwanted)
#define anyUnwanted (leaving(1) || leaving(2) || leaving(3) || leaving(4))
#define staying(n)  (mine(n) && !node[n].unwanted)
#define orphan(n)   (node[n].owner == OVER && there(n, zxid))

/* The sessions: each contender has one at a time. */
bool expired[CONTENDERS]; /* by the leader; while its client trusts it, it is not: see trust.pml */
byte ended[CONTENDERS];   /* the transaction that has expired it */

bool holds[CONTENDERS];
#define expirable(c) (!holds[c] && !expired[c])
byte token;    /* of the latest holder */
byte cuts = CUTS, ends = ENDS, cancels = CANCELS;

inline remove(n, marks) {
	zxid++;
	node[n].gone = zxid;
	node[n].marked = marks;
	node[n].unwanted = false;
	node[n].release = false
}

/*
 * The session connects to a server that knows what the session was told of, or leaves it. A
 * follower without sessions may know any number of transactions, and it is forgotten which.
 */
inline connect() {
	if
	:: server = LEADER
	:: users == 0 -> server = FOLLOWER; users = 1; applied = newest
	:: users > 0 && newest <= applied -> server = FOLLOWER; users++
	fi
}

inline leave() {
	if
	:: server == FOLLOWER ->
		users--;
		if :: users == 0 -> applied = 0 :: else -> skip fi
	:: else -> skip
	fi;
	server = NONE
}

/* An answer or an event tells the session of a transaction. */
#ifdef FORGETS
#define counts !forgetful
#else
#define counts true
#endif
inline told(z) {
	if :: counts && z > newest -> newest = z :: else -> skip fi
}

/*
 * The contender is out of line. Its session goes on, but what that was told of and where it is
 * connected no longer matters: whatever it does next, a new session could do.
 */
inline rest() {
	own = 0; made = 0; sole = true; alone = false; wanted = false;
	blocker = 0; first = false; watched = false; same = false; expects = false; marker = false;
	before = 0; i = 0; answer = 0; newest = 0;
	leave();
	assert(!staying(1) && !staying(2) && !staying(3) && !staying(4)); /* a node is left behind */
	doing = idle
}

/* The client has given up its session, or has learnt that it is over. The next one begins. */
inline nextSession() {
	i = 1;
	do
	:: i <= nodes ->
		if :: mine(i) -> node[i].owner = OVER; node[i].unwanted = false :: else -> skip fi;
		i++
	:: else -> break
	od;
	expired[me] = false; ended[me] = 0;
	rest()
}

/* The node of the contender is among those that a server shows: the lowest of them is kept. */
inline among(z) {
	i = 1; before = 0;
	do
	:: i <= nodes ->
		if
		:: mine(i) && !node[i].unwanted && there(i, z) ->
			if :: before == 0 -> before = i :: else -> node[i].unwanted = true fi
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	if
	:: before != 0 && before < own -> node[own].unwanted = true; own = before
	:: before != 0 -> own = before
	:: else -> skip
	fi
}

/* The node just before the contender's own, and whether that is the first in line. */
inline ahead(z) {
	i = 1; blocker = 0; first = false;
	do
	:: i < own ->
		if :: there(i, z) -> first = (blocker == 0); blocker = i :: else -> skip fi;
		i++
	:: else -> break
	od
}

mtype = { idle, creating, created, settling, synced, listing, watching, waiting, free, confirming, agreed, holding };

proctype Contender(byte me; byte server) {
	mtype doing = idle;
	bool wanted;        /* its caller waits */

	byte own;           /* the node that it takes for its own, or 0 */
	bool sole = true;   /* it is certain to have no other node */
	bool alone;         /* the line was empty when the node was created */
	byte made;          /* the node that the request under way has created, or 0 */
	byte answer;        /* the server answers once it knows this transaction */

	byte newest;        /* the newest transaction that the session was told of */
	byte blocker;       /* the node that the contender waits for */
	bool first;         /* nothing is before the blocker */
	bool watched;       /* a watch on the blocker is set */
	bool same;          /* over the connection over which the blocker was read */
	bool expects;       /* a request to watch for the blocker's marker is on its way */
	bool marker;        /* the blocker was there when that watch was set */
	byte view;          /* what the server knows */
	byte i, before;     /* of loops */
#ifdef FORGETS
	bool forgetful;     /* answers over this connection do not tell newest */
#endif
#ifdef UNMARKS
	byte unmarks;       /* the node whose marker the session makes in the background */
	bool passed;        /* the session has heard of the blocker's marker */
#endif

	do
	/* go: line.Line.Enter */
	:: atomic { doing == idle && !expired[me] && promised < NODES && promised >= me && !anyUnwanted ->
		promised++;
		connect();
#ifdef FORGETS
		if :: forgetful = true :: forgetful = false fi;
#endif
		wanted = true; doing = creating;
		say(Enter, 0)
	}

	/* The leader executes the request to create a node, also if the connection breaks meanwhile. */
	/* go: line.contender.create */
	:: atomic { doing == creating && !expired[me] ->
		nodes++; zxid++; made = nodes;
		node[made].owner = me; node[made].made = zxid;
		answer = zxid;
		i = 1; alone = true;
		do
		:: i < made -> alone = alone && !there(i, zxid); i++
		:: else -> break
		od;
		i = 0; doing = created;
		say(Create, made)
	}

	/* go: recipe.Session.CreateOwn */
	:: atomic { doing == created && up && known(server) >= answer ->
		told(answer);
		own = made; made = 0; answer = 0;
		if
		:: !wanted -> node[own].unwanted = true; rest()
		:: wanted && alone -> doing = free
		:: wanted -> doing = listing /* the line's own node could not be written with the create */
		fi;
		alone = false;
		say(Answer, 0)
	}

	/* go: conn.Link.Cut */
	:: atomic { server != NONE && cuts > 0 ->
		cuts--;
		leave(); same = false; expects = false; marker = false;
		say(Cut, 0)
	}

	/* A server resumes a session that is alive if it knows all that the session was told of. */
	/* go: conn.Conn.connected */
	:: atomic { doing != idle && server == NONE && !expired[me] ->
		connect();
#ifdef FORGETS
		forgetful = watched || doing == watching;
#endif
#ifdef NO_REWATCH
		watched = false;
#endif
		if
		:: doing == creating || doing == created -> /* what was not executed by now never will be */
#ifdef NO_SETTLE
			if
			:: made != 0 && promised < NODES -> promised++
			:: made != 0 && promised == NODES -> wanted = false
			:: else -> skip
			fi;
			made = 0; doing = (wanted -> creating : idle)
#else
			sole = false; doing = settling
#endif
		:: doing == synced -> doing = settling
		:: doing == agreed -> doing = confirming
		:: else -> skip
		fi;
		answer = 0;
		say(Resume, 0)
	}

	/* After a lost answer, the leader is asked to bring the server up to date. */
	/* go: session.Bound.Sync */
	:: atomic { doing == settling && server != NONE && !expired[me] ->
#ifdef NO_SYNC
		answer = known(server);
#else
		answer = zxid;
#endif
		doing = synced;
		say(Sync, 0)
	}

	/* go: recipe.Own.settle */
	:: atomic { doing == synced && up && known(server) >= answer ->
		view = known(server); told(view);
		among(view);
		answer = 0; i = 0; view = 0;
		if
		:: own != 0 && wanted -> doing = listing
		:: own != 0 && !wanted -> node[own].unwanted = true; rest()
		:: own == 0 && wanted && made == 0 -> doing = creating
		:: own == 0 && wanted && made != 0 && promised < NODES -> promised++; doing = creating
		:: own == 0 && (!wanted || made != 0 && promised == NODES) -> rest()
		fi;
		made = 0; before = 0;
		say(Settle, 0)
	}

	/* go: line.contender.look */
	:: atomic { doing == listing && up ->
		view = known(server); told(view);
		if :: !sole -> among(view) :: else -> skip fi;
		if
		:: !there(own, view) -> node[own].unwanted = mine(own); rest()
		:: else ->
			ahead(view);
			doing = (blocker == 0 -> free : watching)
		fi;
		before = 0; i = 0; view = 0;
		say(List, blocker)
	}

	/* go: line.contender.await */
	:: atomic { doing == watching && up ->
		view = known(server); told(view);
		if
		:: there(blocker, view) ->
			watched = true; same = true; expects = !first;
			doing = waiting
#ifdef UNMARKS
		:: else -> doing = listing
#else
		:: else -> doing = (first && sole -> free : listing)
#endif
		fi;
		view = 0;
		say(Watch, blocker)
	}

	/* go: conn.Watches.ExpectMarker */
	:: atomic { doing == waiting && expects && up ->
		expects = false;
		marker = there(blocker, known(server));
		say(Marker, blocker)
	}

#ifdef UNMARKS
	/* The design before: what a session has read of another's node, it writes for all. */
	/* not ours */
	:: atomic { unmarks != 0 && !expired[me] ->
		zxid++; node[unmarks].cleared = zxid; unmarks = 0
	}
	/* not ours */
	:: atomic { marker && server != NONE && node[blocker].cleared != 0 && node[blocker].cleared <= known(server) ->
		marker = false; passed = true
	}
#endif

	/* The server tells that the blocker is gone. After a reconnect it makes that up. */
	/* go: conn.Watches.notify */
	:: atomic { doing == waiting && watched && up && !there(blocker, known(server)) ->
		if :: node[blocker].gone <= known(server) -> told(node[blocker].gone) :: else -> skip fi;
#ifdef UNMARKS
		if :: !first && !node[blocker].marked -> unmarks = blocker :: else -> skip fi;
		marker = marker || passed;
		first = first || passed;
		passed = false;
#endif
		if
#ifdef NO_CLEARING
		:: marker && !node[blocker].marked -> skip /* it goes on waiting for the marker */
#endif
		:: else -> doing = (sole && same && (first || marker && node[blocker].marked) -> free : listing)
		fi;
		watched = false; same = false; expects = false; marker = false;
		say(Event, blocker);
		blocker = 0; first = false
	}

	/* go: recipe.Recipe.NewGrant */
#ifdef NO_CONFIRM
	:: atomic { doing == free ->
	/* not ours */
#else
	:: atomic { doing == free && !expired[me] ->
#endif
		assert(!holds[0] && !holds[1] && !holds[2]); /* two holders */
		assert(node[own].made > token);              /* tokens do not increase */
		token = node[own].made;
		holds[me] = true; blocker = 0; first = false;
		doing = holding;
		say(Hold, own)
	}

	/* The client does not trust its session any more, though that may live. */
	/* go: session.Session.confirmed */
	:: atomic { doing == free && ENDS > 0 -> doing = confirming; say(Confirm, 0) }

	/* The leader agrees to a write of a session that it has not expired. */
	/* go: session.Bound.Confirm */
	:: atomic { doing == confirming && server != NONE && !expired[me] ->
		answer = zxid;
		doing = agreed;
		say(Agree, 0)
	}

	/* go: line.contender.advance */
	:: atomic { doing == agreed && server != NONE && known(server) >= answer ->
		told(answer);
		answer = 0;
		if
		:: doing = listing
		:: sole -> doing = free
		fi
	}

	/* A holder of a line that others are in makes the release marker. */
	/* go: recipe.Grant.Release */
	:: atomic { doing == holding ->
		holds[me] = false;
		node[own].unwanted = true;
		if :: node[own].release = true :: skip fi;
		rest();
		say(Release, 0)
	}

	/* The server's answer may be lost: the deletion is repeated until it is known. */
	/* go: recipe.Session.remove */
	:: atomic { !expired[me] && anyUnwanted ->
		i = 1;
		do
		:: leaving(i) -> break
		:: else -> i++
		od;
		remove(i, node[i].release);
		say(Delete, i);
		i = 0
	}

#ifdef NO_VERIFY
	/* A holder believes a server that lags. */
	/* not ours */
	:: atomic { doing == holding && server != NONE && !there(own, known(server)) ->
		holds[me] = false; rest()
	}
#endif

	/* The caller's context ends. A request that is on its way is found out about first. */
	/* go: recipe.Detach */
	:: atomic { wanted && doing != holding && cancels > 0 ->
		cancels--;
#ifdef NO_WITHDRAW
		rest();
#else
		wanted = false;
		if
		:: own != 0 -> node[own].unwanted = true; rest()
		:: else -> skip
		fi;
#endif
		say(Cancel, 0)
	}


	/* Trust runs out. What is held is lost at that moment, and the session is over for good. */
	/* go: session.Session.overdue */
	:: atomic { doing == holding && ends > 0 ->
		ends--;
		holds[me] = false;
		nextSession();
		say(Lose, 0)
	}

	/* A whole timeout was silent. What is on its way may be executed before that, or never. */
	/* go: trust.Trust.Silent */
	:: atomic { doing != idle && doing != holding && server == NONE && !expired[me] && ends > 0 ->
		ends--;
		nextSession();
		say(Silent, 0)
	}

	/* A server that knows that the session has expired hangs up, and refuses to resume it. */
	/* go: conn.Conn.connected */
	:: atomic { expired[me] && (server == NONE || known(server) >= ended[me]) ->
		nextSession();
		say(Expired, 0)
	}

	/* go: line.Line.Enter */
	:: atomic { doing == idle && promised == NODES && !anyUnwanted -> break }
	od
}

proctype Ensemble() {
	byte c, n;
end:	do
	/* go: embedded.Follower.catchUp */
	:: atomic { users > 0 && applied < zxid -> applied++; step(CONTENDERS, Apply, applied, FOLLOWER, idle) }

	/* go: embedded.Server.expire */
	:: atomic { ends > 0 && (expirable(0) || expirable(1) || expirable(2)) ->
		if
		:: expirable(0) -> c = 0
		:: expirable(1) -> c = 1
		:: expirable(2) -> c = 2
		fi;
		ends--; zxid++;
		expired[c] = true; ended[c] = zxid;
		for (n : 1 .. PLACES) {
			if
			:: node[n].owner == c && node[n].made != 0 && node[n].gone == 0 ->
				node[n].gone = zxid; node[n].unwanted = false; node[n].release = false
			:: else -> skip
			fi
		}
		step(CONTENDERS, Expire, c, LEADER, idle);
		c = 0; n = 0
	}

	/* No contender enters the line any more. */
	/* not ours */
	:: atomic { promised < NODES -> promised = NODES }

	/* go: conn.Conn.closeOrphan */
	:: atomic { orphan(1) || orphan(2) || orphan(3) || orphan(4) ->
		n = 1;
		do
		:: orphan(n) -> break
		:: else -> n++
		od;
		remove(n, false);
		step(CONTENDERS, Close, n, LEADER, idle);
		n = 0
	}
	od
}

init {
	atomic {
		run Ensemble();
		run Contender(0, NONE); run Contender(1, NONE); run Contender(2, NONE)
	}
}
