package doublebarrier_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A meter counts what members ask of the server, and what it tells them.
type meter struct {
	links []*recipestest.Link
	last  []map[recipestest.Op]int
}

var counted = []recipestest.Op{
	recipestest.OpAny, recipestest.OpCreate, recipestest.OpDelete, recipestest.OpMulti,
	recipestest.OpExists, recipestest.OpGetData, recipestest.OpGetChildren,
}

// next returns the requests since the call before: of all members together, and the most of one.
func (m *meter) next() (sum, most map[recipestest.Op]int) {
	sum, most = make(map[recipestest.Op]int), make(map[recipestest.Op]int)
	if m.last == nil {
		m.last = make([]map[recipestest.Op]int, len(m.links))
	}
	for i, l := range m.links {
		now := make(map[recipestest.Op]int)
		for _, op := range counted {
			now[op] = l.Count(op)
			k := now[op] - m.last[i][op]
			sum[op], most[op] = sum[op]+k, max(most[op], k)
		}
		m.last[i] = now
	}
	return sum, most
}

func (m *meter) bytes() (sum int64) {
	for _, l := range m.links {
		sum += l.ReplyBytes()
	}
	return sum
}

// A member asks for as much in a round of 64 as in one of 16, whether all come and go at once or
// one after the other.
func TestRequestsOfAMemberDoNotGrowWithTheirNumber(t *testing.T) {
	for _, n := range []int{16, 64, 200} {
		for _, apart := range []time.Duration{0, time.Millisecond} {
			t.Run(fmt.Sprintf("%d members %v apart", n, apart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stage := suite.NewStage(t, n)
					path := stage.Root(t) + "/b"
					requests := &meter{links: stage.Links}
					visit := func() {
						entries, leaving := make([]*doublebarrier.Entry, n), group{}
						var all []*entering
						for _, c := range stage.Clients {
							all = append(all, enter(t.Context(), doublebarrier.New(c, path, n)))
							time.Sleep(apart)
						}
						for i, e := range all {
							entries[i] = e.must(t)
						}
						for _, e := range entries {
							leaving.Go(func() error { return e.Leave(t.Context()) })
							time.Sleep(apart)
						}
						require.NoError(t, leaving.Wait())
						synctest.Wait()
					}

					for _, c := range stage.Clients {
						session(t, c)
					}
					requests.next()
					visit()
					first, _ := requests.next()
					t.Logf("in a round at a new path: %v", first)

					before := requests.bytes()
					visit()
					sum, most := requests.next()
					t.Logf("in the next round: %v, most of one %v", sum, most)
					const few = 12 // of the member that opens the gate, and the last to leave
					require.LessOrEqual(t, sum[recipestest.OpAny], 5*n+few)
					require.Equal(t, n, sum[recipestest.OpCreate])
					require.LessOrEqual(t, sum[recipestest.OpMulti], n+5, "to leave, the gate's two, and by the last few")
					require.LessOrEqual(t, sum[recipestest.OpGetChildren], 8, "by the opener, and the last few")
					require.LessOrEqual(t, sum[recipestest.OpGetData], 3*n)
					require.Zero(t, sum[recipestest.OpExists])
					require.LessOrEqual(t, most[recipestest.OpAny], 9)

					// The names of all members are read once, and by the last few.
					name := len(fmt.Sprintf("%016x-%08x-1-of-%d-member-%010d", 0, 0, n, 0)) + 1
					require.Less(t, requests.bytes()-before, int64((n+4)*n*name+n*1500))
					empty(t, stage.Clients[0], path)
				})
			})
		}
	}
}

