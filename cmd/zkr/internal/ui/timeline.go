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

// An event is a change that the page shows in its timeline.
type event struct {
	Seq  int64      `json:"seq"`
	At   int64      `json:"at"`
	Kind string     `json:"kind"` // see below
	Row  string     `json:"row,omitempty"`
	Path string     `json:"path,omitempty"`
	From string     `json:"from,omitempty"` // the former holder
	To   string     `json:"to,omitempty"`   // the new holder
	End  survey.End `json:"end,omitempty"`  // how From ended, if known
	Wait int        `json:"wait,omitempty"` // the number of waiters now

	Reason string `json:"reason,omitempty"` // from the user of this page

	version int64
}

// The kinds of events.
const (
	acquired    = "acquired"
	handedOver  = "handed over"
	ended       = "ended" // nobody holds it now
	joined      = "joined"
	left        = "left"
	began       = "began" // a round of a double barrier
	over        = "over"  // the end of the round
	unreachable = "unreachable"
	reachable   = "reachable"
	// A deed of this page has its verb as its kind.
)

// happened returns the events at a path between two looks.
func happened(before, now *survey.Place, end func(node string) survey.End) (all []event) {
	for _, r := range []survey.Recipe{before.Recipe, now.Recipe} {
		if r == survey.Queue || r == survey.Hidden { // queues have rates instead; hidden places are unknown
			return nil
		}
	}

	// Compare holders by node and token, because names can be used again.
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

	// Once its last contender has gone, a place has no recipe any more.
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

// missingIn returns the holders and members of p that certainly don't hold in other. If a limit
// kept a contender out of other, it can still hold.
func missingIn(other, p *survey.Place) (all []survey.Contender) {
	type key struct {
		node  string
		token int64
	}

	there := make(map[key]survey.State)
	last := int64(0) // the last token that other has
	for _, c := range other.Contenders {
		there[key{c.Node, c.Token}] = c.State
		last = max(last, c.Token)
	}

	for _, c := range p.Contenders {
		state := there[key{c.Node, c.Token}]
		unread := state == "" && (other.Misses(c.Node) || other.More > 0 && c.Token > last)
		if c.State != survey.Waits && !unread && (state == "" || state == survey.Waits) {
			all = append(all, c)
		}
	}
	return all
}

// A timeline has the events of the last hour.
type timeline struct {
	events []event
	seq    int64
}

// add adds events and forgets the oldest events.
func (t *timeline) add(now time.Time, version int64, events ...event) {
	for _, e := range events {
		t.seq++
		e.Seq, e.At, e.version = t.seq, now.UnixMilli(), version
		t.events = append(t.events, e)
	}

	// Browsers can still read the old slice, so work on a clone.
	first := now.Add(-lasting).UnixMilli()
	t.events = slices.DeleteFunc(slices.Clone(t.events), func(e event) bool { return e.At < first })
	t.events = t.events[max(0, len(t.events)-maxEvents):]
}

// since returns the events after a version.
func (t *timeline) since(version int64) []event {
	i, _ := slices.BinarySearchFunc(t.events, version+1, func(e event, v int64) int { return int(e.version - v) })
	return t.events[i:]
}
