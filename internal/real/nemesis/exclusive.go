package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// errUndecided is returned by a check that would take too long.
var errUndecided = errors.New("porcupine has not decided in time")

// porcupineLimit is how long porcupine may search the history of one recipe in one round.
const porcupineLimit = time.Minute

// exclusive looks for an order of all grants and their ends, each within its time, with one holder
// at a time and increasing tokens. If there is none, it returns an error.
func exclusive(holds []*Op) error {
	// Pairs are cheap to compare and make better messages, so porcupine comes second.
	if err := alone(holds, func(a, b *Op) bool { return true }); err != nil {
		return err
	}

	var moves []porcupine.Operation
	add := func(m move, from, to Stamp) {
		moves = append(moves, porcupine.Operation{Input: m, Call: int64(from), Return: int64(to), ClientId: len(moves)})
	}
	// A hold becomes two operations. Its grant was before Begun, and its end was after the last
	// certain stamp.
	for _, o := range holds {
		if o.Begun > 0 {
			add(move{true, o}, o.Call, o.Begun)
			add(move{false, o}, max(o.Call, o.Held), o.over())
		}
	}

	return linear(oneAtATime, moves, "there is no order with one holder at a time and increasing tokens")
}

// linear returns an error with this text if porcupine finds no order.
func linear(m porcupine.Model, ops []porcupine.Operation, text string) error {
	switch porcupine.CheckOperationsTimeout(m, ops, porcupineLimit) {
	case porcupine.Illegal:
		return errors.New(text)
	case porcupine.Unknown:
		return errUndecided
	}
	return nil
}

// A move is a grant, or the end of a grant.
type move struct {
	granted bool
	hold    *Op
}

// A holding is a state of the lock.
type holding struct {
	hold *Op // nil if it's free
	last *Op // the latest hold; nil if there was none yet
}

var oneAtATime = porcupine.Model{
	Init: func() any { return holding{} },
	Step: func(state, input, _ any) (bool, any) {
		s, m := state.(holding), input.(move)
		if m.granted {
			return s.hold == nil && (s.last == nil || m.hold.mayFollow(s.last)), holding{m.hold, m.hold}
		}
		return s.hold == m.hold, holding{nil, s.last}
	},
}

// alone compares all pairs of holds that exclude each other. They must not overlap. If one was
// granted before the other was asked for, its token must be smaller (or the same, if a lock that
// lingers has lent its node again).
func alone(holds []*Op, excludes func(a, b *Op) bool) error {
	holds = slices.DeleteFunc(slices.Clone(holds), func(o *Op) bool { return !o.certain() })
	slices.SortFunc(holds, func(a, b *Op) int { return cmp.Compare(a.Begun, b.Begun) })
	for i, b := range holds {
		for _, a := range holds[:i] {
			switch {
			case !excludes(a, b):
			case b.Begun < a.Held:
				return fmt.Errorf("two holders at %v:\n  %v\n  %v", b.Begun, a, b)
			case a.Begun < b.Call && !b.mayFollow(a):
				return fmt.Errorf("tokens do not increase:\n  %v\n  %v", a, b)
			}
		}
	}

	return nil
}

// atMost returns an error if certainly more than n hold at a time. If so, that's true when one of
// the holds begins.
func atMost(n int, holds []*Op) error {
	for _, o := range holds {
		if !o.certain() {
			continue
		}
		text, count := "", 0
		for _, other := range holds {
			if other.certain() && other.Begun <= o.Begun && other.Held > o.Begun {
				count++
				text += "\n  " + other.String()
			}
		}
		if count > n {
			return fmt.Errorf("%d hold at %v, and %d may:%s", count, o.Begun, n, text)
		}
	}

	return nil
}

// fenced checks a recipe's writes to the fenced store. If a holder certainly holds before and after
// the answer, the store must not refuse it. Accepted tokens must not decrease, and each token
// belongs to one hold (or to several that had the same node one after the other).
func fenced(r *Round, recipe string, holds []*Op) error {
	byKey := make(map[opKey]*Op)
	for _, o := range holds {
		byKey[opKey{o.Recipe, o.Client, o.Life, o.ID}] = o
	}

	var highest int64
	owners := make(map[int64]*Op)
	for _, w := range r.Writes {
		o := byKey[opKey{w.Recipe, w.Client, w.Life, w.ID}]
		switch {
		case w.Recipe != recipe:
			continue
		case o == nil:
			return fmt.Errorf("a write without a hold: %+v", w)
		case !w.Accepted:
			// A paused holder may be refused. Only a holder that certainly holds must not be.
			if o.certain() && o.Begun <= w.At && w.At <= o.Held {
				return fmt.Errorf("a holder was refused at %v, as token %d had written before:\n  %v", w.At, w.Highest, o)
			}
			continue
		case w.Token < highest || w.Token < w.Highest:
			return fmt.Errorf("a write with token %d was accepted at %v after one with token %d", w.Token, w.At, max(highest, w.Highest))
		case owners[w.Token] != nil && owners[w.Token] != o && !o.lentAgain(owners[w.Token]):
			return fmt.Errorf("two holds have token %d:\n  %v\n  %v", w.Token, owners[w.Token], o)
		}
		highest = w.Token
		owners[w.Token] = o
	}

	return nil
}

// guardedInOrder checks the writes to ZooKeeper that a Check guarded. Their tokens must not
// decrease in the servers' order, and no write of a released lease may succeed.
func guardedInOrder(ops []*Op) error {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *Op) bool { return o.Outcome != OK })
	slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Zxid, b.Zxid) })
	for i, o := range ops {
		if o.Kind == "late" {
			return fmt.Errorf("a write with the Check of a lease that was given back has succeeded:\n  %v", o)
		}
		if i > 0 && o.Token < ops[i-1].Token {
			return fmt.Errorf("a guarded write was executed after one with a greater token:\n  %v\n  %v", ops[i-1], o)
		}
	}
	return nil
}
