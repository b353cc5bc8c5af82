package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Deliveries is the history of a queue: what [sim.Bag] and [sim.Exclusive] check, and what was
// there when. Entries are told apart by their data.
type deliveries struct {
	world *sim.World
	bag   *sim.Bag
	grace time.Duration // before and after a call has failed, for what it may have reserved

	mu      sync.Mutex // protects what follows
	entries map[string]*delivery
	claims  []claim
	empties []seenEmpty
	unknown []span    // of calls that may have reserved any entry
	failed  int       // how many of them have failed
	asked   time.Time // when a call last returned that takes entries
}

// A span is a time during which something happened.
type span struct{ called, returned time.Time }

// A delivery is the history of an entry.
type delivery struct {
	name     string
	ids      []string
	offered  span // it ends never unless the offer has succeeded
	delay    time.Duration
	priority int
	touched  []*span // by consumers: taken for good, or reserved until the end of the span
	got      []span  // the calls that have returned it
	out      bool    // it was taken for certain
	held     *sim.Exclusive
	buried   bool // it was among the dead letters at the end
}

// A claim is a reservation that was handed over.
type claim struct {
	name    string
	token   int64
	attempt int
	free    bool // it may be no attempt
	got     span
	touched *span
}

type seenEmpty struct {
	span
	what string
}

var forever = time.Now().Add(1000 * time.Hour)

func newDeliveries(w *sim.World) *deliveries {
	d := &deliveries{world: w, bag: w.Bag("the queue"), grace: 6 * w.Timeout, entries: make(map[string]*delivery)}
	w.Check(d.check)
	return d
}

func since(called time.Time) span { return span{called, time.Now()} }

func (d *deliveries) entry(name string) *delivery {
	e := d.entries[name]
	if e == nil {
		e = &delivery{name: name, offered: span{returned: forever}}
		d.entries[name] = e
	}
	return e
}

