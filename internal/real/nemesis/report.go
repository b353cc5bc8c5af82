package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// A report counts what happens, and writes the histories to a file (one Round per line, in JSON).
type report struct {
	ok                                  map[string]int // operations that succeeded, by recipe
	ops, holds, writes, refused, faults int
	undecided                           []string
	histories                           *os.File // nil if nobody wants them
}

func newReport() *report { return &report{ok: make(map[string]int)} }

// add adds a round and the results of its checks.
func (r *report) add(round *Round, v Verdict) error {
	for _, o := range round.Ops {
		if o.Outcome == OK {
			r.ok[o.Recipe]++
		}
		if o.certain() {
			r.holds++
		}
	}
	for _, w := range round.Writes {
		if !w.Accepted {
			r.refused++
		}
	}
	r.ops += len(round.Ops)
	r.writes += len(round.Writes)
	r.faults += len(round.Faults)
	r.undecided = append(r.undecided, v.Undecided...)
	if r.histories == nil {
		return nil
	}
	return json.NewEncoder(r.histories).Encode(round)
}

// String describes the run in one line.
func (r *report) String() string {
	s := fmt.Sprintf("%d operations, %d holds, %d writes to the fenced store of which %d were refused, %d faults",
		r.ops, r.holds, r.writes, r.refused, r.faults)
	if len(r.undecided) > 0 {
		s += fmt.Sprintf("; %d histories were not decided in time: %s", len(r.undecided), strings.Join(r.undecided, ", "))
	}
	return s
}