// A member that waits costs its session's pings and nothing else, for its gate, for the end of its
// round, and for the end of another round. Then its session is confirmed, if something is held.
func TestMemberThatWaitsSendsNothing(t *testing.T) {
	for _, waitsFor := range []string{"the gate", "the end", "the end of another round"} {
		t.Run(waitsFor, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, ctx := srv.Root(t)+"/b", srv.Link(t), t.Context()
				client, others := link.Client(t), clients(t, srv, 2)
				s := session(t, client)
				n := 3

				var waiting *entering
				var all []*doublebarrier.Entry
				left := make(chan error, 1)
				switch waitsFor {
				case "the gate":
					waiting = enter(ctx, doublebarrier.New(client, path, n))
				case "the end":
					all = inside(t, path, append(others, client)...)
					go func() { left <- all[2].Leave(ctx) }()
				default:
					n = 1
					all = inside(t, path, others...)
					waiting = enter(ctx, doublebarrier.New(client, path, n, doublebarrier.WithWaiting()))
				}

				time.Sleep(s.Timeout())
				synctest.Wait()
				requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
				time.Sleep(10 * time.Minute)
				require.Equal(t, requests, link.Count(recipestest.OpAny))
				require.Greater(t, link.Count(recipestest.OpPing), pings+int(10*time.Minute/s.Timeout()))
				require.NoError(t, s.Err())

				switch waitsFor {
				case "the gate":
					first, second := enter(ctx, doublebarrier.New(others[0], path, n)), enter(ctx, doublebarrier.New(others[1], path, n))
					entry := waiting.must(t)
					require.NoError(t, entry.Err())
					require.Greater(t, time.Until(s.Deadline()), s.Timeout()/2)
					require.Equal(t, requests+2, link.Count(recipestest.OpAny), "the gate, and a confirmation")
					leave(t, first.must(t), second.must(t), entry)
				case "the end":
					leave(t, all[:2]...)
					require.NoError(t, <-left)
				default:
					leave(t, all...)
					leave(t, waiting.must(t))
				}
			})
		})
	}
}

// A member's node is deleted by hand while it waits, and nothing else.
func TestWaitingMemberWhoseNodeIsDeletedJoinsAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		cs := clients(t, srv, 2)
		s := session(t, cs[1])
		var waiting []*entering
		for range 2 {
			waiting = append(waiting, enter(t.Context(), doublebarrier.New(cs[0], path, 3)))
		}
		for range 3 {
			joined(t, cs[1], path, 2)
			before := suite.Children(t, cs[1], path+"/process")
			require.NoError(t, s.Delete(t.Context(), path+"/process/"+before[0], -1))
			time.Sleep(s.Timeout() / 2)
			synctest.Wait()
			after := suite.Children(t, cs[1], path+"/process")
			require.Len(t, after, 2)
			require.NotContains(t, after, before[0])
		}
		last := enter(t.Context(), doublebarrier.New(cs[1], path, 3))
		leave(t, waiting[0].must(t), waiting[1].must(t), last.must(t))
	})
}

// A member is counted while it is cut off. All that told of its gate is deleted by hand, but for
// the member itself. It does not wait for ever, and no gate counts it twice: it joins again.
func TestMemberThatWasCountedByALostGateJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		path := stage.Root(t) + "/b"
		waiting := enter(patient(t), doublebarrier.New(stage.Clients[0], path, 2))
		joined(t, stage.Clients[1], path, 1)
		synctest.Wait()
		stage.Links[0].Cut()
		other := enter(patient(t), doublebarrier.New(stage.Clients[1], path, 2)).must(t)

		conn := session(t, stage.Clients[1]).Conn()
		for _, node := range suite.Children(t, stage.Clients[1], path) {
			if node != "process" {
				require.NoError(t, conn.Delete(path+"/"+node, -1))
			}
		}
		_, err := conn.Set(path+"/process", nil, -1)
		require.NoError(t, err)
		stage.Links[0].Heal()
		time.Sleep(time.Minute / 4)
		require.NotSubset(t, other.Members(), suite.Children(t, stage.Clients[1], path+"/process"))
		require.NoError(t, other.Leave(patient(t)))

		next := enter(patient(t), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		require.NotContains(t, other.Members(), waiting.must(t).Node())
		leave(t, waiting.entry, next)
		empty(t, stage.Clients[1], path)
	})
}

// Another client replaces the data of a member that waits. The member is counted all the same.
func TestMemberWhoseDataAreReplacedEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		path := stage.Root(t) + "/b"
		waiting := enter(t.Context(), doublebarrier.New(stage.Clients[0], path, 2))
		joined(t, stage.Clients[1], path, 1)
		time.Sleep(time.Minute)

		node := suite.Children(t, stage.Clients[1], path+"/process")[0]
		_, err := session(t, stage.Clients[1]).Conn().Set(path+"/process/"+node, []byte("foreign"), -1)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		leave(t, enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t), waiting.must(t))
	})
}

