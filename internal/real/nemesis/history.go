package main

import (
	"fmt"
	"regexp"
	"time"
)

// A Stamp is a moment, in nanoseconds since the run began. All processes read the same monotonic
// clock of the machine.
//
// # What times mean
//
// A process may be stopped between any two of its instructions, so no stamp says when a request was
// executed. What the checks use is order alone. A call is stamped before it is made, and again
// after it has returned, so it was executed in between. A hold is certain at a stamp that its
// holder took before it asked the grant, and heard that it was held: a grant never comes back, so
// it was held from Begun to that stamp. A stop makes calls longer and certain holds shorter. It can
// hide a violation, and cannot make one up. A process that was killed has the stamps that it had
// printed, and its unfinished calls may have been executed at any later time.
type Stamp int64

func (s Stamp) String() string { return fmt.Sprintf("%.3fs", time.Duration(s).Seconds()) }

// forever is later than all stamps.
const forever Stamp = 1 << 62

// An Outcome is what became of a call.
type Outcome string

// A call that has not returned has no outcome. Its process was killed.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // and changed nothing
	Unknown Outcome = "unknown" // it may have been executed, or be executed later
)

// An Op is one operation of a process, and the hold that it began. A process prints it whenever it
// has changed. The last line counts.
type Op struct {
	Recipe  string   `json:"recipe"`
	Client  int      `json:"client"`
	Life    int      `json:"life"` // how often the process of the client was started
	ID      int      `json:"id"`   // among the operations of this life
	Kind    string   `json:"kind"`
	Value   string   `json:"value,omitempty"`
	Members []string `json:"members,omitempty"`
	Call    Stamp    `json:"call"`
	Return  Stamp    `json:"return,omitempty"` // 0 if it has not returned
	Outcome Outcome  `json:"outcome,omitempty"`
	Error   string   `json:"error,omitempty"`

	// Of a hold.
	Token int64 `json:"token,omitempty"`
	Begun Stamp `json:"begun,omitempty"` // it was granted before
	Held  Stamp `json:"held,omitempty"`  // held for certain from Begun to here; 0 if it never was
	Over  Stamp `json:"over,omitempty"`  // not held any more from here; 0 if its process was killed
	Zxid  int64 `json:"zxid,omitempty"`  // of a write to ZooKeeper that was guarded by the grant's Check
}

// certain reports whether the operation began a hold that was held for certain.
func (o *Op) certain() bool { return o.Held > 0 }

// returned returns when the call had returned, or forever if it is not known to have had its effect
// by then.
func (o *Op) returned() Stamp {
	if o.Outcome == "" || o.Outcome == Unknown {
		return forever
	}
	return o.Return
}

// over returns when the hold was over.
func (o *Op) over() Stamp {
	if o.Over == 0 {
		return forever
	}
	return o.Over
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

// A Write is one request to the fenced store, in the order in which the store has decided.
type Write struct {
	Recipe   string `json:"recipe"`
	Client   int    `json:"client"`
	Life     int    `json:"life"`
	ID       int    `json:"id"` // of the Op that held
	Token    int64  `json:"token"`
	At       Stamp  `json:"at"`
	Accepted bool   `json:"accepted"`
	Highest  int64  `json:"highest"` // the highest token before
}

// A Fault is what was done to the ensemble or to a process.
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

// A Round is a time of faults and the time after it, in which nothing is broken: every process does
// one more operation, which has to succeed, and rests. Nothing may be left behind then. So a round
// can be judged by itself.
type Round struct {
	Number  int      `json:"round"`
	Clients int      `json:"clients"` // for each recipe
	From    Stamp    `json:"from"`
	Healed  Stamp    `json:"healed"`
	To      Stamp    `json:"to"`
	Faults  []Fault  `json:"faults"`
	Ops     []*Op    `json:"ops"`
	Writes  []Write  `json:"writes"`
	Broken  []string `json:"broken,omitempty"` // what did not work after the faults, or was left behind
}

// ops returns the operations of a recipe, those of some kinds if any are given.
func (r *Round) ops(recipe string, kinds ...string) []*Op {
	var ops []*Op
	for _, o := range r.Ops {
		if o.Recipe != recipe {
			continue
		}
		if len(kinds) == 0 {
			ops = append(ops, o)
		}
		for _, kind := range kinds {
			if o.Kind == kind {
				ops = append(ops, o)
			}
		}
	}
	return ops
}

// deposing matches the faults by which members may get another leader while the old one still
// answers.
var deposing = regexp.MustCompile(`deposed$|^partition-|^pause-|^clients-split$|^members-half-frame$`)

// stale reports whether the answer to a read may be out of date although it began with a Sync. In
// ZooKeeper, as on the embedded server, a leader that was deposed answers a Sync by itself, until
// syncLimit ticks after the fault at most.
func (r *Round) stale(o *Op) bool {
	for _, f := range r.Faults {
		if deposing.MatchString(f.Kind) && f.From <= o.Return && o.Call <= f.To+Stamp(5*time.Second) {
			return true
		}
	}
	return false
}

// writes returns the writes of a recipe to the fenced store.
func (r *Round) writes(recipe string) []Write {
	var writes []Write
	for _, w := range r.Writes {
		if w.Recipe == recipe {
			writes = append(writes, w)
		}
	}
	return writes
}
