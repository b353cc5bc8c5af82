package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// parse adds operations of a recipe. Each has a client, a kind and times (of the call, of its
// return, and until when something was certainly held). Then come a token (#), a transaction (@), a
// value (=), members (+), a write to the store with the time and the greatest token before it, and
// whatever else is special. Times are small numbers.
func (r *Round) parse(recipe, text string) {
	for op := range strings.SplitSeq(text, "; ") {
		words := strings.Fields(op)
		o := &Op{Recipe: recipe, Kind: words[1], ID: len(r.Ops) + 1, Outcome: OK}
		r.Ops = append(r.Ops, o)
		fmt.Sscan(words[0], &o.Client)
		if n, _ := fmt.Sscanf(words[2], "%d-%d-%d", &o.Call, &o.Return, &o.Held); n == 3 {
			o.Begun, o.Over = o.Return, o.Held+1
		}
		for _, word := range words[3:] {
			switch word[0] {
			case '#':
				fmt.Sscan(word[1:], &o.Token)
			case '@':
				fmt.Sscan(word[1:], &o.Zxid)
			case '=':
				o.Value = word[1:]
			case '+':
				o.Members = append(o.Members, word[1:])
			default:
				r.special(o, word)
			}
		}
	}
}

func (r *Round) special(o *Op, word string) {
	switch name, value, _ := strings.Cut(word, ":"); name {
	case "failed", "unknown":
		o.Outcome = Outcome(name)
	case "killed":
		o.Return, o.Outcome, o.Over = 0, "", 0
	case "over":
		fmt.Sscan(value, &o.Over)
	case "life":
		fmt.Sscan(value, &o.Life)
	case "writes", "refused":
		w := Write{Recipe: o.Recipe, Client: o.Client, ID: o.ID, Token: o.Token, Accepted: name == "writes"}
		fmt.Sscanf(value, "%d/%d", &w.At, &w.Highest)
		r.Writes = append(r.Writes, w)
	default:
		panic(word)
	}
}

// three enter a double barrier together.
const three = "0 enter 10-20-30 #1 =a +a +b +c; 1 enter 10-20-30 #1 =b +a +b +c; 2 enter 10-20-30 #1 =c +a +b +c"

// beside is what the rounds of some histories have beside their operations.
var beside = map[string]func(*Round){
	"lock: a write without a hold": func(r *Round) {
		r.Writes = append(r.Writes, Write{Recipe: "lock", ID: 99, At: 25, Accepted: true, Highest: 3})
	},
	"election: a leader that was deposed names an earlier one": func(r *Round) {
		r.Faults = []Fault{{Kind: "member deposed", From: 15, To: 23}}
	},
	"barrier: a leader that was deposed answers a wait": func(r *Round) {
		r.Faults = []Fault{{Kind: "partition-one-way", From: 15, To: 25}}
	},
	"a process did not work again": func(r *Round) { r.Broken = []string{"lock 0: prove: deadline exceeded"} },
}