// Some members have died long before the others leave. Those do not wait for them.
func TestMembersThatHaveDiedDoNotDelayALeave(t *testing.T) {
	for dead := range 4 {
		synctest.Test(t, func(t *testing.T) {
			const n = 9
			stage := suite.NewStage(t, n)
			path := stage.Root(t) + "/b"
			entries := inside(t, path, stage.Clients...)
			for _, c := range stage.Clients[:dead] {
				require.NoError(t, c.Close())
			}
			joined(t, stage.Clients[n-1], path, n-dead)

			began := time.Now()
			leave(t, entries[dead:]...)
			require.Zero(t, time.Since(began), "%d dead", dead)
			empty(t, stage.Clients[n-1], path)
		})
	}
}

// The opener has died long before the others leave, and with it what would tell the last one so.
func TestOpenerThatHasDiedDoesNotDelayALeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 9
		stage := suite.NewStage(t, n)
		path := stage.Root(t) + "/b"
		var waiting []*entering
		for i, c := range stage.Clients[1:] {
			waiting = append(waiting, enter(patient(t), doublebarrier.New(c, path, n)))
			joined(t, stage.Clients[0], path, i+1)
		}
		enter(patient(t), doublebarrier.New(stage.Clients[0], path, n)).must(t)
		var entries []*doublebarrier.Entry
		for _, w := range waiting {
			entries = append(entries, w.must(t))
		}
		require.NoError(t, stage.Clients[0].Close())

		var leaving group
		for _, entry := range entries {
			time.Sleep(time.Millisecond)
			leaving.Go(func() error { return entry.Leave(patient(t)) })
		}
		began := time.Now()
		require.NoError(t, leaving.Wait())
		require.Zero(t, time.Since(began))
	})
}

// A third member opens the gate for two others and is cut off. It is in line still when they have
// left and one other comes: its number is lower than that of all that the record knows to be gone.
func TestMemberThatLingersIsCountedByTheNextGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 4)
		path := stage.Root(t) + "/b"
		begin := func(i int) *entering {
			e := enter(t.Context(), doublebarrier.New(stage.Clients[i], path, 2))
			synctest.Wait()
			return e
		}

		first := begin(0)
		stage.Links[1].StallReplies() // it does not learn of its place, and does not open the gate
		second := begin(1)
		joined(t, stage.Clients[3], path, 2)
		opening := &suite.Gate{Op: recipestest.OpMulti}
		stage.Clients[2] = stage.Links[2].Client(t, opening.Option(stage.Links[2]))
		opening.Shut()
		third := begin(2)
		require.True(t, opening.Holding())
		stage.Links[2].StallReplies()
		opening.Open()
		first.must(t)
		stage.Links[1].Cut()
		stage.Links[1].Heal()
		leave(t, first.entry, second.must(t))

		fourth := begin(3)
		require.Equal(t, fourth.must(t).Members()[1], fourth.entry.Node())
		stage.Links[2].Cut()
		stage.Links[2].Heal()
		leave(t, third.must(t), fourth.entry)
		empty(t, stage.Clients[3], path)
	})
}

// Another client has created ready: at a path that is new, or while our members wait.
func TestForeignReadyIsRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		s := session(t, c)
		path := root + "/new"
		_, err := s.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, s.Create(t.Context(), path+"/ready", nil, 0))
		_, err = doublebarrier.New(c, path, 2).Enter(t.Context())
		require.ErrorContains(t, err, "not a gate")

		path = root + "/used"
		b := doublebarrier.New(c, path, 2)
		round(t, b, b)
		first := enter(t.Context(), b)
		joined(t, c, path, 1)
		synctest.Wait()
		require.NoError(t, s.Create(t.Context(), path+"/ready", nil, 0))
		second := enter(t.Context(), b)
		for _, e := range []*entering{first, second} {
			_, err := e.wait()
			require.ErrorContains(t, err, "not a gate")
		}
		joined(t, c, path, 0)
	})
}

// The record has no number. The first in line is slow to read it when the second one writes theirs,
// and opens the gate.
func TestMembersThatComeTogetherAtAnAgreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		path := stage.Root(t) + "/b"
		persistent(t, stage.Clients[1], path)
		session(t, stage.Clients[0])

		stage.Links[0].StallReplies()
		first := enter(t.Context(), doublebarrier.New(stage.Clients[0], path, 2))
		joined(t, stage.Clients[1], path, 1)
		second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		stage.Links[0].Cut()
		stage.Links[0].Heal()
		leave(t, first.must(t), second)
	})
}
