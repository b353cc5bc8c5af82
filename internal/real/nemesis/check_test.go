package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A maker writes histories by hand. Times are small numbers.
type maker struct{ Round }

func (m *maker) op(recipe, kind string, client int, call, returned Stamp) *Op {
	o := &Op{Recipe: recipe, Kind: kind, Client: client, ID: len(m.Ops) + 1, Call: call, Return: returned, Outcome: OK}
	m.Ops = append(m.Ops, o)
	return o
}

// hold is an operation that held from its return to held, and was over one later.
func (m *maker) hold(recipe, kind string, client int, call, returned, held Stamp, token int64) *Op {
	o := m.op(recipe, kind, client, call, returned)
	o.Token, o.Begun, o.Held, o.Over = token, returned, held, held+1
	return o
}

func (m *maker) write(o *Op, at Stamp, accepted bool, highest int64) {
	m.Writes = append(m.Writes, Write{Recipe: o.Recipe, Client: o.Client, ID: o.ID, Token: o.Token, At: at, Accepted: accepted, Highest: highest})
}

func with(o *Op, change func(*Op)) *Op { change(o); return o }

func outcome(out Outcome) func(*Op)   { return func(o *Op) { o.Outcome = out } }
func members(all ...string) func(*Op) { return func(o *Op) { o.Members = all } }
func value(v string) func(*Op)        { return func(o *Op) { o.Value = v } }
func kill(o *Op)                      { o.Return, o.Outcome, o.Over = 0, "", 0 }

