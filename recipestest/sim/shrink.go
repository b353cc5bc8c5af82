package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The cost limits of shrinking. Replays differ, so a step that doesn't fail is tried again.
const (
	maxReplays    = 300
	shortReplays  = 10
	maxShrinkTime = 20 * time.Second
	maxTries      = 3
)

// A shrinker looks for a smaller plan that fails in the same way. It takes one step after the
// other, and keeps each step that still fails.
type shrinker struct {
	play    func(plan) *Failure
	plan    plan
	smaller *Failure // of plan
	replays int      // how many are left
	began   time.Time
}

// shrink replays the seed of f (found with the plan p), and notes in f which part is enough.
func (f *Failure) shrink(p plan, play func(plan) *Failure) {
	f.Enough, f.Only = f.Faults, p.String()
	// Name all faults and clients in the plan, so that steps can remove them.
	if p.faults == nil {
		p.faults = []spell{}
		for _, fault := range f.Faults {
			p.faults = append(p.faults, spell{fault.index, -1, -1})
		}
	}

	if p.clients == nil {
		for i := range f.clients {
			p.clients = append(p.clients, part{client: i + 1})
		}
	}

	s := &shrinker{play: play, plan: p, smaller: f, replays: maxReplays, began: time.Now()}
	if testing.Short() {
		s.replays = shortReplays
	}
	// A step can make others possible, so repeat them until the plan stays the same.
	for changed := true; changed; {
		before := s.plan.String()
		s.dropFaults()
		s.dropClients()
		s.dropTurns()
		s.roundTimes()
		changed = s.plan.String() != before
	}

	if s.smaller != f {
		f.Enough, f.Only = s.smaller.Faults, s.plan.String()
		f.Err, f.history = s.smaller.Err, s.smaller.history
	}
}

// fails plays p once. If it fails in the same way, fails returns the failure.
func (s *shrinker) fails(p plan) *Failure {
	if s.replays == 0 || time.Since(s.began) > maxShrinkTime {
		return nil
	}
	s.replays--
	if f := s.play(p); f != nil && kindOf(f.Err) == kindOf(s.smaller.Err) {
		return f
	}
	return nil
}

// try reports whether p fails in the same way. If so, it goes on from there.
func (s *shrinker) try(p plan, tries int) bool {
	for range tries {
		if f := s.fails(p); f != nil {
			s.plan, s.smaller = p, f
			return true
		}
	}
	return false
}

// tryClients is try for a plan in which clients do less. That must not be why it fails: without
// faults it must pass (or, if it needs no faults, without clients).
func (s *shrinker) tryClients(p plan) bool {
	nothing := plan{clients: p.clients, faults: []spell{}}
	if len(p.faults) == 0 {
		nothing.clients = []part{}
	}
	return s.fails(nothing) == nil && s.try(p, maxTries)
}

// dropFaults leaves out one fault after the other.
func (s *shrinker) dropFaults() {
	for _, f := range s.plan.faults {
		p := s.plan
		p.faults = slices.DeleteFunc(slices.Clone(p.faults), func(other spell) bool { return other.index == f.index })
		s.try(p, maxTries)
	}
}

// dropClients lets one client after the other do nothing.
func (s *shrinker) dropClients() {
	for _, c := range s.plan.clients {
		p := s.plan
		p.clients = slices.DeleteFunc(slices.Clone(p.clients), func(other part) bool { return other.client == c.client })
		s.tryClients(p)
	}
}

// dropTurns lets each client do as few turns as possible.
func (s *shrinker) dropTurns() {
	for i, c := range s.plan.clients {
		for turns := 1; turns < s.smaller.record.turns[c.name()]; turns++ {
			p := s.plan
			p.clients = slices.Clone(p.clients)
			p.clients[i].turns = turns
			if s.tryClients(p) {
				break
			}
		}
	}
}

// roundTimes makes faults shorter and makes them begin at round times.
func (s *shrinker) roundTimes() {
	for i, planned := range s.plan.faults {
		drawn := slices.IndexFunc(s.smaller.Faults, func(f Fault) bool { return f.index == planned.index })
		if drawn < 0 {
			continue
		}
		f := s.smaller.Faults[drawn]
		change := func(to func(*spell)) bool {
			p := s.plan
			p.faults = slices.Clone(p.faults)
			to(&p.faults[i])
			// Try once, because there are many such steps.
			return s.try(p, 1)
		}

		if slices.Contains(lasting, f.Kind) {
			for f.Lasts > time.Millisecond && change(func(p *spell) { p.lasts = f.Lasts / 2 }) {
				f.Lasts /= 2
			}
			for _, lasts := range rounder(f.Lasts) {
				if change(func(p *spell) { p.lasts = lasts }) {
					break
				}
			}
		}

		if f.aimed { // it waits for a client
			continue
		}
		for _, at := range rounder(f.At) {
			if change(func(p *spell) { p.at = at }) {
				break
			}
		}
	}
}

// rounder returns times that are rounder than d, roundest first.
func rounder(d time.Duration) (all []time.Duration) {
	for unit := time.Second; unit >= 100*time.Microsecond; unit /= 10 {
		if d%unit == 0 {
			break
		}
		if d > unit {
			all = append(all, d.Truncate(unit))
		}
		all = append(all, d.Truncate(unit)+unit)
	}
	return all
}

// kindOf returns what failures of one kind have in common: the first ten words, without paths and
// words with digits.
func kindOf(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	words := slices.DeleteFunc(strings.Fields(line), func(word string) bool { return strings.ContainsAny(word, "0123456789/") })
	return strings.Join(words[:min(len(words), 10)], " ")
}
