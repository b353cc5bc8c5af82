/*
 * Until when a client may trust its session, and when the leader expires it.
 *
 * Time is counted in twelfths of the session timeout. All times are ages: how long ago something
 * was sent, answered or heard of. So there are finitely many states, and runs have no end. The
 * comment before a command names the Go function that does it. README.md says what was left
 * out. A macro takes a protection out of the model, and spin must find an error then.
 */

#define T 12        /* two ticks of the servers, and no age is counted beyond it */
#define HALF_TICK 3 /* between two pings of the leader to its follower */
#define LATE 1      /* which may come this late */

#ifndef DRIFT
#define DRIFT 1     /* the leader's clock may be fast by this much in one timeout */
#endif
#ifndef REPORT
#define REPORT 4    /* reportShare */
#endif
#ifndef SHARE
#define SHARE 11    /* 1 - driftShare */
#endif

/*
 * The client. It keeps one report where the code keeps many, and has one sync under way. It may
 * choose any, and an error needs only one of each.
 */
#define NONE     0
#define LEADER   1
#define OLD      2 /* a deposed leader */
#define FOLLOWER 3
#define DIALLING 4 /* the follower, which has asked the leader to validate the session */
byte server = LEADER;
byte carried;         /* an age, as in the code */
byte agreed;          /* the same, and 0 until the leader is deposed, which allows more */
byte sent = T;        /* the age of a request that the follower has answered at once */
byte dialled = T;

/* A request is under way or has been answered by the leader, and the client does not know yet. */
#define NO     0
#define SENT   1
#define DONE   2
#define AGREED 3 /* it was a write, and a quorum of the new leader has agreed */
byte sync, syncAge = T;

/* The latest leader. */
byte heard;    /* the age of the latest contact that it knows of */
bool expired;

bool deposed;  /* a leader was, and does not know. If it was several, they are one here */

/* The follower, and what is on its way from there to its leader, in order. */
mtype = { report, syncing, validate };
chan up = [4] of { mtype };
bool noted;     /* it has seen a contact that it has not reported */
byte pinged;    /* the age of the leader's latest ping */
bool isolated;  /* it has lost its leader, and does not know */
bool follows;   /* a deposed leader */
bool validated; /* the leader's validation is on its way back */
mtype item;
bool tail;      /* the last item on its way is a report: another one would say the same */

#ifdef NO_QUORUM
#define trusted (carried < SHARE)
#else
#define trusted (carried < SHARE && agreed < SHARE)
#endif
#define two assert(!(expired && trusted)) /* the next contender holds, too */
#define older(age) age = (age < T -> age + 1 : T)

inline younger(age, other) {
	if :: other < age -> age = other :: else -> skip fi
}

/* The connected server sees a request of the session. */
inline contact() {
	if
	:: server == LEADER && !expired -> heard = 0
	:: server == FOLLOWER && !isolated -> noted = true
	:: else -> skip
	fi
}

/* The leader has executed the request that is under way, or the new leader has. */
inline executes() {
	if :: sync = DONE :: deposed -> sync = AGREED fi
}

/* The session goes on at a server. Its leader has taken part, and a quorum has not. */
inline resumed(age) {
	younger(carried, age);
#ifdef RESUMPTION_AGREES
	younger(agreed, age);
#endif
	dialled = T; sent = T
}

/* The leader has answered a request that was sent some time ago. */
inline counts(age) {
#ifdef NO_CARRIED
	younger(carried, age);
#endif
	if
	:: sent >= age + REPORT && sent < T -> younger(carried, sent); sent = T
	:: else -> skip
	fi
}

/* The connection has ended. What was forwarded still reaches the leader, but the answers do not count. */
inline hangUp() {
	server = NONE;
	sync = NO; syncAge = T; validated = false; dialled = T; sent = T;
	tail = false;
	do
	:: nempty(up) -> up?item; tail = tail || item == report
	:: else -> break
	od;
	if :: tail -> up!report :: else -> skip fi;
	item = 0
}

inline forward(request) {
	if :: isolated -> skip :: else -> up!request; tail = false fi
}

/* The follower loses its leader. What it reports or forwards before it finds out is lost. */
inline isolate() {
	isolated = true; follows = false; noted = false; pinged = 0;
	do :: nempty(up) -> up?item :: else -> break od;
	item = 0; tail = false
}

/* The follower answers a ping of the leader, and reports the contacts that it has seen. */
inline tells() {
	pinged = 0;
	if :: noted && !tail -> up!report; tail = true :: else -> skip fi;
	noted = false
}

