package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plan says which part of a seed's schedule is played. The zero value plays all of it. Its text
// (for -sim.only) looks like this:
//
//	clients=1:2,3 faults=0,4@1.5s+200ms
//
// Client 1 takes part until its second turn has ended, client 3 until its work is done, and other
// clients do nothing. Only the first and the fifth fault happen. The fifth begins after 1.5s and
// lasts for 200ms.
type plan struct {
	clients []part  // nil: all
	faults  []spell // nil: all; empty: none
}

// A part tells a client how many turns to take, or 0 for all its work.
type part struct{ client, turns int }

// A spell is a fault that happens, by its index. Negative times mean the drawn times.
type spell struct {
	index     int
	at, lasts time.Duration
}

func (p plan) String() string {
	var fields []string
	if p.clients != nil {
		fields = append(fields, "clients="+list(p.clients))
	}
	if p.faults != nil {
		fields = append(fields, "faults="+list(p.faults))
	}
	return strings.Join(fields, " ")
}

func list[T fmt.Stringer](all []T) string {
	var words []string
	for _, one := range all {
		words = append(words, one.String())
	}
	return strings.Join(words, ",")
}

func (p part) String() string {
	if p.turns == 0 {
		return strconv.Itoa(p.client)
	}
	return fmt.Sprintf("%d:%d", p.client, p.turns)
}

func (s spell) String() string {
	text := strconv.Itoa(s.index)
	if s.at >= 0 {
		text += "@" + s.at.String()
	}
	if s.lasts >= 0 {
		text += "+" + s.lasts.String()
	}
	return text
}

// parsePlan is the inverse of plan.String.
func parsePlan(text string) (p plan, err error) {
	for field := range strings.FieldsSeq(text) {
		name, words, _ := strings.Cut(field, "=")
		switch name {
		case "clients":
			p.clients, err = parseAll(words, parsePart)
		case "faults":
			p.faults, err = parseAll(words, parseSpell)
		default:
			err = fmt.Errorf("%q is neither clients nor faults", name)
		}
		if err != nil {
			return plan{}, err
		}
	}

	return p, nil
}

func parseAll[T any](words string, parse func(word string) (T, error)) ([]T, error) {
	// An empty list means none, and nil means all.
	all := []T{}
	for word := range strings.SplitSeq(words, ",") {
		if word == "" {
			continue
		}
		one, err := parse(word)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}

	return all, nil
}

func parsePart(word string) (p part, err error) {
	client, turns, limited := strings.Cut(word, ":")
	if p.client, err = strconv.Atoi(client); err == nil && limited {
		p.turns, err = strconv.Atoi(turns)
	}
	return p, err
}

func parseSpell(word string) (s spell, err error) {
	s.at, s.lasts = -1, -1
	word, lasts, hasLasts := strings.Cut(word, "+")
	index, at, hasAt := strings.Cut(word, "@")
	if s.index, err = strconv.Atoi(index); err == nil && hasAt {
		s.at, err = time.ParseDuration(at)
	}
	if err == nil && hasLasts {
		s.lasts, err = time.ParseDuration(lasts)
	}
	return s, err
}

func (p part) name() string { return fmt.Sprintf("client %d", p.client) }

// has reports whether the client of that name does anything.
func (p plan) has(name string) bool {
	return p.clients == nil || slices.ContainsFunc(p.clients, func(c part) bool { return c.name() == name })
}

// turns returns how many turns the client of that name has (0 if there is no limit).
func (p plan) turns(name string) int {
	for _, c := range p.clients {
		if c.name() == name {
			return c.turns
		}
	}
	return 0
}

// choose returns the faults that happen, with their times.
func (p plan) choose(all []Fault) []Fault {
	if p.faults == nil {
		return all
	}
	var chosen []Fault
	for _, s := range p.faults {
		i := slices.IndexFunc(all, func(f Fault) bool { return f.index == s.index })
		if i < 0 {
			continue
		}
		f := all[i]
		if s.at >= 0 {
			f.At = s.at
		}
		if s.lasts >= 0 {
			f.Lasts = s.lasts
		}
		chosen = append(chosen, f)
	}

	// Shrinking moves faults.
	slices.SortStableFunc(chosen, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return chosen
}
