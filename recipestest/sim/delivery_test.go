package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

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
	lists   []listing
	unknown []span // of calls that may have reserved any entry
	slowest time.Duration
	asked   time.Time // when a call last returned that takes entries
}

// A span is a time during which something happened. If it is open it may happen later, too.
type span struct{ called, returned time.Time }

// A delivery is the history of an entry.
type delivery struct {
	name     string
	ids      []string
	offered  span // zero unless the offer has succeeded
	due      time.Time
	priority int
	touched  []span // by consumers: taken for good, or reserved until the end of the span
	taken    []span // for certain
	held     *sim.Exclusive
	buried   bool // it was among the dead letters at the end
}

// A claim is a reservation that was handed over.
type claim struct {
	name    string
	token   int64
	attempt int
	free    bool // it may be no attempt
}

type seenEmpty struct {
	span
	what string
}

type listing struct {
	span
	ids []string
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
		e = &delivery{name: name}
		d.entries[name] = e
	}
	return e
}

// put notes that entries were offered, in a call that has returned just now.
func (d *deliveries) put(called time.Time, err error, due time.Time, priority int, ids []string, names ...string) {
	d.bag.Put(err, names...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, name := range names {
		e := d.entry(name)
		e.priority = priority
		if err == nil {
			e.offered, e.due = since(called), due
		}
		if i < len(ids) && ids[i] != "" {
			e.ids = append(e.ids, ids[i])
		}
	}
}

// took notes that entries were removed in a call that has returned err just now.
func (d *deliveries) took(called time.Time, err error, names ...string) {
	d.bag.Out(err, names...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		e := d.entry(name)
		e.touched = append(e.touched, span{called, forever})
		if err == nil {
			e.taken = append(e.taken, since(called))
		}
	}
}

// buried notes that an entry was among the dead letters at the end.
func (d *deliveries) buried(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entry(name).buried = true
}

// reserved notes a claim. It returns a function that notes when the claim was certainly over, or
// that this is unknown.
func (d *deliveries) reserved(called time.Time, name string, token int64, attempt int) (over func(known bool, due time.Time)) {
	d.bag.Seen(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(name)
	i := len(e.touched)
	e.touched = append(e.touched, span{called, forever})
	d.claims = append(d.claims, claim{name: name, token: token, attempt: attempt})
	return func(known bool, due time.Time) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if known {
			e.touched[i].returned = latest(time.Now(), due)
		}
	}
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

// ahead notes that a call has succeeded that may have reserved entries for the next ones. The slower
// such a call is, the longer these stay reserved (for half a second at most).
func (d *deliveries) ahead(called time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slowest = max(d.slowest, time.Since(called))
	kept := max(d.world.Timeout/16, min(4*d.slowest, 500*time.Millisecond))
	d.unknown = append(d.unknown, span{called, time.Now().Add(kept)})
}

// reservedUnknown notes that a call to reserve has failed, after which it may hold any entry until
// its session is over.
func (d *deliveries) reservedUnknown(called time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unknown = append(d.unknown, span{latest(called, time.Now().Add(-d.grace)), time.Now().Add(d.grace)})
}

// empty notes that a call has just said that there is nothing.
func (d *deliveries) empty(what string, called time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.empties = append(d.empties, seenEmpty{since(called), what})
}

// waited notes that a call has just given up to wait, which should have been woken within an eighth
// of the session timeout.
func (d *deliveries) waited(what string, called time.Time) {
	d.empty(what, latest(called, time.Now().Add(-d.world.Timeout/8)))
	d.mu.Lock()
	defer d.mu.Unlock()
	last := &d.empties[len(d.empties)-1]
	if last.returned.Sub(called) < d.world.Timeout/8 {
		d.empties = d.empties[:len(d.empties)-1]
	}
}

func (d *deliveries) listed(called time.Time, ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists = append(d.lists, listing{since(called), ids})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// there reports whether the entry was there for the whole of s, and could have been taken.
func (e *delivery) there(s span) bool {
	if e.offered.returned.IsZero() || e.offered.returned.After(s.called) || e.due.After(s.called) {
		return false
	}
	return !slices.ContainsFunc(e.touched, s.overlaps)
}

// gone reports whether e, found among the dead letters, may have gone there by the end of s
// although no call has returned it. (A claim counts even if its call failed, and then the next
// consumer moves the entry.)
func (d *deliveries) gone(e *delivery, s span) bool {
	return e.buried && slices.ContainsFunc(d.unknown, func(u span) bool { return u.called.Before(s.returned) })
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

func (d *deliveries) at(t time.Time) time.Duration { return time.Until(t) + d.world.Now() }

func (d *deliveries) show(s span) string {
	return fmt.Sprintf("%v to %v", d.at(s.called), d.at(s.returned))
}

func (d *deliveries) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	all := d.sorted()
	for _, empty := range d.empties {
		if slices.ContainsFunc(d.unknown, empty.overlaps) {
			continue
		}
		for _, e := range all {
			if e.there(empty.span) && !d.gone(e, empty.span) {
				return fmt.Errorf("%s, from %s, says that there is nothing, and %s was there since %s",
					empty.what, d.show(empty.span), e.name, d.show(e.offered))
			}
		}
	}

	for _, l := range d.lists {
		// List can miss an entry that moves meanwhile, and a failed call may have moved any entry.
		if slices.ContainsFunc(d.unknown, l.overlaps) {
			continue
		}
		for _, e := range all {
			moved := slices.ContainsFunc(e.touched, func(s span) bool { return s.called.Before(l.returned) })
			if !moved && len(e.ids) == 1 && e.there(l.span) && !d.gone(e, l.span) && !slices.Contains(l.ids, e.ids[0]) {
				return fmt.Errorf("List, from %s, does not have %s, %s, which was there since %s: %s",
					d.show(l.span), e.name, e.ids[0], d.show(e.offered), l.ids)
			}
		}
	}

	slices.SortFunc(d.claims, func(a, b claim) int { return int(a.token - b.token) })
	last := make(map[string]claim)
	for _, c := range d.claims {
		if before, ok := last[c.name]; ok && (c.attempt < before.attempt || c.attempt == before.attempt && !before.free) {
			return fmt.Errorf("%s has attempt %d with token %d, after attempt %d with token %d",
				c.name, c.attempt, c.token, before.attempt, before.token)
		}
		last[c.name] = c
	}
	return nil
}

// exactAttempts returns an error unless attempts count the claims that were handed over, and
// nothing else.
func (d *deliveries) exactAttempts() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.claims, func(a, b claim) int { return int(a.token - b.token) })
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

// inOrder returns an error if an entry was taken before one that comes first: that was offered
// before it, or has a lower number. With another priority, the one that comes first must have been
// there when the call began that took the other.
//
// Entries that were offered once and taken once are those of a linearizable queue if this is so and
// empty answers are right.
func (d *deliveries) inOrder() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.sorted()
	for _, a := range all {
		if a.offered.returned.IsZero() {
			continue
		}
		for _, b := range all {
			if len(b.taken) == 0 || !a.first(b) {
				continue
			}
			taken := b.taken[0]
			late := !slices.ContainsFunc(a.touched, func(s span) bool { return !s.called.After(taken.returned) })
			if late && (a.priority == b.priority || a.offered.returned.Before(taken.called)) {
				return fmt.Errorf("%s %s was taken from %s, before %s %s, which was offered from %s",
					b.name, b.ids, d.show(taken), a.name, a.ids, d.show(a.offered))
			}
		}
	}
	return nil
}

// isQueue returns an error unless all offers, takes and empty answers have an order, each within
// its call, which is that of a queue. An entry is reserved before it is taken, and another call may
// then find nothing.
//
// If nothing has a priority or a delay, inOrder finds any two entries in the wrong order, and check
// finds an entry that was there while a call found nothing. Neither finds a call that found nothing
// while one entry or another was there all the time.
//
// It checks nothing if the outcome of a take is unknown. What that may have reserved was skipped.
func (d *deliveries) isQueue() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.sorted()
	slices.SortFunc(all, func(a, b *delivery) int { return cmp.Compare(a.number(), b.number()) })
	var ops []porcupine.Operation
	add := func(verb string, entry, place int, during span) {
		ops = append(ops, porcupine.Operation{
			Input: queueStep{verb, rune(entry + 1), place}, ClientId: len(ops),
			Call: during.called.UnixNano(), Return: during.returned.UnixNano(),
		})
	}

	places := 0
	for i, e := range all {
		switch {
		case len(e.touched) > len(e.taken):
			return nil
		case len(e.taken) == 0: // it was not offered, or it would have been taken in the end
			continue
		}
		place, offered := 0, e.offered
		if offered.returned.IsZero() {
			offered = span{time.Unix(0, 0), forever}
		}
		if e.number() != "" {
			places++
			place = places
		}
		add("offer", i, place, offered)
		add("reserve", i, 0, e.taken[0])
	}
	for _, empty := range d.empties {
		add("is empty", 0, 0, empty.span)
	}

	if sim.Search(oneQueue, ops) {
		return nil
	}
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "\n%s: %v", d.show(span{time.Unix(0, o.Call), time.Unix(0, o.Return)}), o.Input)
	}
	return fmt.Errorf("offers, takes and empty answers are not those of a queue:%s", b.String())
}

