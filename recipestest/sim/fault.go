package sim

import (
	"fmt"
	"slices"
	"time"
)

// A Kind is a kind of fault.
type Kind string

// These faults hit one client.
const (
	Cut          Kind = "cut"               // its connections are reset, and new connections are refused
	Stall        Kind = "stall"             // no packets pass, and neither side notices
	LostRequests Kind = "lost requests"     // no packets pass towards the server
	LostReplies  Kind = "lost replies"      // no packets pass towards the client
	LoseReply    Kind = "lose a reply"      // the answers to one or two executed requests are lost with the connection
	Slow         Kind = "slow network"      // latency of up to a quarter of a session timeout
	Resume       Kind = "second resume"     // another connection takes the session over for some time
	Expiry       Kind = "expiry"            // the server ends the session by force
	Pause        Kind = "pause"             // the process stands still
	Isolation    Kind = "no leader"         // its server has lost its leader: it answers pings and nothing else
	Lag          Kind = "lag"               // its follower lags behind the leader, by up to a session timeout
	Stale        Kind = "isolated follower" // its follower has lost the leader, and still answers reads and pings
	Deposed      Kind = "deposed leader"    // its follower believes it is the leader, and also answers syncs
	LateReports  Kind = "late reports"      // its follower reports its session late, by up to a third of a timeout
	Refusal      Kind = "refusal"           // up to four requests are answered with an error that asks to try again

	TornRequest Kind = "torn request" // the connection ends in the middle of a request
	TornReply   Kind = "torn reply"   // the connection ends in the middle of a reply or an event

	// Death ends a process of [World.Processes] for ever. A successor starts after Fault.Lasts.
	Death Kind = "death"

	// CutTwice cuts its connection at one of its packets, and again soon after it has connected
	// again. It goes on at the leader first, and then at its follower, which lags. Most draws aim
	// at the moments after it has created a node or has set its watches again.
	CutTwice Kind = "cut twice"
)

// These faults hit the server.
const (
	Drop      Kind = "drop all connections"
	Restart   Kind = "restart"              // of the whole ensemble: connections are refused, sessions are kept
	Reap      Kind = "reap"                 // containers that have become empty are deleted
	Deletion  Kind = "operator"             // an ephemeral node below World.Path, of any client, is deleted
	Uproot    Kind = "operator deletes all" // all ephemeral nodes below World.Path, and then all directories that are empty and have no data
	FastClock Kind = "fast clock"           // sessions end early, by up to a twelfth of their timeout
)

var clientKinds = []Kind{Cut, Stall, LostRequests, LostReplies, LoseReply, Slow, Resume, Expiry, Pause, Isolation, Lag, CutTwice, Stale, Deposed, LateReports, Refusal, TornRequest, TornReply, Death}

// allKinds are the kinds to draw from. A kind that is listed several times is drawn more often.
var allKinds = append(slices.Clone(clientKinds), Deletion, Uproot, Drop, Restart, Reap, FastClock, CutTwice, CutTwice)

// lasting are the kinds for which Fault.Lasts matters.
var lasting = []Kind{Cut, Stall, LostRequests, LostReplies, Slow, Resume, Pause, Isolation, Lag, CutTwice, Restart, Stale, Deposed, LateReports, Refusal, FastClock, Death}

// A Fault happens to one client, or to the server.
type Fault struct {
	At     time.Duration // since the world began
	Kind   Kind
	Client int // the first client is 1; 0 is the server
	Lasts  time.Duration
	pick   int    // a random number for choices within the fault
	index  int    // in the schedule
	aimed  bool   // it waits for a client that holds something
	done   string // what it did
}

// String describes the fault in one line.
func (f Fault) String() string { return f.event().String() }

func (f Fault) event() event {
	text := string(f.Kind)
	if slices.Contains(lasting, f.Kind) {
		text += fmt.Sprintf(" for %v", f.Lasts.Round(time.Microsecond))
	}

	if f.done != "" {
		text += ": " + f.done
	}

	return event{f.At, f.victim(), text}
}

func (f Fault) victim() string {
	if f.Client == 0 {
		return "server"
	}
	return fmt.Sprintf("client %d", f.Client)
}
