package doublebarrier_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// hostData has bytes that no terminal should see.
func hostData(i int) []byte { return fmt.Appendf(nil, "host-%d\x00\n\x1b[2J\xff", i) }

// waiting returns what Waiting shows an operator who does not know n.
func (s *scene) waiting() []doublebarrier.Waiter {
	s.t.Helper()
	all, err := doublebarrier.New(s.operator, s.path, 1).Waiting(s.t.Context())
	s.NoError(err)
	return all
}

func TestWaitingShowsWhoHasComeAndWhoIsInside(t *testing.T) {
	play(t, 3, func(s *scene) {
		for round := range int64(2) {
			var all []*call
			for i := range s.Clients {
				seen := s.waiting()
				s.Len(seen, i)
				for j, w := range seen {
					_, stat := suite.Get(s.t, s.operator, s.process()+"/"+w.Node)
					s.Equal(doublebarrier.Waiter{
						Node: w.Node, Session: suite.Session(s.t, s.Clients[j]).ID(), Data: hostData(j),
						Since: time.UnixMilli(stat.Ctime), Round: round + 1, N: 3,
					}, w)
				}
				all = append(all, s.enter(i, 3, doublebarrier.WithData(hostData(i))))
			}

			left := s.leave(all[1])
			seen := s.waiting()
			s.Len(seen, 2)
			for i, c := range []*call{all[0], all[2]} {
				s.Equal(c.must().Node(), seen[i].Node)
				s.Equal([]any{true, round + 1}, []any{seen[i].Inside, seen[i].Round})
			}
			s.finish(all[0], all[2])
			left.must()
		}
	})
}

// Between any two requests of Waiting, a second member comes, and both are let in. Waiting shows
// what was before or after that.
func TestWaitingIsOfOneMoment(t *testing.T) {
	sweep(t, 3, func(s *scene, step int) bool {
		first, second := s.enter(1, 2), (*call)(nil)
		met := suite.At(s.Links[0], step, func() {
			second = s.begin(doublebarrier.New(s.Clients[2], s.path, 2).Enter)
			second.wait()
			first.wait()
		})
		seen, err := doublebarrier.New(s.Clients[0], s.path, 2).Waiting(s.t.Context())
		s.NoError(err)
		was := met()
		s.NotEmpty(seen, "step %d", step)
		for _, w := range seen {
			s.Equal(len(seen) == 2, w.Inside, "step %d", step)
		}
		if !was {
			second = s.enter(2, 2)
		}
		s.finish(first, second)
		return was
	})
}

// Nodes of others are not members, and a member that goes while it is read is left out.
func TestWaitingLeavesOutWhatIsNoMember(t *testing.T) {
	play(t, 3, func(s *scene) {
		suite.Keep(s.t, s.operator, s.process()+"/foreign")
		stays, goes := s.enter(1, 3), s.enter(2, 3)
		const listed = 6 // packets of the Sync, of a read and of the listing
		stop := s.Links[0].At(listed, func() { s.Links[0].Delay(slow); goes.cancel() })
		seen, err := doublebarrier.New(s.Clients[0], s.path, 1).Waiting(s.t.Context())
		s.NoError(err)
		s.Len(seen, 1)
		s.False(stop())
		goes.fails(context.Canceled)
		s.abandon(stays)
		s.delete(s.process() + "/foreign")
	})
}
