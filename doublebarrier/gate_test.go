package doublebarrier_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// Some members die, perhaps the opener, before the others leave or while they wait to leave. The
// others do not wait for them: only if more die than look who is left do they wait for a third of a
// session timeout. Nodes of others do not count.
func TestDeadMembersDoNotDelayALeave(t *testing.T) {
	const n = 9
	for _, dead := range [][]int{{}, {0}, {0, 1, 2}, {8}, {0, 1, 2, 8}, {0, 1, 2, 3, 4, 5, 6, 7}, {2, 3, 4, 5, 6, 7, 8}} {
		for _, before := range []bool{true, false} {
			play(t, n, func(s *scene) {
				suite.Keep(s.t, s.operator, s.process()+"/foreign")
				entries := s.inside(n)
				limit := 2 * suite.Session(s.t, s.Clients[0]).Timeout() / 3
				die := func(now bool) {
					for _, i := range dead {
						if now {
							s.die(s.Clients[i])
						}
					}
				}
				die(before)
				began := time.Now()
				var all []*call
				for i, e := range entries {
					// Some members die while they wait as well, so no member sees how many are
					// left.
					if !slices.Contains(dead, i) || !before && i > 1 && i < n-1 && len(dead) == 7 {
						all = append(all, s.leave(e))
					}
				}
				if die(!before); before && len(dead) <= 4 {
					limit = 0
				}
				s.succeed(all[:min(2, len(all))]...)
				s.LessOrEqual(time.Since(began), limit, "%v before: %v", dead, before)
				s.delete(s.process() + "/foreign")
			})
		}
	}
}

// The opener's session ends as soon as the gate is open, before the others have learnt of it, and
// the server removes what it may. The round goes on. Then a member that comes removes the gate.
func TestRoundGoesOnWithoutItsOpener(t *testing.T) {
	play(t, 5, func(s *scene) {
		first, second := s.enter(0, 3), s.enter(1, 3)
		s.Links[0].Cut()
		s.Links[1].Cut()
		opened := s.enter(2, 3).must()
		s.die(s.Clients[2])
		s.Embedded().ReapContainers()
		s.False(suite.Exists(s.t, s.operator, s.path+"/ready"))
		s.enter(3, 3).fails(doublebarrier.ErrFull)
		next := s.enter(4, 1, doublebarrier.WithWaiting())
		s.Calm()
		left := s.leave(first)
		s.True(left.waits() && next.waits())
		s.finish(second)
		left.must()
		s.Greater(next.must().Token(), opened.Token())
		s.finish(next)
	})
}

// A removal of a gate arrives late. The path was removed meanwhile, and another round is under way,
// whose record has the same version.
func TestLateRemovalDoesNotHitALaterGate(t *testing.T) {
	for _, orphaned := range []bool{false, true} {
		sweep(t, 4, func(s *scene, step int) bool {
			first, opener := s.enter(0, 2), s.enter(1, 2)
			e := first.must()
			if orphaned {
				s.die(s.Clients[1])
			} else {
				s.leave(opener)
			}
			met := suite.At(s.Links[0], step, func() { s.Links[0].Delay(slow) })
			ctx, cancel := context.WithTimeout(s.t.Context(), slow/4)
			defer cancel()
			e.Leave(ctx)
			was := met()
			s.wipe(s.path)
			third, fourth := s.enter(2, 2), s.enter(3, 2)
			time.Sleep(5 * slow)
			_, stat := suite.Get(s.t, s.operator, s.process())
			s.Equal(third.must().Token(), stat.Mzxid, "step %d", step)
			s.finish(third, fourth)
			return was && step < 16
		})
	}
}

// Nodes of a gate are deleted by hand, or the record is replaced, during a round or after the death
// of all its members. The next round comes about, and nothing is left but the data of others.
func TestNextRoundComesAboutWhateverWasLostOfTheGate(t *testing.T) {
	for _, lost := range []string{"ready", "id", "ready, id", "record", "record, id", "record, ready, id", "process"} {
		for _, dead := range []bool{false, true} {
			playAs(t, fmt.Sprint(lost, dead), 4, func(s *scene) {
				s.keep("")
				entries := s.inside(2)
				for _, node := range suite.Children(s.t, s.operator, s.path) {
					if node == "ready" && strings.Contains(lost, "ready") || len(node) > 20 && strings.Contains(lost, "id") {
						s.delete(s.path + "/" + node)
					}
				}
				foreign := strings.HasPrefix(lost, "record")
				if foreign {
					s.set("foreign")
				}
				if dead { // but for the opener's session, whose nodes remain
					s.die(s.Clients[0])
					s.delete(s.process() + "/" + entries[1].entry.Node())
				} else if lost != "record, ready, id" { // or else they are as if they waited
					s.finish(entries...)
				}
				if lost == "record" && !dead {
					s.vanishes()
				}
				if lost == "process" {
					s.wipe(s.process())
				}
				s.finish(s.enter(2, 2), s.enter(3, 2))
				if !dead && lost == "record, ready, id" {
					s.finish(entries...)
				}
				s.Equal(foreign, strings.HasPrefix(s.record(), "foreign"), s.record())
				s.NotContains(s.record(), "member")
			})
		}
	}
}
