package doublebarrier_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestAllEnterAndLeaveTogether(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, n := range []int{1, 2, 7} {
			path := srv.Root(t) + "/deep/down"
			var all []*doublebarrier.Barrier
			var sessions []*recipe.Session
			for range n {
				c := srv.Client(t)
				all = append(all, doublebarrier.New(c, path, n, doublebarrier.WithKeptRounds()))
				sessions = append(sessions, suite.Session(t, c))
			}
			for number := range int64(5) {
				require.Equal(t, number+1, round(t, all...))
			}
			for _, s := range sessions {
				suite.Soon(t, func() bool { return s.EphemeralBytes() == 0 }, "no bytes are left")
			}
		}
	})
}

// In between another member leaves the line, and the server then lists the others in another order.
// A node that the first member created in an earlier session comes late, and does not count.
func TestNobodyEntersOrLeavesBeforeTheLast(t *testing.T) {
	play(t, 5, func(s *scene) {
		gone := s.enter(4, 4)
		all := []*call{s.enter(0, 4), s.enter(1, 4)}
		gone.cancel()
		gone.fails(context.Canceled)
		again := s.process() + "/" + strings.Split(s.members()[0], "-1-of-")[0] + "-2-of-4-member-"
		late, _ := s.conn.Create(again, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		all = append(all, s.enter(2, 4))
		s.True(all[0].waits() && all[1].waits() && all[2].waits())
		s.delete(late)
		all = append(all, s.enter(3, 4))
		waiting := s.waiting()
		for i, c := range all {
			s.Equal(c.must().Node(), c.entry.Members()[i])
			s.Equal(c.entry.Node(), waiting[i].Node)
		}
		one, two := s.leave(all[0]), s.leave(all[2])
		s.True(one.waits() && two.waits())
		_, err := s.conn.Multi(all[1].entry.Check())
		s.NoError(err)
		s.finish(all[1], all[3])
		s.succeed(one, two)
		_, err = s.conn.Multi(all[1].entry.Check())
		s.ErrorIs(err, zk.ErrNoNode)
	})
}

// Four come to a barrier of three, and then others to a round under way, which one has left.
func TestLatecomersAreRefusedOrWait(t *testing.T) {
	play(t, 5, func(s *scene) {
		s.keep("")
		in := []*call{s.enter(0, 3), s.enter(1, 3)}
		g := s.gate(2, recipestest.OpMulti)
		g.Shut()
		in = append(in, s.enter(2, 3))
		s.enter(3, 3).fails(doublebarrier.ErrFull) // it opens the gate for the others
		g.Open()
		s.Len(in[0].must().Members(), 3)
		s.Contains(in[0].entry.Node(), "-1-of-3-", "it has joined again")
		left := s.leave(in[0])
		s.enter(0, 3).fails(doublebarrier.ErrFull)

		waiting := []*call{s.enter(0, 3, doublebarrier.WithWaiting()), s.enter(1, 3, doublebarrier.WithWaiting())}
		s.finish(in[1:]...)
		left.must()
		last := s.enter(4, 3)
		s.Greater(last.must().Token(), in[0].entry.Token())
		s.finish(append(waiting, last)...)
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	play(t, 1, func(s *scene) {
		c, small, before := s.Clients[0], s.Links[0].Client(s.t, protocol.WithRequestLimit(2048)), s.Links[0].Packets()
		tooMuch := doublebarrier.WithData(make([]byte, recipe.MaxData))
		for want, barriers := range map[error][]*doublebarrier.Barrier{
			nil: {
				doublebarrier.New(nil, "/a", 2), doublebarrier.New(c.With(nil), "/a", 2),
				doublebarrier.New(c, "/a", 0, nil), doublebarrier.New(c, "/a", -1),
			},
			zk.ErrInvalidPath: {doublebarrier.New(c, "", 2), doublebarrier.New(c, "a", 2), doublebarrier.New(c, "/", 2)},
			protocol.ErrTooLarge: { // some of these gates have more bits than an int
				doublebarrier.New(c, "/a", 2, tooMuch), doublebarrier.New(c, "/a", 1_000_000),
				doublebarrier.New(c, "/a", math.MaxInt/2+1), doublebarrier.New(c, "/a", math.MaxInt), doublebarrier.New(small, "/a", 9),
			},
		} {
			for _, b := range barriers {
				_, err := b.Enter(s.t.Context())
				s.ErrorContains(err, "doublebarrier: ")
				s.True(want == nil || errors.Is(err, want), err)
				if !errors.Is(err, protocol.ErrTooLarge) {
					_, err = b.Waiting(s.t.Context())
					s.ErrorContains(err, "doublebarrier: ")
				}
			}
		}
		s.Error(doublebarrier.New(c, "/a", 1).Do(s.t.Context(), nil))
		s.Equal(before, s.Links[0].Packets())
	})
}

// Do waits for the others to leave, unless its function panics. It is the opener here, so the gate
// is removed in the background when the last of them dies.
func TestDoLeavesInAnyCase(t *testing.T) {
	for _, how := range []string{"fails", "panics"} {
		play(t, 2, func(s *scene) {
			other, failed := s.enter(0, 2), errors.New(how)
			do := s.call(func(ctx context.Context) (_ *doublebarrier.Entry, err error) {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				return nil, doublebarrier.New(s.Clients[1], s.path, 2).Do(ctx, func(context.Context, *doublebarrier.Entry) error {
					if how == "panics" {
						panic(failed)
					}
					return failed
				})
			})
			s.Equal(how == "fails", do.waits())
			s.Len(s.members(), 1)
			other.must()
			s.die(s.Clients[0])
			do.fails(failed)
		})
	}
}

// No gate stays, either, if an operator deletes members that are inside.
func TestGateOfDeletedMembersGoes(t *testing.T) {
	play(t, 2, func(s *scene) {
		for range s.inside(2) {
			s.delete(s.process() + "/" + s.members()[0])
		}
	})
}

// Curator counts all nodes at the path, and we all below process. So neither sees the other.
func TestPathOfCuratorsDoubleBarrierIsRefused(t *testing.T) {
	play(t, 1, func(s *scene) {
		suite.Keep(s.t, s.operator, s.path, s.path+"/0d9e3b0c-6b3f-4c5e-9a53-7d0c8d2c6f11")
		s.enter(0, 2).fails(zk.ErrNodeExists)
	})
}

// The server removes the nodes of members that have all left, or died, unless the rounds are kept.
func TestRoundsBeginAgainUnlessTheyAreKept(t *testing.T) {
	for next, opts := range map[int64][]doublebarrier.Option{1: nil, 3: {doublebarrier.WithKeptRounds()}} {
		play(t, 3, func(s *scene) {
			s.Links[0].Fail(recipestest.OpCreate, s.process(), int32(zkwire.CodeNoNode), 1) // its parent has gone
			s.finish(s.inside(2, opts...)...)
			s.EqualValues(2, s.inside(2, opts...)[0].entry.Round())
			s.die(s.Clients[:2]...)
			time.Sleep(time.Hour)
			for range 3 { // a level each
				s.Embedded().ReapContainers()
			}
			s.Equal(opts != nil, suite.Exists(s.t, s.operator, s.path))
			e := s.enter(2, 1, opts...) // others agree on another number
			s.Equal(next, e.must().Round())
			s.finish(e)
		})
	}
}

// A member asks for as much in a round of many as in a round of few, whether they come and go at
// once or one after the other.
func TestRequestsOfAMemberDoNotGrowWithTheirNumber(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond} {
		const n, few = 48, 12 // few are of the member that opens the gate, and of the last to leave
		play(t, n, func(s *scene) {
			visit := func() {
				var all suite.Group
				for _, c := range s.Clients {
					all.Go(func() error {
						return doublebarrier.New(c, s.path, n).Do(s.t.Context(), func(context.Context, *doublebarrier.Entry) error {
							if c == s.Clients[0] {
								s.waiting() // which reads few nodes at a time
							}
							return nil
						})
					})
					time.Sleep(apart)
				}
				s.NoError(all.Wait())
				synctest.Wait()
			}
			visit() // in the first one, each reads the record once more
			count := func() (requests, listings int) {
				for _, l := range s.Links {
					requests, listings = requests+l.Count(recipestest.OpAny), listings+l.Count(recipestest.OpGetChildren)
				}
				return requests, listings
			}
			requests, listings := count()
			visit()
			moreRequests, moreListings := count()
			s.LessOrEqual(moreRequests-requests, 4*n+few)
			s.LessOrEqual(moreListings-listings, 8)
		})
	}
}