// A queueStep is an operation on an entry of a queue. The entries whose numbers are known have
// places, from 1 on, in which they must be offered.
type queueStep struct {
	verb  string
	entry rune
	place int
}

func (s queueStep) String() string {
	return fmt.Sprintf("%s %d in place %d", s.verb, s.entry, s.place)
}

// A queueState has the entries that are free, each a rune, and the last place that was offered.
type queueState struct {
	free string
	last int
}

var oneQueue = porcupine.Model{
	Init: func() any { return queueState{} },
	Step: func(state, input, _ any) (bool, any) {
		q, s := state.(queueState), input.(queueStep)
		switch s.verb {
		case "offer":
			inPlace := s.place == 0 || s.place == q.last+1
			return inPlace, queueState{q.free + string(s.entry), max(q.last, s.place)}
		case "reserve":
			rest, first := strings.CutPrefix(q.free, string(s.entry))
			return first, queueState{rest, q.last}
		}
		return q.free == "", q
	},
}

// first reports whether a certainly comes before b.
func (a *delivery) first(b *delivery) bool {
	switch {
	case a == b:
		return false
	case a.priority != b.priority:
		return a.priority < b.priority
	case len(a.ids) == 1 && len(b.ids) == 1:
		return sequence(a.ids[0]) < sequence(b.ids[0])
	}
	return !b.offered.called.IsZero() && a.offered.returned.Before(b.offered.called)
}

