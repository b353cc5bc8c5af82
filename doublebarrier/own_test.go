package doublebarrier_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A member waits, and does not hear of what happens before its ctx ends. It says that it was not
// counted only where it knows that, and enters if it was.
func TestEnterIsUncertainUnlessItKnowsThatItWasNotCounted(t *testing.T) {
	type world struct {
		*scene
		node   string // of the member
		others []*call
	}
	counted := func(w *world) { w.others = append(w.others, w.enter(1, 2)); w.succeed(w.others...) }
	deleted := func(w *world) { w.delete(w.node) }
	change := func(w *world) { w.set(w.record()) }
	left := func(w *world) { w.finish(w.others...) }
	wiped := func(w *world) { w.wipe(w.path) }
	anew := func(w *world) { w.keep("") }
	lost := func(w *world) { w.loseGate() }
	slower := func(w *world) { w.Links[0].Delay(slow) } // than Enter waits
	heard := func(w *world) {                           // the member has heard of what was before
		w.Links[0].Delay(0)
		time.Sleep(slow)
		w.Links[0].Delay(time.Millisecond)
	}
	ended, unknown := []error{context.Canceled}, []error{context.Canceled, protocol.ErrUncertain}
	for _, test := range []struct {
		name  string
		what  []func(*world)
		wants []error
	}{
		{"counted", []func(*world){counted}, nil},
		{"counted and deleted", []func(*world){counted, deleted}, []error{protocol.ErrLost}},
		{"and the round is over", []func(*world){counted, deleted, left}, unknown},
		{"and the path is gone", []func(*world){counted, wiped}, unknown},
		{"and there is another path", []func(*world){counted, wiped, anew}, unknown},
		{"and all that tells of the gate is gone", []func(*world){counted, lost}, unknown},
		{"deleted", []func(*world){deleted}, ended},
		{"deleted, and a change", []func(*world){deleted, change}, ended},
		{"deleted, and two changes", []func(*world){deleted, change, change}, unknown},
		{"all changes but one were heard of", []func(*world){change, heard, change, heard, change, deleted}, ended},
		{"the first in line", []func(*world){change, change, change}, ended},
		{"a change, and the server is slow", []func(*world){change, slower}, unknown},
	} {
		for _, again := range []bool{false, true} { // there was a round before
			playAs(t, fmt.Sprint(test.name, again), 2, func(s *scene) {
				if again {
					s.finish(s.inside(2)...)
				}
				e := s.enter(0, 2)
				w := &world{s, s.process() + "/" + s.members()[0], nil}
				s.Links[0].Delay(time.Millisecond)
				for _, f := range test.what {
					f(w)
				}
				if e.cancel(); test.wants != nil {
					e.fails(test.wants...)
				} else {
					e.must()
					w.others = append(w.others, e)
				}
				s.abandon(w.others...)
			})
		}
	}
}

// A member that a gate might count is not created for a caller that has gone. One that another
// client deletes leaves with a loss, even before it hears of that.
func TestMemberThatHasGoneIsNeitherCreatedNorInside(t *testing.T) {
	play(t, 1, func(s *scene) {
		suite.Keep(s.t, s.operator, s.path)
		s.Links[0].Delay(slow)
		e := s.enter(0, 2)
		time.Sleep(3 * slow) // the line is created
		e.cancel()
		e.fails(context.Canceled)
		before := s.Links[0].Count(recipestest.OpCreate)
		time.Sleep(time.Minute)
		s.Equal(before, s.Links[0].Count(recipestest.OpCreate))

		e = s.enter(0, 1)
		s.delete(s.process() + "/" + e.must().Node())
		s.leave(e).fails(protocol.ErrLost, protocol.ErrNodeDeleted)
		s.finish(s.enter(0, 1))
	})
}

