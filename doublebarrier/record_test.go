package doublebarrier_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Other clients have data in front of the record, or replace it when a gate opens. What they have
// written stays. It may leave no room for the gate in one request, which no server gets to see
// then.
func TestRecordKeepsTheDataOfOthers(t *testing.T) {
	play(t, 2, func(s *scene) {
		s.keep("others ")
		first, g := s.enter(0, 2), s.gate(1, recipestest.OpMulti)
		g.Shut()
		second := s.enter(1, 2)
		s.set("more " + s.record())
		g.Open()
		s.succeed(first, second)
		s.Contains(s.record(), "more others zkrecipes")
		s.finish(first, second)
		s.Regexp(`^more others .* rounds=1\n$`, s.record())
		s.set(string(make([]byte, recipe.MaxData-200)))
		s.enter(0, 1).fails(protocol.ErrTooLarge)
		s.Equal(1, s.Links[0].Count(recipestest.OpConnect))
	})
}

// The record is replaced during a round, so ready alone says which. A member that has not heard of
// its gate enters. One that waits for the next round does not ask again and again. Waiting shows
// the members, also if ready goes meanwhile.
func TestGateIsReadFromReadyWhenTheRecordIsLost(t *testing.T) {
	sweep(t, 4, func(s *scene, step int) bool {
		first := s.enter(1, 2)
		s.Links[1].Cut()
		second := s.enter(2, 2)
		s.set("foreign")
		s.Calm()
		s.EqualValues(1, first.must().Round())
		next := s.enter(3, 1, doublebarrier.WithWaiting())
		time.Sleep(10 * slow)
		s.Less(s.Links[3].Packets(), 100)

		met := suite.At(s.Links[0], step, func() { s.delete(s.path + "/ready") })
		members, err := doublebarrier.New(s.Clients[0], s.path, 1).Waiting(s.t.Context())
		s.NoError(err, "step %d", step)
		s.Len(slices.DeleteFunc(members, func(w doublebarrier.Waiter) bool { return w.N == 1 }), 2) // next may have joined
		was := met()
		s.finish(first, second)
		s.abandon(next)
		return was
	})
}

// A gate opens while a member is at any step of Enter, perhaps between reading the record and
// ready. That member leaves last, and clears the record.
func TestRecordIsReadAgainWhenAGateOpensMeanwhile(t *testing.T) {
	sweep(t, 2, func(s *scene, step int) bool {
		s.keep("foreign")
		met := suite.At(s.Links[0], step, func() {
			s.Links[0].Delay(slow)
			time.AfterFunc(slow, func() { s.Links[0].Delay(0) })
		})
		first := s.begin(doublebarrier.New(s.Clients[0], s.path, 2).Enter)
		time.Sleep(10 * time.Millisecond)
		left := s.leave(s.begin(doublebarrier.New(s.Clients[1], s.path, 2).Enter))
		s.finish(first)
		left.must()
		s.Regexp(`^foreign.*rounds=1\n$`, s.record(), "step %d", step)
		return met()
	})
}

// Another client has created ready when a member is about to open the gate. All who wait get to
// know that.
func TestForeignReadyIsRefused(t *testing.T) {
	play(t, 2, func(s *scene) {
		s.keep("")
		s.finish(s.inside(2)...)
		first, g := s.enter(0, 2), s.gate(1, recipestest.OpMulti)
		g.Shut()
		second := s.enter(1, 2)
		suite.Keep(s.t, s.operator, s.path+"/ready")
		g.Open()
		for _, c := range []*call{first, second} {
			c.fails(zk.ErrNodeExists)
			s.ErrorContains(c.err, "not a gate")
		}
		s.delete(s.path + "/ready")
	})
}

// A member has created process, and is slow to write its number there. A round begins meanwhile,
// whose record stays.
func TestLateNumberDoesNotReplaceARecord(t *testing.T) {
	play(t, 2, func(s *scene) {
		g := s.gate(0, recipestest.OpSetData)
		g.Shut()
		late, entry := s.enter(0, 1), s.enter(1, 1)
		before := s.record()
		g.Open()
		late.fails(doublebarrier.ErrFull)
		s.Equal(before, s.record())
		s.finish(entry)
	})
}

// A round has died but for its opener, which has left and is cut off, so ready stays. The server
// removes process, whose numbers begin again. Members that come then do not wait until those are as
// high as they were. Nor do they beside a record that was copied, or that was cut short.
func TestNumbersBeginAgain(t *testing.T) {
	play(t, 4, func(s *scene) {
		for range 9 {
			s.finish(s.inside(2)...)
		}
		left := s.leave(s.inside(2)[1])
		withGate := s.record()
		s.Links[1].Cut()
		s.die(s.Clients[0])
		s.Embedded().ReapContainers()
		const cut = "zkrecipes/doublebarrier n=2 from=1000 rou"
		for _, record := range []string{"none", withGate, cut} {
			if record != "none" {
				s.wipe(s.path)
				s.keep(record)
			}
			if record == cut {
				s.set(record) // or its numbers would not count anyway
			}
			first, second := s.enter(2, 2), s.enter(3, 2)
			s.Equal(record == "none" || record == withGate, first.must().Round() == 11)
			s.Regexp("-[12]-of-2-", first.entry.Node(), "it has not joined again and again")
			s.finish(first, second)
		}
		s.Calm()
		left.wait()
	})
}

// A gate has counted a member that is cut off, and all that told of it is deleted by hand. The
// member does not wait for ever, and no gate counts it twice: it joins again when another has
// agreed anew.
func TestMemberThatWasCountedByALostGateJoinsAgain(t *testing.T) {
	play(t, 3, func(s *scene) {
		waiting := s.enter(0, 2)
		s.Links[0].Cut()
		other := s.enter(1, 2)
		s.loseGate()
		s.abandon(s.enter(2, 2))
		s.Links[0].Heal()
		time.Sleep(time.Minute)
		s.NotSubset(s.members(), other.must().Members())
		s.finish(other)
		s.finish(s.enter(1, 2), waiting)
		s.NotContains(other.entry.Members(), waiting.entry.Node())
	})
}