/*
 * The client has seen a transaction of the new leader. A server refuses a client that has seen more
 * than it has. So the deposed leader no longer matters.
 */
inline outlives() {
	deposed = false; agreed = 0;
	if :: follows -> isolate() :: else -> skip fi
}

active proctype Client() {
	do
	/* go: trust.Trust.Answered */
	:: atomic { server == LEADER || server == OLD || server == FOLLOWER ->
		contact();
#ifdef ANY_ANSWER
		carried = 0;
#endif
		if :: sent = 0 :: skip fi;
		two
	}

	/* go: session.Session.prove */
	:: atomic { (server == LEADER && !expired || server == FOLLOWER || server == OLD) && sync == NO ->
		contact();
		syncAge = 0;
		if
		:: server == LEADER -> executes()
		:: server == OLD -> sync = DONE
		:: else -> sync = SENT; forward(syncing)
		fi
	}

	/* go: conn.Conn.answered */
	:: atomic { sync == DONE ->
		counts(syncAge);
#ifdef SYNC_AGREES
		younger(agreed, syncAge);
#endif
		sync = NO; syncAge = T;
		two
	}
	/* go: trust.Trust.Answered */
	:: atomic { sync == AGREED ->
		counts(syncAge);
#ifdef FORGETS
		younger(agreed, syncAge);
#else
		outlives();
#endif
		sync = NO; syncAge = T;
		two
	}

	/* go: conn.Link.Cut */
	:: atomic { server != NONE -> hangUp() }

	/* go: conn.newLink */
	:: atomic { server == NONE ->
		server = DIALLING; dialled = 0; forward(validate)
	}
	/* go: conn.newLink */
	:: atomic { server == NONE && !expired ->
		server = LEADER; heard = 0; resumed(0)
	}
	/* go: conn.newLink */
	:: atomic { server == NONE && deposed ->
		server = OLD; resumed(0);
		two
	}

	/* go: trust.Trust.Began */
	:: atomic { server == DIALLING && validated ->
		validated = false;
		server = FOLLOWER;
		resumed(dialled);
		two
	}
	od
}

active proctype Ensemble() {
	do
	/* not ours */
	:: atomic { !isolated && pinged > 0 -> tells() }

	/* The leader handles what the follower has sent. Answers of an expired session find its end first. */
	/* not ours */
	:: atomic { !isolated && nempty(up) ->
		up?item;
		if
		:: item == syncing && sync == SENT && follows -> sync = DONE
		:: item == validate && server == DIALLING && follows -> validated = true
		:: item == report && !follows && !expired -> heard = 0
		:: item == syncing && sync == SENT && !follows && !expired -> executes()
		:: item == validate && server == DIALLING && !follows && !expired -> validated = true; heard = 0
		:: else -> skip
		fi;
		item = 0;
		if :: empty(up) -> tail = false :: else -> skip fi
	}

	/* The follower loses its leader, and leaves its clients when it finds out. */
	/* not ours */
	:: atomic { !isolated -> isolate() }
	/* not ours */
	:: atomic { isolated ->
		if :: server >= FOLLOWER -> hangUp() :: else -> skip fi;
		validated = false; isolated = false;
		if :: follows = false :: deposed -> follows = true fi
	}

	/*
	 * A quorum elects a new leader, which gives the session a whole new timeout. The deposed one
	 * does not know, and answers as before. Without a quorum it expires nothing.
	 */
	/* go: embedded.Follower.Depose */
	:: atomic { !expired ->
		deposed = true; heard = 0; follows = !isolated;
		if :: sync == AGREED -> younger(agreed, syncAge); sync = DONE :: else -> skip fi;
		if :: server == LEADER -> server = OLD :: else -> skip fi
	}

	/* go: embedded.Server.expire */
	:: atomic { !expired && heard >= T - DRIFT -> expired = true; heard = T; two }

	/* Time passes. The leader's next ping comes in time, at the last moment before all else. */
	/* not ours */
	:: atomic { true ->
		if :: sent < carried -> sent++ :: else -> sent = T fi; /* an older one renews nothing */
		if :: carried < SHARE -> carried++ :: else -> skip fi;
		if :: deposed && agreed < SHARE -> agreed++ :: else -> skip fi;
		if :: server == DIALLING -> older(dialled) :: else -> skip fi;
		if :: sync != NO -> older(syncAge) :: else -> skip fi;
		older(heard);
		if :: !isolated -> pinged++ :: else -> pinged = 0 fi;
		if :: pinged == HALF_TICK + LATE -> tells() :: else -> skip fi
	}
	od
}