// As above, but the session of the member ends as well. Perhaps a request that is to find out about
// the lost node is refused.
func TestEnterThatHasLostASessionIsUncertain(t *testing.T) {
	ended, unknown := []error{context.Canceled}, []error{context.Canceled, protocol.ErrUncertain}
	denied := []error{zk.ErrNoAuth, protocol.ErrUncertain}
	refused := func(op recipestest.Op, node string) func(*scene, *call) {
		return func(s *scene, _ *call) {
			s.Links[0].Fail(op, s.path+node, noAuth, 1)
			s.expire(0)
		}
	}
	counted := func(s *scene) *call {
		s.Links[0].Cut()
		return s.enter(1, 2)
	}
	for name, test := range map[string]struct {
		script func(s *scene, e *call)
		wants  []error
	}{
		"expired":           {func(s *scene, _ *call) { s.expire(0) }, unknown},
		"the node is found": {func(s *scene, _ *call) { s.loseSession(0) }, ended},
		"two sessions, and the second node is found": {func(s *scene, _ *call) {
			s.expire(0)
			time.Sleep(slow)
			s.hold(0)
			s.loseSession(0)
		}, unknown},
		"counted": {func(s *scene, e *call) {
			other := counted(s)
			s.loseSession(0)
			e.wait()
			s.Embedded().SetClockRate(1)
			s.finish(other)
		}, []error{protocol.ErrLost}},
		"counted, and expired": {func(s *scene, e *call) {
			defer s.finish(counted(s))
			s.expire(0)
			s.Calm()
			e.wait()
		}, []error{protocol.ErrLost}},
		"counted, and all that tells of the gate is gone": {func(s *scene, _ *call) {
			other := counted(s)
			s.loseGate()
			s.loseSession(0)
			time.Sleep(slow)
			s.NotSubset(s.members(), other.must().Members(), "it has withdrawn")
			s.abandon(other)
		}, unknown},
		"its node may not be deleted": {func(s *scene, e *call) {
			s.Links[0].Fail(recipestest.OpMulti, s.process()+"/"+s.members()[0], noAuth, 1)
			s.loseSession(0)
			e.wait()
		}, denied},
		"no sync":   {refused(recipestest.OpSync, ""), denied},
		"no line":   {refused(recipestest.OpGetChildren, "/process"), denied},
		"no record": {refused(recipestest.OpGetData, "/process"), denied},
	} {
		playAs(t, name, 2, func(s *scene) {
			s.keep("")
			s.hold(0)
			e := s.enter(0, 2)
			test.script(s, e)
			time.Sleep(slow)
			e.cancel()
			e.fails(test.wants...)
		})
	}
}

// The server refuses to let a member read its gate, look for its node, or withdraw. Enter returns
// that, and tries again until it may. If a round counts the member meanwhile, it leaves at once.
func TestWithdrawalThatIsRefusedIsTriedAgain(t *testing.T) {
	for members, times := range []int{100, 1} {
		play(t, 2, func(s *scene) {
			e := s.enter(0, 2)
			s.Links[0].Fail(recipestest.OpGetData, s.process(), noAuth, times)
			s.Links[0].Fail(recipestest.OpExists, s.process()+"/"+s.members()[0], noAuth, 1)
			if members == 0 {
				s.set(s.record())
			} else {
				defer s.finish(s.enter(1, 2))
			}
			e.fails(zk.ErrNoAuth, protocol.ErrUncertain)
			s.NotErrorIs(e.err, protocol.ErrLost)
			s.Links[0].Fail(recipestest.OpGetData, s.process(), noAuth, 0)
			time.Sleep(20 * time.Second)
			s.Len(s.members(), members)
		})
	}
	play(t, 3, func(s *scene) {
		round := s.inside(2)
		s.Links[2].Fail(recipestest.OpMulti, "", noAuth, 100)
		e := s.enter(2, 2, doublebarrier.WithWaiting())
		e.cancel()
		e.fails(zk.ErrNoAuth, protocol.ErrUncertain)
		s.finish(round...)
		other := s.enter(1, 2)
		s.Links[2].Fail(recipestest.OpMulti, "", noAuth, 0)
		s.finish(other)
	})
}

// A member's node is deleted by hand: before it has written its number, when its wait has become
// long, and with the node above it, so that the numbers begin again. It joins again, under a name
// that no other node has had, not even one that it lost with a session.
func TestNameOfAMemberIsNeverUsedAgain(t *testing.T) {
	play(t, 2, func(s *scene) {
		s.keep("") // so there is no number yet
		g := s.gate(0, recipestest.OpMulti)
		g.Shut()
		e := s.enter(0, 2)
		names := map[string]bool{}
		for range 3 {
			s.delete(s.process() + "/" + s.members()[0])
			g.Open()
			time.Sleep(time.Minute)
			names[s.members()[0]] = true
		}
		s.wipe(s.process())
		time.Sleep(time.Minute)
		names[s.members()[0]] = true
		s.Len(names, 4)

		s.Links[0].Cut()
		first := s.enter(1, 2)
		s.expire(0)
		s.finish(first)
		s.wipe(s.process())
		s.Links[0].Heal()
		time.Sleep(time.Minute)
		s.finish(s.enter(1, 2), e)
		s.NotContains(names, e.entry.Node())
	})
}

// A member dies at each packet of the last one. If there is no gate by then, it is not counted.
func TestMemberThatDiesBeforeTheGateOpensIsNotCounted(t *testing.T) {
	t.Parallel()
	sweep(t, 2, func(s *scene, step int) bool {
		first, open := s.enter(1, 2), true
		met := suite.At(s.Links[0], step, func() {
			s.Links[1].Cut()
			s.expire(1)
			open, _, _ = s.conn.Exists(s.path + "/ready")
		})
		last := s.begin(doublebarrier.New(s.Clients[0], s.path, 2).Enter)
		time.Sleep(10 * slow)
		was := met()
		s.True(!was || open || last.waits(), "step %d", step)
		s.abandon(first, last)
		return was
	})
}
