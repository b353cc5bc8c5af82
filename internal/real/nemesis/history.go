package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// A Stamp is a time, in nanoseconds since the run began. All processes read the same monotonic
// clock of the machine.
// A process can be stopped between any two of its instructions, so no stamp says when a request was
// executed. The checks use only the order of stamps. A call is stamped before it is made and after
// it has returned, so it was executed in between. A holder takes a stamp and then asks the grant.
// If the answer is that it holds, the hold is certain from Begun to that stamp (a grant never comes
// back). A stop makes calls longer and certain holds shorter. So it can hide a violation but can't
// make one up. If a process was killed, its history has the stamps that it had printed. Its
// unfinished calls can be executed at any later time.
type Stamp int64

func (s Stamp) String() string { return fmt.Sprintf("%.3fs", time.Duration(s).Seconds()) }

// forever is later than all other stamps.
const forever Stamp = 1 << 62

// An Outcome says what a call has done.
type Outcome string

// If a call hasn't returned, it has no outcome (its process was killed).
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // it changed nothing
	Unknown Outcome = "unknown" // it may have been executed, or may be executed later
)

// An Op is one operation of a process, and the hold that it began. The process prints it whenever
// it has changed. The last line counts.
type Op struct {
	Recipe  string   `json:"recipe"`
	Client  int      `json:"client"`
	Life    int      `json:"life"` // how often the client's process was started
	ID      int      `json:"id"`   // among the operations of this life
	Kind    string   `json:"kind"`
	Value   string   `json:"value,omitempty"`
	Members []string `json:"members,omitempty"`
	Call    Stamp    `json:"call"`
	Return  Stamp    `json:"return,omitempty"` // 0 if it hasn't returned
	Outcome Outcome  `json:"outcome,omitempty"`
	Error   string   `json:"error,omitempty"`

	// These are for a hold.
	Token int64 `json:"token,omitempty"`
	Begun Stamp `json:"begun,omitempty"` // it was granted before this
	Held  Stamp `json:"held,omitempty"`  // it was certainly held from Begun to here; 0 if never
	Over  Stamp `json:"over,omitempty"`  // not held from here on; 0 if its process was killed
	Zxid  int64 `json:"zxid,omitempty"`  // of a write to ZooKeeper guarded by the grant's Check
}

// certain reports whether the operation began a hold that was certainly held.
func (o *Op) certain() bool { return o.Held > 0 }

// returned returns when the call had returned. If we don't know that it had its effect by then, it
// returns forever.
func (o *Op) returned() Stamp {
	if o.Outcome == "" || o.Outcome == Unknown {
		return forever
	}
	return o.Return
}

// over returns when the hold had ended.
func (o *Op) over() Stamp {
	if o.Over == 0 {
		return forever
	}
	return o.Over
}

// lentAgain reports whether o can have the node that p had. A lock that lingers lends its node to
// its callers one after the other, and they share its token.
func (o *Op) lentAgain(p *Op) bool {
	return o.Recipe == linger && o.Token == p.Token && o.Client == p.Client && o.Life == p.Life
}

// mayFollow reports whether o's token allows that o was granted after p.
func (o *Op) mayFollow(p *Op) bool {
	return o.Token == 0 || o.Token > p.Token || o.lentAgain(p)
}

func (o *Op) String() string {
	s := fmt.Sprintf("%s %d (life %d) %s", o.Recipe, o.Client, o.Life, o.Kind)
	if o.Value != "" {
		s += " " + o.Value
	}
	s += fmt.Sprintf(" from %v", o.Call)
	if o.Return > 0 {
		s += fmt.Sprintf(" to %v", o.Return)
	}

	if o.Outcome != OK && o.Outcome != "" {
		s += " " + string(o.Outcome)
	}
	if o.Token != 0 {
		s += fmt.Sprintf(", token %d", o.Token)
	}

	if o.certain() {
		s += fmt.Sprintf(", held from %v to %v", o.Begun, o.Held)
	}
	return s
}

// A Write is one request to the fenced store. Writes are in the order in which the store decided.
type Write struct {
	Recipe   string `json:"recipe"`
	Client   int    `json:"client"`
	Life     int    `json:"life"`
	ID       int    `json:"id"` // of the holder's Op
	Token    int64  `json:"token"`
	At       Stamp  `json:"at"`
	Accepted bool   `json:"accepted"`
	Highest  int64  `json:"highest"` // the highest token before this write
}

// A Fault is something done to the ensemble or to a process.
type Fault struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail,omitempty"`
	From   Stamp  `json:"from"`
	To     Stamp  `json:"to"`
	Error  string `json:"error,omitempty"`
}

func (f Fault) String() string {
	s := fmt.Sprintf("%v to %v: %s", f.From, f.To, f.Kind)
	if f.Detail != "" {
		s += " " + f.Detail
	}
	if f.Error != "" {
		s += ": " + f.Error
	}
	return s
}

// A Round is a time of faults and then a time in which nothing is broken. In the second time every
// process does one more operation (which must succeed) and rests. Nothing may be left behind then,
// so each round can be checked by itself.
type Round struct {
	Number  int      `json:"round"`
	Clients int      `json:"clients"` // for each recipe
	From    Stamp    `json:"from"`
	Healed  Stamp    `json:"healed"`
	To      Stamp    `json:"to"`
	Faults  []Fault  `json:"faults"`
	Ops     []*Op    `json:"ops"`
	Writes  []Write  `json:"writes"`
	Broken  []string `json:"broken,omitempty"` // operations that didn't work after the faults, and leftovers
}

// ops returns the operations of a recipe (only of these kinds, if any are given).
func (r *Round) ops(recipe string, kinds ...string) []*Op {
	var ops []*Op
	for _, o := range r.Ops {
		if o.Recipe == recipe && (len(kinds) == 0 || slices.Contains(kinds, o.Kind)) {
			ops = append(ops, o)
		}
	}
	return ops
}

// deposing matches faults after which members may have a new leader while the old leader still
// answers.
var deposing = regexp.MustCompile(`deposed$|^partition-|^pause-|^clients-split$|^members-half-frame$`)

// stale reports whether a read's answer can be out of date although it began with a Sync. In
// ZooKeeper (and on the embedded server) a deposed leader answers a Sync by itself, for at most
// syncLimit ticks after the fault.
func (r *Round) stale(o *Op) bool {
	for _, f := range r.Faults {
		// Five seconds are package cluster's syncLimit (10 ticks of 500 ms).
		if deposing.MatchString(f.Kind) && f.From <= o.Return && o.Call <= f.To+Stamp(5*time.Second) {
			return true
		}
	}
	return false
}

// linger is the recipe in which locks that linger and plain locks are in one line.
const linger = "linger"

// An opKey identifies an operation.
type opKey struct {
	recipe           string
	client, life, id int
}
