/*
 * Until when a client may trust its session, and when the leader expires it.
 *
 * Time is counted in twelfths of the session timeout. All times are ages: how long ago something
 * was sent, answered or heard of. So there are finitely many states, and runs have no end. The
 * comment before a command names the Go function that does it. docs/model.md says what was left
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
#define FOLLOWER 2
#define DIALLING 3 /* the follower, which has asked the leader to validate the session */
byte server = LEADER;
byte carried;         /* an age, as in the code */
byte sent = T;        /* the age of a request that the follower has answered at once */
byte dialled = T;

/* A request is under way or has been answered by the leader, and the client does not know yet. */
#define NO     0
#define SENT   1
#define DONE   2
byte sync, syncAge = T;

/* The leader. */
byte heard;    /* the age of the latest contact that it knows of */
bool expired;

/* The follower, and what is on its way from there to its leader, in order. */
mtype = { report, syncing, validate };
chan up = [4] of { mtype };
bool noted;     /* it has seen a contact that it has not reported */
byte pinged;    /* the age of the leader's latest ping */
bool isolated;  /* it has lost its leader, and does not know */
bool validated; /* the leader's validation is on its way back */
mtype item;
bool tail;      /* the last item on its way is a report: another one would say the same */

#define trusted (carried < SHARE)
#define two assert(!(expired && trusted)) /* the next contender holds, too */
#define older(age) age = (age < T -> age + 1 : T)

inline younger(age, other) {
	if :: other < age -> age = other :: else -> skip fi
}

/* The connected server sees a request of the session. */
inline contact() {
	if
	:: server == LEADER && !expired -> heard = 0
	:: server == FOLLOWER -> noted = true
	:: else -> skip
	fi
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

/* The follower answers a ping of the leader, and reports the contacts that it has seen. */
inline tells() {
	pinged = 0;
	if :: noted && !tail -> up!report; tail = true :: else -> skip fi;
	noted = false
}

active proctype Client() {
	do
	/* go: protocol.trust.answered */
	:: atomic { server == LEADER || server == FOLLOWER ->
		contact();
#ifdef ANY_ANSWER
		carried = 0;
#endif
		if :: sent = 0 :: skip fi;
		two
	}

	/* go: protocol.session.prove */
	:: atomic { (server == LEADER || server == FOLLOWER) && sync == NO ->
		contact();
		syncAge = 0;
		if
		:: server == LEADER -> sync = (expired -> NO : DONE)
		:: else -> sync = SENT; up!syncing; tail = false
		fi;
		if :: sync == NO -> syncAge = T :: else -> skip fi
	}

	/* go: protocol.session.answered */
	:: atomic { sync == DONE ->
		counts(syncAge); sync = NO; syncAge = T;
		two
	}

	/* go: protocol.connection.cut */
	:: atomic { server != NONE -> hangUp() }

	/* go: protocol.newConnection */
	:: atomic { server == NONE ->
		server = DIALLING; dialled = 0; up!validate; tail = false
	}
	/* go: protocol.newConnection */
	:: atomic { server == NONE && !expired ->
		server = LEADER; heard = 0; carried = 0; sent = T
	}

	/* go: protocol.trust.began */
	:: atomic { server == DIALLING && validated ->
		validated = false;
		server = FOLLOWER;
		younger(carried, dialled);
		dialled = T; sent = T;
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
		:: item == report && !expired -> heard = 0
		:: item == syncing && sync == SENT && !expired -> sync = DONE
		:: item == validate && !expired && server == DIALLING -> validated = true; heard = 0
		:: else -> skip
		fi;
		item = 0;
		if :: empty(up) -> tail = false :: else -> skip fi
	}

	/* The follower loses its leader, and leaves its clients when it finds out. */
	/* not ours */
	:: atomic { !isolated -> isolated = true }
	/* not ours */
	:: atomic { isolated ->
		if :: server >= FOLLOWER -> hangUp() :: else -> skip fi;
		do :: nempty(up) -> up?item :: else -> break od;
		item = 0; tail = false; noted = false; validated = false; pinged = 0; isolated = false
	}

	/* go: embedded.Server.expire */
	:: atomic { !expired && heard >= T - DRIFT -> expired = true; two }

	/* Time passes. The leader's next ping comes in time, at the last moment before all else. */
	/* not ours */
	:: atomic { true ->
		older(carried); older(sent);
		if :: server == DIALLING -> older(dialled) :: else -> skip fi;
		if :: sync != NO -> older(syncAge) :: else -> skip fi;
		older(heard);
		if :: !isolated -> pinged++ :: else -> pinged = 0 fi;
		if :: pinged == HALF_TICK + LATE -> tells() :: else -> skip fi
	}
	od
}
