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
)

// happened returns what has happened at a path between two looks.
func happened(before, now *survey.Place, end func(node string) survey.End) (all []event) {
	if before == nil || now == nil || before.Recipe == survey.Queue || now.Recipe == survey.Queue {
		return nil
	}

	gone, came := missingIn(now, before), missingIn(before, now)
	add := func(kind string, from, to *survey.Contender) {
		e := event{Kind: kind, Row: id(now.Path), Path: plain.Line(now.Path)}
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

// missingIn returns the contenders of p that hold, are inside or are members, and are not among
// those of other.
func missingIn(other, p *survey.Place) (all []survey.Contender) {
	type key struct {
		node  string
		token int64
	}
	there := make(map[key]bool)
	for _, c := range other.Contenders {
		if c.State != survey.Waits {
			there[key{c.Node, c.Token}] = true
		}
	}
	for _, c := range p.Contenders {
		if c.State != survey.Waits && !there[key{c.Node, c.Token}] {
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
	keep := slices.IndexFunc(t.events, func(e event) bool { return e.At >= first })
	if keep < 0 {
		keep = len(t.events)
	}
	keep = max(keep, len(t.events)-maxEvents)
	if keep > 0 {
		t.events = slices.Clone(t.events[keep:])
	}
}

// since returns the events after a version.
func (t *timeline) since(version int64) []event {
	i, _ := slices.BinarySearchFunc(t.events, version+1, func(e event, v int64) int { return int(e.version - v) })
	return t.events[i:]
}