// put notes that entries were offered, in a call that has returned just now.
func (d *deliveries) put(called time.Time, err error, delay time.Duration, priority int, ids []string, names ...string) {
	d.bag.Put(err, names...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, name := range names {
		e := d.entry(name)
		e.priority, e.delay, e.offered.called = priority, delay, called
		if err == nil {
			e.offered.returned = time.Now()
		}
		if i < len(ids) && ids[i] != "" {
			e.ids = append(e.ids, ids[i])
		}
	}
}

// took notes that entries were taken in a call that has returned err just now.
func (d *deliveries) took(called time.Time, err error, names ...string) {
	d.bag.Out(err, names...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		e := d.entry(name)
		e.touched = append(e.touched, &span{called, forever})
		if err == nil {
			e.got, e.out = append(e.got, since(called)), true
		}
	}
}

// acked notes that an entry which was reserved was acknowledged with that result.
func (d *deliveries) acked(name string, err error) {
	d.bag.Out(err, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(name)
	e.out = e.out || err == nil
}

// reserved notes a claim. It returns the time for which the entry is reserved, whose end isn't
// known yet.
func (d *deliveries) reserved(called time.Time, name string, token int64, attempt int) *span {
	d.bag.Seen(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, touched := d.entry(name), &span{called, forever}
	e.touched, e.got = append(e.touched, touched), append(e.got, since(called))
	d.claims = append(d.claims, claim{name: name, token: token, attempt: attempt, got: since(called), touched: touched})
	return touched
}

// released notes that a claim has ended, and that the entry can be taken after a delay.
func (d *deliveries) released(touched *span, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	touched.returned = time.Now().Add(delay)
}

// unfinished notes that a reservation may be no attempt, as its consumer has stopped meanwhile.
func (d *deliveries) unfinished(name string, token int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.claims {
		if c := &d.claims[i]; c.name == name && c.token == token {
			c.free = true
		}
	}
}

// reservedUnknown notes that a call to reserve has failed, after which it may hold any entry until
// its session is over.
func (d *deliveries) reservedUnknown(called time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed++
	d.unknown = append(d.unknown, span{trust.Later(called, time.Now().Add(-d.grace)), time.Now().Add(d.grace)})
}

// empty notes that a call has just said that there is nothing.
func (d *deliveries) empty(what string, called time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.empties = append(d.empties, seenEmpty{since(called), what})
}

// free returns the times in which the entry was there for certain, and could have been taken.
func (e *delivery) free() (all []span) {
	from := e.offered.returned
	if e.delay > 0 {
		from = from.Add(e.delay + time.Millisecond)
	}
	slices.SortFunc(e.touched, func(a, b *span) int { return a.called.Compare(b.called) })
	for _, t := range e.touched {
		all = append(all, span{from, t.called})
		from = trust.Later(from, t.returned)
	}
	return append(all, span{from, forever})
}

// covered reports whether some of the times follow each other from the beginning to the end of s.
func (s span) covered(by []span) bool {
	slices.SortFunc(by, func(a, b span) int { return a.called.Compare(b.called) })
	at := s.called
	for _, t := range by {
		if (t.called.Before(at) || at.Equal(s.called) && t.called.Equal(at)) && t.returned.After(at) {
			at = t.returned
		}
	}
	return at.After(s.returned)
}

// there reports whether the entry was there for the whole of s, and could have been taken. (If it
// is found among the dead letters in the end, it may have gone there although no call has returned
// it: a claim counts even if its call failed, and then the next consumer moves the entry.)
func (d *deliveries) there(e *delivery, s span) bool {
	buried := e.buried && slices.ContainsFunc(d.unknown, func(u span) bool { return u.called.Before(s.returned) })
	return s.covered(e.free()) && !buried
}

func (s span) overlaps(t span) bool {
	return !s.returned.Before(t.called) && !t.returned.Before(s.called)
}

func (d *deliveries) sorted() []*delivery {
	var all []*delivery
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		all = append(all, d.entries[name])
	}
	return all
}

func (d *deliveries) show(s span) string {
	at := func(t time.Time) time.Duration { return time.Until(t) + d.world.Now() }
	return fmt.Sprintf("%v to %v", at(s.called), at(s.returned))
}

func (d *deliveries) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	slices.SortFunc(d.claims, func(a, b claim) int { return cmp.Compare(a.token, b.token) })
	last := make(map[string]claim)
	for _, c := range d.claims {
		if before, ok := last[c.name]; ok {
			if c.attempt < before.attempt || c.attempt == before.attempt && !before.free {
				return fmt.Errorf("%s has attempt %d with token %d, after attempt %d with token %d",
					c.name, c.attempt, c.token, before.attempt, before.token)
			}
			before.touched.returned = trust.Earlier(before.touched.returned, c.got.returned)
		}
		last[c.name] = c
	}

	all := d.sorted()
	for _, empty := range d.empties {
		// What others say is checked at once (see [queueUser.nothing]).
		if empty.what != "Drained" || slices.ContainsFunc(d.unknown, empty.overlaps) {
			continue
		}
		for _, e := range all {
			if d.there(e, empty.span) {
				return fmt.Errorf("%s, from %s, says that there is nothing, and %s was there since %s",
					empty.what, d.show(empty.span), e.name, d.show(e.offered))
			}
		}
	}

	return nil
}

// exactAttempts returns an error unless attempts count the claims that were handed over, and
// nothing else. The claims are in order.
func (d *deliveries) exactAttempts() error {
	had, least := make(map[string]int), make(map[string]int)
	for _, c := range d.claims {
		had[c.name]++
		if c.attempt > had[c.name] || c.attempt < least[c.name]+1 {
			return fmt.Errorf("%s has attempt %d, and was handed over %d times", c.name, c.attempt, had[c.name])
		}
		if !c.free {
			least[c.name]++
		}
	}
	return nil
}

// isQueue returns an error if a call has returned an entry while more than overtakes entries that
// certainly come before it were there, or if a call has found nothing while one entry or another
// was there all the time. Nothing else can be wrong with a queue of entries that are told apart.
func (d *deliveries) isQueue(overtakes int) error {
	all := d.sorted()
	for _, later := range all {
		for _, got := range later.got {
			var before []string
			for _, e := range all {
				touched := slices.ContainsFunc(e.touched, func(s *span) bool { return s.overlaps(got) })
				if !touched && e.first(later) {
					before = append(before, fmt.Sprintf("%s %s, which was offered from %s", e.name, e.ids, d.show(e.offered)))
				}
			}
			if len(before) > overtakes {
				return fmt.Errorf("this is no queue: %s %s was taken from %s, before %s",
					later.name, later.ids, d.show(got), before)
			}
		}
	}

	// An entry was there when one with a higher number was.
	var free []span
	numbered := slices.DeleteFunc(slices.Clone(all), func(e *delivery) bool { return e.number() == "" })
	slices.SortFunc(numbered, func(a, b *delivery) int { return cmp.Compare(b.number(), a.number()) })
	there := forever
	for _, e := range numbered {
		there = trust.Earlier(there, e.offered.returned)
		e.offered.returned = there
	}
	for _, e := range all {
		free = append(free, e.free()...)
	}
	for _, empty := range d.empties {
		if !slices.ContainsFunc(d.unknown, empty.overlaps) && empty.covered(free) {
			return fmt.Errorf("this is no queue: %s, from %s, says that there is nothing, and something was always there: %v",
				empty.what, d.show(empty.span), free)
		}
	}
	return nil
}

// first reports whether e certainly comes before another entry of its priority. An entry with a
// delay goes to the tail when it is due, or later.
func (e *delivery) first(other *delivery) bool {
	switch {
	case e == other || e.priority != other.priority || e.delay > 0:
		return false
	case e.number() != "" && other.number() != "":
		return e.number() < other.number()
	}
	return e.offered.returned.Before(other.offered.called.Add(other.delay))
}

// number returns the number of an entry that has one ID and no delay, or an empty string.
func (e *delivery) number() string {
	if len(e.ids) != 1 || e.delay > 0 {
		return ""
	}
	return e.ids[0][len(e.ids[0])-10:]
}

// few is how many later entries may be taken before an earlier one, for however long that is left.
const few = 40

// overtaken returns for how long, at most, an entry was left after a later one was taken, while
// consumers asked.
func (d *deliveries) overtaken() (longest time.Duration, what string) {
	all := d.sorted()
	for _, e := range all {
		if len(e.got) == 0 {
			continue
		}
		left := e.got[0].called
		later := slices.DeleteFunc(slices.Clone(all), func(other *delivery) bool {
			return len(other.got) == 0 || other.delay > 0 || !e.first(other) || other.got[0].returned.After(left)
		})
		if len(later) < few {
			continue
		}
		for _, other := range later {
			if by := trust.Earlier(left, d.asked).Sub(other.got[0].returned); by > longest {
				longest, what = by, fmt.Sprintf("%s %s, taken from %s, was overtaken by %s %s, taken from %s",
					e.name, e.ids, d.show(e.got[0]), other.name, other.ids, d.show(other.got[0]))
			}
		}
	}
	return longest, what
}