// TestChecks judges histories that were written by hand. One with an empty text passes.
func TestChecks(t *testing.T) {
	for name, test := range map[string]struct{ history, fails string }{
		"lock: one after the other":                                        {"0 lock 10-20-30 #1; 1 lock 12-32-40 #2", ""},
		"lock: two holders":                                                {"0 lock 10-20-30 #1; 1 lock 12-29-40 #2", "two holders"},
		"lock: two holders, of which one was killed":                       {"0 lock 10-20-30 #1 over:0; 1 lock 12-29-40 #2", "two holders"},
		"lock: a killed holder has a successor":                            {"0 lock 10-20-30 #1 over:0; 1 lock 12-31-40 #2", ""},
		"lock: a grant that was lost before it was looked at":              {"0 lock 10-20-0 #1 over:60; 1 lock 12-29-40 #2", ""},
		"lock: tokens do not increase":                                     {"0 lock 10-20-30 #2; 1 lock 31-32-40 #1", "tokens do not increase"},
		"lock: tokens decrease from a contender to the next":               {"0 lock 10-20-30 #2; 1 lock 12-32-40 #1", "no order"},
		"lock: a holder is refused":                                        {"0 lock 10-20-30 #2 refused:25/3", "a holder was refused"},
		"lock: a holder that was paused is refused":                        {"0 lock 10-20-30 #2 refused:31/3", ""},
		"lock: a token is used again":                                      {"0 lock 10-20-30 #2 writes:25/0; 1 lock 12-32-40 #2 writes:35/2", "two holds have token 2"},
		"lock: the store accepts a smaller token":                          {"0 lock 10-20-30 #2 writes:25/3", "was accepted at"},
		"lock: a write without a hold":                                     {"0 lock 10-20-30 #2", "without a hold"},
		"lock: a late write is executed":                                   {"0 late 10-20", "given back has succeeded"},
		"lock: a late write is refused":                                    {"0 late 10-20 unknown", ""},
		"lock: guarded writes change their order":                          {"0 guarded 10-20 #5 @100; 1 guarded 10-20 #4 @101", "after one with a greater token"},
		"lock: a node is lent again":                                       {"0 lock 10-20-30 #1; 0 lock 12-32-40 #1", "no order"},
		"linger: a node is lent again":                                     {"0 lock 10-20-30 #1 writes:25/0; 0 lock 12-32-40 #1 writes:35/1; 0 lock 41-42-50 #1; 1 lock 13-52-60 #2", ""},
		"linger: a node is lent to two callers at once":                    {"0 lock 10-20-30 #1; 0 lock 12-29-40 #1", "two holders"},
		"linger: a node is lent while another client holds":                {"0 lock 10-20-30 #1; 1 lock 12-32-40 #2; 0 lock 12-39-50 #1", "two holders"},
		"linger: a node is lent after another client held":                 {"0 lock 10-20-30 #1; 1 lock 12-32-40 #2; 0 lock 12-42-50 #1", "no order"},
		"linger: two clients have one token":                               {"0 lock 10-20-30 #1; 2 lock 31-32-40 #1", "tokens do not increase"},
		"linger: a process has the token that it had before it was killed": {"0 lock 10-20-30 #1; 0 lock 31-32-40 #1 life:1", "tokens do not increase"},
		"rwlock: readers together":                                         {"0 rlock 10-20-30 #1; 1 rlock 10-21-31 #2", ""},
		"rwlock: a reader beside a writer":                                 {"0 lock 10-20-30 #1; 1 rlock 10-21-31 #2", "two holders"},
		"rwlock: a writer goes on as a reader":                             {"0 lock 10-20-30 #1; 0 downgrade 31-32-40 #1; 1 rlock 10-33-41 #2", ""},
		"rwlock: a writer beside one that goes on as a reader":             {"0 downgrade 31-32-40 #1; 1 lock 10-33-41 #2", "two holders"},
		"semaphore: two of two":                                            {"0 acquire 10-20-30 #1; 1 acquire 10-20-30 #2; 2 acquire 10-31-40 #3", ""},
		"semaphore: three of two":                                          {"0 acquire 10-20-30 #1; 1 acquire 10-20-30 #2; 2 acquire 10-29-40 #3", "3 hold at"},
		"election: two leaders":                                            {"0 campaign 10-20-30 #1; 1 campaign 10-29-40 #2", "two holders"},
		"election: the present leader is named":                            {"0 campaign 10-20-30 #1; 1 leader 19-25 #1", ""},
		"election: an earlier leader is named":                             {"0 campaign 10-20-30 #2; 1 leader 21-25 #1", "an earlier leader is named"},
		"election: a leader that was deposed names an earlier one":         {"0 campaign 10-20-30 #2; 1 leader 21-25 #1", ""},
		"election: no leader is named":                                     {"0 campaign 10-20-30 #2; 1 leader 21-25", "no leader is named"},
		"queue: each element comes out once":                               {"0 offer 10-20 +a +b; 1 take 15-25 +a; -1 drain 30-31 +b", ""},
		"queue: an element comes out twice":                                {"0 offer 10-20 +a; 1 take 15-25 +a; -1 drain 30-31 +a", "came out 2 times"},
		"queue: an element is acknowledged and comes out":                  {"0 offer 10-20 +a; 1 ack 15-25 =a; -1 drain 30-31 +a", "came out 2 times"},
		"queue: an element vanishes":                                       {"0 offer 10-20 +a", "have vanished"},
		"queue: an element vanishes with a process":                        {"0 offer 10-20 +a; 1 take 15-0 killed", ""},
		"queue: an acknowledgement has an unknown outcome":                 {"0 offer 10-20 +a; 1 ack 15-25 =a unknown", ""},
		"queue: an offer that has failed comes out":                        {"0 offer 10-20 +a failed; -1 drain 30-31 +a", "was not offered"},
		"queue: two reserve an element":                                    {"0 offer 10-20 +a; 0 reserve 21-22-30 #1 =a; 1 reserve 21-29-40 #2 =a; 1 ack 41-42 =a", "two holders"},
		"queue: the order changes":                                         {"0 offer 10-20 +a; 1 offer 21-22 +b; -1 drain 30-31 +b; -1 drain 32-33 +a", "came out before"},
		"barrier: a wait returns after the removal":                        {"0 set 10-20; 0 remove 30-40; 1 wait 21-31", ""},
		"barrier: a wait returns before the removal":                       {"0 set 10-20; 1 wait 21-29; 0 remove 30-40", "while the barrier was set"},
		"barrier: a leader that was deposed answers a wait":                {"0 set 10-20; 1 wait 21-29; 0 remove 30-40", ""},
		"barrier: a removal may have been executed":                        {"0 set 10-20; 0 remove 21-22 unknown; 1 wait 30-31", ""},
		"doublebarrier: all leave together":                                {three + "; 0 leave 31-40 =a; 1 leave 31-40 =b; 2 leave 31-40 =c", ""},
		"doublebarrier: one is missing":                                    {"0 enter 10-20-30 #1 =a +a +b; 1 enter 10-20-30 #1 =b +a +b", "is in a round with"},
		"doublebarrier: one leaves early":                                  {three + "; 0 leave 21-25 =a; 1 leave 31-40 =b; 2 leave 31-40 =c", "while one was inside"},
		"group: one after the other":                                       {"0 join 10-20-30 =a; 1 join 10-20-30 =b; 2 join 10-31-40 =a", ""},
		"group: two members have a name":                                   {"0 join 10-20-30 =a; 2 join 10-29-40 =a", "two holders"},
		"once: a run that fails, and one that does not":                    {"0 run 10-20-30 #1 =1 failed; 0 ran 10-31 =1 unknown; 1 run 10-40-50 #2 =1; 1 ran 10-60 =1; 0 do 61-62 =1", ""},
		"once: two runs at a time":                                         {"0 run 10-20-30 #1 =1; 1 run 10-29-50 #2 =1; 1 ran 10-60 =1", "two holders"},
		"once: two runs are recorded":                                      {"0 run 10-20-30 #1 =1; 0 ran 10-60 =1; 1 run 10-40-50 #2 =1; 1 ran 10-60 =1", "two runs are recorded"},
		"once: it runs when it is done":                                    {"0 run 10-20-30 #1 =1; 0 ran 10-39 =1; 1 run 10-40-50 #2 =1", "it runs after it was done"},
		"once: it is done without a run":                                   {"0 do 10-39 =1", "no run has ended"},
		"a process did not work again":                                     {"", "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Round{Clients: 3}
			recipe, _, _ := strings.Cut(name, ":")
			if test.history != "" {
				r.parse(recipe, test.history)
			}
			if add := beside[name]; add != nil {
				add(r)
			}
			v := judge(r)
			assert.Empty(t, v.Undecided)
			if test.fails == "" {
				assert.Empty(t, v.Failures)
				return
			}
			assert.Contains(t, v.text(), test.fails)
		})
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
