package doublebarrier_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// disagrees demands an error that says both numbers.
func (c *call) disagrees(ours, theirs int) {
	c.s.t.Helper()
	c.fails(doublebarrier.ErrSize)
	c.s.ErrorContains(c.err, fmt.Sprintf("%d here, %d at the others", ours, theirs))
}

func TestMemberThatDisagreesWithTheFirstIsRefused(t *testing.T) {
	for _, order := range [][]int{{2, 3}, {3, 2}, {3, 3, 2, 2, 7}, {4, 4, 4, 12}} {
		play(t, 5, func(s *scene) {
			n := order[0]
			var agree []*call
			for i, other := range order {
				if e := s.enter(i, other); other == n {
					agree = append(agree, e)
				} else {
					e.disagrees(other, n)
				}
				s.Len(s.members(), len(agree))
			}
			s.abandon(agree...)
			s.finish(s.inside(2)...) // the path is free for another number
		})
	}
}

// Two members that disagree come at once, perhaps to a path that had another number. One of them
// meets a fault at each of its packets. In the end at least one has noticed, and they do not wait
// for each other.
func TestDisagreementIsNoticedWhateverHappensMeanwhile(t *testing.T) {
	delay := func(_ *recipestest.Server, link *recipestest.Link, _ int64) {
		link.Delay(300 * time.Millisecond)
		time.AfterFunc(time.Second, func() { link.Delay(0) })
	}
	for _, f := range append(slices.Clone(suite.QuickFaults), suite.Fault{Name: "delay", Do: delay}) {
		for _, sizes := range [][]int{{2, 3, 0}, {3, 2, 0}, {4, 3, 3}} {
			t.Run(fmt.Sprint(f.Name, sizes), func(t *testing.T) {
				t.Parallel()
				sweep(t, 3, func(s *scene, step int) bool {
					if before := sizes[2]; before > 0 {
						s.finish(s.inside(before)...)
					}
					id := suite.Session(s.t, s.Clients[0]).ID()
					met := suite.At(s.Links[0], step, func() { f.Do(s.Server, s.Links[0], id) })
					first := s.begin(doublebarrier.New(s.Clients[0], s.path, sizes[0]).Enter)
					time.Sleep(10 * time.Millisecond)
					second := s.begin(doublebarrier.New(s.Clients[1], s.path, sizes[1]).Enter)
					time.Sleep(time.Minute)
					s.False(first.waits() && second.waits(), "step %d", step)
					for _, c := range []*call{first, second} {
						if !c.waits() {
							s.ErrorIs(c.err, doublebarrier.ErrSize, "step %d", step)
						}
					}
					s.abandon(first, second)
					return met()
				})
			})
		}
	}
}

// A member with three is in line between two with two, and does not know yet that it disagrees.
func TestMemberThatDisagreesIsNotCounted(t *testing.T) {
	play(t, 3, func(s *scene) {
		first := s.enter(0, 2)
		s.Links[1].StallReplies()
		three, second := s.enter(1, 3), s.enter(2, 2)
		s.Equal([]string{first.must().Node(), second.must().Node()}, second.entry.Members())
		suite.Blip(s.Links[1])
		three.fails(doublebarrier.ErrFull, protocol.ErrUncertain)
		s.finish(first, second)
	})
}
