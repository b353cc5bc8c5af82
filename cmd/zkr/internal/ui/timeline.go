package ui

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

const (
	lasting   = time.Hour
	maxEvents = 2_000
)

// An event is something that has happened, as the page shows it.
type event struct {
	Seq  int64      `json:"seq"`
	At   int64      `json:"at"`
	Kind string     `json:"kind"` // see below
	Row  string     `json:"row,omitempty"`
	Path string     `json:"path,omitempty"`
	From string     `json:"from,omitempty"` // who held before
	To   string     `json:"to,omitempty"`   // who holds now
	End  survey.End `json:"end,omitempty"`  // how From has ended, if that is known
	Wait int        `json:"wait,omitempty"` // how many wait now

	Reason string `json:"reason,omitempty"` // that this page was given

	version int64
}

// The kinds of events.
const (
	acquired    = "acquired"
	handedOver  = "handed over"
	ended       = "ended" // and none holds now
	joined      = "joined"
	left        = "left"
	began       = "began" // a round of a double barrier
	over        = "over"  // likewise
	unreachable = "unreachable"
	reachable   = "reachable"
	// and the verbs of a Deed, for what this page was asked to do
)

// happened returns what has happened at a path between two looks.
func happened(before, now *survey.Place, end func(node string) survey.End) (all []event) {
	for _, r := range []survey.Recipe{before.Recipe, now.Recipe} {
		if r == survey.Queue || r == survey.Hidden { // of what may not be read, nothing is known
			return nil
		}
	}

	gone, came := missingIn(now, before), missingIn(before, now)
	add := func(kind string, from, to *survey.Contender) {
		e := event{Kind: kind, Row: id(now.Path), Path: plain.Line(now.Path), Wait: len(now.Contenders) - now.Holders()}
		if from != nil {
			e.From, e.End = newContender(*from).Name, end(from.Node)
		}
		if to != nil {
			e.To = newContender(*to).Name
		}
		all = append(all, e)
	}

	recipe := now.Recipe
	if len(gone) > 0 && len(came) == 0 {
		recipe = before.Recipe
	}
	switch recipe {
	case survey.DoubleBarrier:
		if before.Holders() == 0 && len(came) > 0 {
			all = append(all, event{Kind: began, Row: id(now.Path), Path: plain.Line(now.Path)})
		}
		for _, c := range gone {
			if end(c.Node) == survey.Lost {
				add(left, &c, nil)
			}
		}
		if now.Holders() == 0 && len(gone) > 0 {
			all = append(all, event{Kind: over, Row: id(now.Path), Path: plain.Line(now.Path)})
		}
	case survey.Group:
		for _, c := range gone {
			add(left, &c, nil)
		}
		for _, c := range came {
			add(joined, nil, &c)
		}
	default:
		for i := range max(len(gone), len(came)) {
			switch {
			case i >= len(gone):
				add(acquired, nil, &came[i])
			case i >= len(came):
				add(ended, &gone[i], nil)
			default:
				add(handedOver, &gone[i], &came[i])
			}
		}
	}
	return all
}

// missingIn returns the contenders of p that hold, are inside or are members, and are known not to
// have done so in other. A contender of which other says nothing because of a limit may have.
func missingIn(other, p *survey.Place) (all []survey.Contender) {
	type key struct {
		node  string
		token int64
	}
	there := make(map[key]survey.State)
	first := int64(0) // transaction of what was not read, if there is such a thing
	for _, c := range other.Contenders {
		there[key{c.Node, c.Token}] = c.State
		first = max(first, c.Token)
	}
	for _, c := range p.Contenders {
		state := there[key{c.Node, c.Token}]
		unread := state == "" && (other.Misses(c.Node) || other.More > 0 && c.Token > first)
		if c.State != survey.Waits && !unread && (state == "" || state == survey.Waits) {
			all = append(all, c)
		}
	}
	return all
}

// A timeline is what has happened within the last hour.
type timeline struct {
	events []event
	seq    int64
}

// add adds events, and forgets the oldest ones.
func (t *timeline) add(now time.Time, version int64, events ...event) {
	for _, e := range events {
		t.seq++
		e.Seq, e.At, e.version = t.seq, now.UnixMilli(), version
		t.events = append(t.events, e)
	}

	first := now.Add(-lasting).UnixMilli()
	t.events = slices.DeleteFunc(slices.Clone(t.events), func(e event) bool { return e.At < first })
	t.events = t.events[max(0, len(t.events)-maxEvents):]
}

// since returns the events after a version.
func (t *timeline) since(version int64) []event {
	i, _ := slices.BinarySearchFunc(t.events, version+1, func(e event, v int64) int { return int(e.version - v) })
	return t.events[i:]
}