// TestChecks judges histories that were written by hand. One with an empty text passes.
func TestChecks(t *testing.T) {
	for name, test := range map[string]struct {
		history func(m *maker)
		fails   string
	}{
		"lock: one after the other": {func(m *maker) {
			m.hold("lock", "lock", 0, 10, 20, 30, 1)
			m.hold("lock", "lock", 1, 12, 32, 40, 2)
		}, ""},
		"lock: two holders": {func(m *maker) {
			m.hold("lock", "lock", 0, 10, 20, 30, 1)
			m.hold("lock", "lock", 1, 12, 29, 40, 2)
		}, "two holders"},
		"lock: two holders, of which one was killed": {func(m *maker) {
			with(m.hold("lock", "lock", 0, 10, 20, 30, 1), func(o *Op) { o.Over = 0 })
			m.hold("lock", "lock", 1, 12, 29, 40, 2)
		}, "two holders"},
		"lock: a killed holder has a successor": {func(m *maker) {
			with(m.hold("lock", "lock", 0, 10, 20, 30, 1), func(o *Op) { o.Over = 0 })
			m.hold("lock", "lock", 1, 12, 31, 40, 2)
		}, ""},
		"lock: a grant that was lost before it was looked at": {func(m *maker) {
			with(m.hold("lock", "lock", 0, 10, 20, 0, 1), func(o *Op) { o.Over = 60 })
			m.hold("lock", "lock", 1, 12, 29, 40, 2)
		}, ""},
		"lock: tokens do not increase": {func(m *maker) {
			m.hold("lock", "lock", 0, 10, 20, 30, 2)
			m.hold("lock", "lock", 1, 31, 32, 40, 1)
		}, "tokens do not increase"},
		"lock: tokens decrease from a contender to the next": {func(m *maker) {
			m.hold("lock", "lock", 0, 10, 20, 30, 2)
			m.hold("lock", "lock", 1, 12, 32, 40, 1)
		}, "no order"},
		"lock: a holder is refused": {func(m *maker) {
			o := m.hold("lock", "lock", 0, 10, 20, 30, 2)
			m.write(o, 25, false, 3)
		}, "a holder was refused"},
		"lock: a holder that was paused is refused": {func(m *maker) {
			o := m.hold("lock", "lock", 0, 10, 20, 30, 2)
			m.write(o, 31, false, 3)
		}, ""},
		"lock: a token is used again": {func(m *maker) {
			m.write(m.hold("lock", "lock", 0, 10, 20, 30, 2), 25, true, 0)
			m.write(m.hold("lock", "lock", 1, 12, 32, 40, 2), 35, true, 2)
		}, "two holds have token 2"},
		"lock: the store accepts a smaller token": {func(m *maker) {
			m.write(m.hold("lock", "lock", 0, 10, 20, 30, 2), 25, true, 3)
		}, "was accepted at"},
		"lock: a write without a hold": {func(m *maker) {
			m.hold("lock", "lock", 0, 10, 20, 30, 2)
			m.write(&Op{Recipe: "lock", ID: 99}, 25, true, 3)
		}, "without a hold"},
		"lock: a late write is executed": {func(m *maker) {
			m.op("lock", "late", 0, 10, 20)
		}, "given back has succeeded"},
		"lock: a late write is refused": {func(m *maker) {
			with(m.op("lock", "late", 0, 10, 20), outcome(Unknown))
		}, ""},
		"lock: guarded writes change their order": {func(m *maker) {
			with(m.op("lock", "guarded", 0, 10, 20), func(o *Op) { o.Token, o.Zxid = 5, 100 })
			with(m.op("lock", "guarded", 1, 10, 20), func(o *Op) { o.Token, o.Zxid = 4, 101 })
		}, "after one with a greater token"},
		"rwlock: readers together": {func(m *maker) {
			m.hold("rwlock", "rlock", 0, 10, 20, 30, 1)
			m.hold("rwlock", "rlock", 1, 10, 21, 31, 2)
		}, ""},
		"rwlock: a reader beside a writer": {func(m *maker) {
			m.hold("rwlock", "lock", 0, 10, 20, 30, 1)
			m.hold("rwlock", "rlock", 1, 10, 21, 31, 2)
		}, "two holders"},
		"rwlock: a writer goes on as a reader": {func(m *maker) {
			m.hold("rwlock", "lock", 0, 10, 20, 30, 1)
			m.hold("rwlock", "downgrade", 0, 31, 32, 40, 1)
			m.hold("rwlock", "rlock", 1, 10, 33, 41, 2)
		}, ""},
		"rwlock: a writer beside one that goes on as a reader": {func(m *maker) {
			m.hold("rwlock", "downgrade", 0, 31, 32, 40, 1)
			m.hold("rwlock", "lock", 1, 10, 33, 41, 2)
		}, "two holders"},
		"semaphore: two of two": {func(m *maker) {
			m.hold("semaphore", "acquire", 0, 10, 20, 30, 1)
			m.hold("semaphore", "acquire", 1, 10, 20, 30, 2)
			m.hold("semaphore", "acquire", 2, 10, 31, 40, 3)
		}, ""},
		"semaphore: three of two": {func(m *maker) {
			m.hold("semaphore", "acquire", 0, 10, 20, 30, 1)
			m.hold("semaphore", "acquire", 1, 10, 20, 30, 2)
			m.hold("semaphore", "acquire", 2, 10, 29, 40, 3)
		}, "3 hold at"},
		"election: two leaders": {func(m *maker) {
			m.hold("election", "campaign", 0, 10, 20, 30, 1)
			m.hold("election", "campaign", 1, 10, 29, 40, 2)
		}, "two holders"},
		"election: the present leader is named": {func(m *maker) {
			m.hold("election", "campaign", 0, 10, 20, 30, 1)
			with(m.op("election", "leader", 1, 19, 25), func(o *Op) { o.Token = 1 })
		}, ""},
		"election: an earlier leader is named": {func(m *maker) {
			m.hold("election", "campaign", 0, 10, 20, 30, 2)
			with(m.op("election", "leader", 1, 21, 25), func(o *Op) { o.Token = 1 })
		}, "an earlier leader is named"},
		"election: a leader that was deposed names an earlier one": {func(m *maker) {
			m.Faults = []Fault{{Kind: "member deposed", From: 15, To: 23}}
			m.hold("election", "campaign", 0, 10, 20, 30, 2)
			with(m.op("election", "leader", 1, 21, 25), func(o *Op) { o.Token = 1 })
		}, ""},
		"election: no leader is named": {func(m *maker) {
			m.hold("election", "campaign", 0, 10, 20, 30, 2)
			m.op("election", "leader", 1, 21, 25)
		}, "no leader is named"},
		"queue: each element comes out once": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a", "b"))
			with(m.op("queue", "take", 1, 15, 25), members("a"))
			with(m.op("queue", "drain", -1, 30, 31), members("b"))
		}, ""},
		"queue: an element comes out twice": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(m.op("queue", "take", 1, 15, 25), members("a"))
			with(m.op("queue", "drain", -1, 30, 31), members("a"))
		}, "came out 2 times"},
		"queue: an element is acknowledged and comes out": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(m.op("queue", "ack", 1, 15, 25), value("a"))
			with(m.op("queue", "drain", -1, 30, 31), members("a"))
		}, "came out 2 times"},
		"queue: an element vanishes": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
		}, "have vanished"},
		"queue: an element vanishes with a process": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(m.op("queue", "take", 1, 15, 0), kill)
		}, ""},
		"queue: an acknowledgement has an unknown outcome": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(with(m.op("queue", "ack", 1, 15, 25), value("a")), outcome(Unknown))
		}, ""},
		"queue: an offer that has failed comes out": {func(m *maker) {
			with(with(m.op("queue", "offer", 0, 10, 20), members("a")), outcome(Failed))
			with(m.op("queue", "drain", -1, 30, 31), members("a"))
		}, "was not offered"},
		"queue: two reserve an element": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(m.hold("queue", "reserve", 0, 21, 22, 30, 1), value("a"))
			with(m.hold("queue", "reserve", 1, 21, 29, 40, 2), value("a"))
			with(m.op("queue", "ack", 1, 41, 42), value("a"))
		}, "two holders"},
		"queue: the order changes": {func(m *maker) {
			with(m.op("queue", "offer", 0, 10, 20), members("a"))
			with(m.op("queue", "offer", 1, 21, 22), members("b"))
			with(m.op("queue", "drain", -1, 30, 31), members("b"))
			with(m.op("queue", "drain", -1, 32, 33), members("a"))
		}, "came out before"},
		"barrier: a wait returns after the removal": {func(m *maker) {
			m.op("barrier", "set", 0, 10, 20)
			m.op("barrier", "remove", 0, 30, 40)
			m.op("barrier", "wait", 1, 21, 31)
		}, ""},
		"barrier: a wait returns before the removal": {func(m *maker) {
			m.op("barrier", "set", 0, 10, 20)
			m.op("barrier", "wait", 1, 21, 29)
			m.op("barrier", "remove", 0, 30, 40)
		}, "while the barrier was set"},
		"barrier: a leader that was deposed answers a wait": {func(m *maker) {
			m.Faults = []Fault{{Kind: "partition-one-way", From: 15, To: 25}}
			m.op("barrier", "set", 0, 10, 20)
			m.op("barrier", "wait", 1, 21, 29)
			m.op("barrier", "remove", 0, 30, 40)
		}, ""},
		"barrier: a removal may have been executed": {func(m *maker) {
			m.op("barrier", "set", 0, 10, 20)
			with(m.op("barrier", "remove", 0, 21, 22), outcome(Unknown))
			m.op("barrier", "wait", 1, 30, 31)
		}, ""},
		"doublebarrier: all leave together": {func(m *maker) {
			m.round(3, 3)
		}, ""},
		"doublebarrier: one is missing": {func(m *maker) {
			m.round(2, 2)
		}, "is in a round with"},
		"doublebarrier: one leaves early": {func(m *maker) {
			m.round(3, 3)
			for _, o := range m.Ops {
				if o.Kind == "leave" {
					o.Return = 25
					break
				}
			}
		}, "while one was inside"},
		"group: one after the other": {func(m *maker) {
			with(m.hold("group", "join", 0, 10, 20, 30, 0), value("a"))
			with(m.hold("group", "join", 1, 10, 20, 30, 0), value("b"))
			with(m.hold("group", "join", 2, 10, 31, 40, 0), value("a"))
		}, ""},
		"group: two members have a name": {func(m *maker) {
			with(m.hold("group", "join", 0, 10, 20, 30, 0), value("a"))
			with(m.hold("group", "join", 2, 10, 29, 40, 0), value("a"))
		}, "two holders"},
		"once: a run that fails, and one that does not": {func(m *maker) {
			with(with(m.hold("once", "run", 0, 10, 20, 30, 1), value("1")), outcome(Failed))
			with(with(m.op("once", "ran", 0, 10, 31), value("1")), outcome(Unknown))
			with(m.hold("once", "run", 1, 10, 40, 50, 2), value("1"))
			with(m.op("once", "ran", 1, 10, 60), value("1"))
			with(m.op("once", "do", 0, 61, 62), value("1"))
		}, ""},
		"once: two runs at a time": {func(m *maker) {
			with(m.hold("once", "run", 0, 10, 20, 30, 1), value("1"))
			with(m.hold("once", "run", 1, 10, 29, 50, 2), value("1"))
			with(m.op("once", "ran", 1, 10, 60), value("1"))
		}, "two holders"},
		"once: two runs are recorded": {func(m *maker) {
			with(m.hold("once", "run", 0, 10, 20, 30, 1), value("1"))
			with(m.op("once", "ran", 0, 10, 60), value("1"))
			with(m.hold("once", "run", 1, 10, 40, 50, 2), value("1"))
			with(m.op("once", "ran", 1, 10, 60), value("1"))
		}, "two runs are recorded"},
		"once: it runs when it is done": {func(m *maker) {
			with(m.hold("once", "run", 0, 10, 20, 30, 1), value("1"))
			with(m.op("once", "ran", 0, 10, 39), value("1"))
			with(m.hold("once", "run", 1, 10, 40, 50, 2), value("1"))
		}, "it runs after it was done"},
		"once: it is done without a run": {func(m *maker) {
			with(m.op("once", "do", 0, 10, 39), value("1"))
		}, "no run has ended"},
		"a process did not work again": {func(m *maker) {
			m.Broken = []string{"lock 0: prove: deadline exceeded"}
		}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &maker{Round{Clients: 3}}
			test.history(m)
			v := judge(&m.Round)
			assert.Empty(t, v.Undecided)
			if test.fails == "" {
				assert.Empty(t, v.Failures)
				return
			}
			assert.Contains(t, v.text(), test.fails)
		})
	}
}

// round makes n members enter together, of which each names as many as named says, and leave.
func (m *maker) round(n, named int) {
	var all []string
	for i := range named {
		all = append(all, fmt.Sprint("m", i))
	}
	for i := range n {
		with(with(m.hold("doublebarrier", "enter", i, 10, 20, 30, 1), value(all[i])), members(all...))
		with(m.op("doublebarrier", "leave", i, 31, 40), value(all[i]))
	}
}

func TestEachRecipeHasAPlantedBug(t *testing.T) {
	for name := range recipes {
		found := false
		for _, b := range bugs {
			found = found || b.Recipe == name
		}
		assert.True(t, found, "no planted bug shows that the check of %s finds anything", name)
	}
}