// number returns the number of an entry that has one ID, or an empty string.
func (a *delivery) number() string {
	if len(a.ids) != 1 {
		return ""
	}
	return sequence(a.ids[0])
}

func sequence(id string) string { return id[len(id)-10:] }

// ask notes that a call has just returned that takes entries.
func (d *deliveries) ask() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = time.Now()
}

// few is how many later entries may be taken before an earlier one, for however long that is left.
const few = 40

// overtaken returns for how long, at most, an entry that was due was left after a later one was
// taken, while consumers asked.
func (d *deliveries) overtaken() (longest time.Duration, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.sorted()
	for _, a := range all {
		if a.offered.returned.IsZero() || len(a.taken) == 0 || !a.due.IsZero() { // which goes to the tail
			continue
		}
		later := slices.DeleteFunc(slices.Clone(all), func(b *delivery) bool {
			return len(b.taken) == 0 || !b.due.IsZero() || !a.first(b) || b.taken[0].returned.After(a.taken[0].called)
		})
		if len(later) < few {
			continue
		}
		for _, b := range later {
			until := a.taken[0].called
			if d.asked.Before(until) {
				until = d.asked
			}
			since := b.taken[0].returned
			if a.due.After(since) {
				since = a.due
			}
			if by := until.Sub(since); by > longest {
				longest, what = by, fmt.Sprintf("%s %s, taken from %s, was overtaken by %s %s, taken from %s",
					a.name, a.ids, d.show(a.taken[0]), b.name, b.ids, d.show(b.taken[0]))
			}
		}
	}
	return longest, what
}

// One of two entries is always there while a call finds nothing, and neither is there for all of
// that call.
func TestEmptinessBetweenEntriesIsChecked(t *testing.T) {
	for name, offered := range map[string]int{"empty in between": 5, "never empty": 3} {
		t.Run(name, func(t *testing.T) {
			f := sim.Find(t, func(w *sim.World) {
				d := newDeliveries(w)
				during := func(from, to int) span {
					began := time.Now()
					return span{began.Add(time.Duration(from)), began.Add(time.Duration(to))}
				}
				add := func(name, id string, offered, taken span) {
					d.entries[name] = &delivery{
						ids: []string{id}, offered: offered,
						taken: []span{taken}, touched: []span{{taken.called, forever}},
					}
				}
				add("a", "0000000001", during(0, 1), during(4, 7))
				add("b", "0000000002", during(2, offered), during(8, 9))
				d.empties = []seenEmpty{{during(2, 6), "Poll"}}
				w.Check(d.isQueue)
			}, sim.WithFaults(), sim.WithSeeds(1))
			if offered == 5 {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, "are not those of a queue")
		})
	}
}
