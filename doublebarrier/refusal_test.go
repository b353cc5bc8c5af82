package doublebarrier_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const noAuth = -102

// A request that the server refuses ends Enter with that error, and no node is left.
func TestRefusedRequestEndsEnter(t *testing.T) {
	for name, test := range map[string]struct {
		op   recipestest.Op
		node string
		left bool // a gate, of a round that is over
		long bool // the request is made when the wait has become long
	}{
		"the record":       {recipestest.OpGetData, "/b/process", false, false},
		"ready":            {recipestest.OpExists, "/b/ready", false, false},
		"the line":         {recipestest.OpGetChildren, "/b/process", false, false},
		"members inside":   {recipestest.OpGetChildren, "/b/process", true, false},
		"the gate is over": {recipestest.OpMulti, "", true, false},
		"its own node":     {recipestest.OpGetData, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root, link := srv.Root(t), srv.Link(t)
				onlooker := srv.Client(t)
				persistent(t, onlooker, root+"/b")
				c := link.Client(t)
				session(t, c)
				if test.left {
					gone := srv.Client(t)
					_, err := doublebarrier.New(gone, root+"/b", 1).Enter(t.Context())
					require.NoError(t, err)
					srv.ExpireSession(session(t, gone).ID())
					synctest.Wait()
				}

				node := test.node
				if node != "" {
					node = root + node
				}
				if !test.long {
					link.Fail(test.op, node, noAuth, 1)
				}
				e := enter(t.Context(), doublebarrier.New(c, root+"/b", 2))
				if test.long {
					synctest.Wait()
					link.Fail(test.op, node, noAuth, 1)
					time.Sleep(session(t, c).Timeout())
				}
				_, err := e.wait()
				require.ErrorIs(t, err, zk.ErrNoAuth)
				joined(t, onlooker, root+"/b", 0)
			})
		})
	}
}

// A member that was lost with its session may have been counted. What cannot be found out ends
// Enter.
func TestRefusedRequestAfterALostSessionEndsEnter(t *testing.T) {
	for name, test := range map[string]struct {
		op   recipestest.Op
		node string
	}{
		"sync":       {recipestest.OpSync, ""},
		"the line":   {recipestest.OpGetChildren, "/process"},
		"the record": {recipestest.OpGetData, "/process"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/b", srv.Link(t)
				onlooker, c := srv.Client(t), link.Client(t)
				persistent(t, onlooker, path)
				e := enter(suite.Lasting(t), doublebarrier.New(c, path, 2))
				joined(t, onlooker, path, 1)
				synctest.Wait()

				link.Fail(test.op, path+test.node, noAuth, 1)
				srv.ExpireSession(session(t, c).ID())
				_, err := e.wait()
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorIs(t, err, protocol.ErrUncertain)
				joined(t, onlooker, path, 0)
			})
		})
	}
}

// The server loses its leader while a member waits, and goes on answering pings. It is left soon
// enough to withdraw over another one with the same session.
func TestWithdrawalLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/b", srv.Link(t), srv.Embedded().Follower()
		onlooker := srv.Client(t)
		link.Move(follower)
		c := link.Client(t)
		s := session(t, c)
		link.Move(nil)
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, onlooker, path, 1)
		synctest.Wait()

		follower.Isolate()
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(s.Timeout() / 2)
		require.Empty(t, suite.Children(t, onlooker, path+"/process"))
		require.NoError(t, s.Err())
	})
}

// insideOf returns the entries of two clients, the first of which has opened the gate.
func insideOf(t *testing.T, opener, c *protocol.Client, path string) (entry, other *doublebarrier.Entry) {
	t.Helper()
	first := enter(t.Context(), doublebarrier.New(c, path, 2))
	joined(t, c, path, 1)
	synctest.Wait()
	entry = enter(t.Context(), doublebarrier.New(opener, path, 2)).must(t)
	other = first.must(t)
	synctest.Wait()
	return entry, other
}

// Requests that the server refuses end Leave with that error, and the round ends all the same.
func TestRefusedRequestEndsLeave(t *testing.T) {
	for name, test := range map[string]struct {
		ops  []recipestest.Op
		node func(entry, other *doublebarrier.Entry) string
		when string // the requests are made
	}{
		"the departure": {
			[]recipestest.Op{recipestest.OpMulti, recipestest.OpDelete},
			func(e, _ *doublebarrier.Entry) string { return "/process/" + e.Node() }, "at once",
		},
		"the record": {
			[]recipestest.Op{recipestest.OpGetData},
			func(_, _ *doublebarrier.Entry) string { return "/process" }, "at once",
		},
		"the other member": {
			[]recipestest.Op{recipestest.OpGetData},
			func(_, o *doublebarrier.Entry) string { return "/process/" + o.Node() }, "late",
		},
		"the members that are left": {
			[]recipestest.Op{recipestest.OpGetChildren},
			func(_, _ *doublebarrier.Entry) string { return "/process" }, "when the other has died",
		},
		"sync": {
			[]recipestest.Op{recipestest.OpSync},
			func(_, _ *doublebarrier.Entry) string { return "" }, "in the next session",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/b", srv.Link(t)
				watcher := srv.Client(t)
				persistent(t, watcher, path)
				opener, c := link.Client(t), srv.Client(t)
				entry, other := insideOf(t, opener, c, path)
				third := session(t, c).Timeout() / 3
				refuse := func(times int) {
					for _, op := range test.ops {
						link.Fail(op, path+test.node(entry, other), noAuth, times)
					}
				}

				if test.when == "at once" {
					refuse(100)
				}
				left := make(chan error, 1)
				go func() { left <- entry.Leave(t.Context()) }()
				synctest.Wait()
				switch test.when {
				case "late":
					refuse(100)
				case "when the other has died":
					time.Sleep(2 * third)
					refuse(100)
					suite.Expire(srv, session(t, c).ID())
				case "in the next session":
					refuse(100)
					suite.Expire(srv, session(t, opener).ID())
				}
				require.ErrorIs(t, suite.Wait(t, left), zk.ErrNoAuth)

				refuse(0)
				other.Leave(t.Context()) // it may have died
				entry.Leave(t.Context()) // again
				vanishes(t, watcher, path)
			})
		})
	}
}

// Another client takes away the right to write the record. The last member that leaves cannot close
// the gate, of which it removes nothing then. The next one does that.
func TestGateThatMayNotBeClosedStaysWhole(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/b", srv.Client(t)
		persistent(t, srv.Client(t), path)
		conn := session(t, srv.Client(t)).Conn()
		allow := func(permissions int32) {
			_, err := conn.SetACL(path+"/process", zk.WorldACL(permissions), -1)
			require.NoError(t, err)
		}

		entry := enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)
		allow(zk.PermAll &^ zk.PermWrite)
		require.ErrorIs(t, entry.Leave(t.Context()), zk.ErrNoAuth)
		require.True(t, suite.Exists(t, c, path+"/ready"))
		allow(zk.PermAll)
		leave(t, enter(t.Context(), doublebarrier.New(c, path, 1)).must(t))
		vanishes(t, c, path)
	})
}

// The server refuses to tell a member that leaves who is left. The round goes on for the others.
func TestRefusedListingDoesNotEndTheRound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		c := srv.Client(t)
		entry, other := insideOf(t, link.Client(t), c, path)
		link.Fail(recipestest.OpGetChildren, path+"/process", noAuth, 1)
		left := make(chan error, 1)
		go func() { left <- entry.Leave(t.Context()) }()
		synctest.Wait()
		require.Empty(t, left)
		_, err := doublebarrier.New(c, path, 1).Enter(t.Context())
		require.ErrorIs(t, err, doublebarrier.ErrFull)

		require.NoError(t, other.Leave(t.Context()))
		require.NoError(t, suite.Wait(t, left))
		vanishes(t, c, path)
	})
}

// The member's node was deleted by hand, and the server does not say whether a gate has counted it.
// Enter reports both why it gave up and why the outcome is unknown.
func TestWithdrawalSaysWhyTheOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, cancel := oneWaits(t)
		node := suite.Children(t, stage.Clients[1], path+"/process")[0]
		require.NoError(t, session(t, stage.Clients[1]).Conn().Delete(path+"/process/"+node, -1))
		synctest.Wait()
		stage.Links[0].Fail(recipestest.OpGetData, path+"/process", noAuth, 1)
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, err, protocol.ErrUncertain)
	})
}

// A gate has counted a member, to which the server refuses first the record and then the look at
// its own node. The member does not take itself for dead.
func TestCountedMemberThatMayNotLookAtItsNodeIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, _ := oneWaits(t)
		node := suite.Children(t, stage.Clients[1], path+"/process")[0]
		stage.Links[0].Fail(recipestest.OpGetData, path+"/process", noAuth, 1)
		stage.Links[0].Fail(recipestest.OpExists, path+"/process/"+node, noAuth, 1)
		other := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		_, err := e.wait()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.NotErrorIs(t, err, protocol.ErrLost)
		suite.Expire(stage.Server, session(t, stage.Clients[0]).ID())
		leave(t, other)
	})
}

// The record changes, and the server refuses to read it, also for the withdrawal. Enter returns,
// and withdraws once it may. No round waits for its member.
func TestWithdrawalThatIsRefusedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, _ := oneWaits(t)
		link, c := stage.Links[0], stage.Clients[1]
		reads := link.Count(recipestest.OpGetData)
		link.Fail(recipestest.OpGetData, path+"/process", noAuth, 100)
		data, _ := suite.Get(t, c, path+"/process")
		_, err := session(t, c).Conn().Set(path+"/process", data, -1)
		require.NoError(t, err)
		_, err = e.wait()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.Equal(t, reads+2, link.Count(recipestest.OpGetData))

		link.Fail(recipestest.OpGetData, path+"/process", noAuth, 0)
		joined(t, c, path, 0)
		leave(t, inside(t, path, c, c)...)
		vanishes(t, c, path)
	})
}

// A member is counted while the server refuses its withdrawal. It leaves at once when it learns of
// that, and the others do not wait for it.
func TestMemberThatIsCountedBeforeItMayWithdrawLeaves(t *testing.T) {
	for _, until := range []string{"it has waited", "its barrier was full"} {
		t.Run(until, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stage := suite.NewStage(t, 3)
				path, link, c := stage.Root(t)+"/b", stage.Links[0], stage.Clients[1]
				var full []*doublebarrier.Entry
				if until == "its barrier was full" {
					full = inside(t, path, c, stage.Clients[2])
				}
				link.Fail(recipestest.OpMulti, "", noAuth, 100)
				ctx, cancel := context.WithCancel(t.Context())
				e := enter(ctx, doublebarrier.New(stage.Clients[0], path, 2, doublebarrier.WithWaiting()))
				synctest.Wait()
				cancel()
				_, err := e.wait()
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorIs(t, err, protocol.ErrUncertain)

				leave(t, full...)
				entry := enter(t.Context(), doublebarrier.New(c, path, 2)).must(t)
				link.Fail(recipestest.OpMulti, "", noAuth, 0)
				leave(t, entry)
				vanishes(t, c, path)
			})
		})
	}
}

// The last member to come may not list the line. It returns that error, and another one comes for
// it.
func TestLastMemberThatMayNotListTheLineReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, first, _ := oneWaits(t)
		stage.Links[1].Fail(recipestest.OpGetChildren, path+"/process", noAuth, 1)
		second := doublebarrier.New(stage.Clients[1], path, 2)
		_, err := enter(t.Context(), second).wait()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		leave(t, enter(t.Context(), second).must(t), first.must(t))
	})
}

func TestEnterThatMayNotCreateThePathReturns(t *testing.T) {
	for node, opts := range map[string][]doublebarrier.Option{
		"/process": nil,
		"":         {doublebarrier.WithKeptRounds()},
	} {
		synctest.Test(t, func(t *testing.T) {
			stage := suite.NewStage(t, 1)
			path := stage.Root(t) + "/b"
			stage.Links[0].Fail(recipestest.OpCreateContainer, path+node, noAuth, 1)
			_, err := enter(t.Context(), doublebarrier.New(stage.Clients[0], path, 1, opts...)).wait()
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.NotErrorIs(t, err, protocol.ErrUncertain)
		})
	}
}

// A foreign ready is there, and the server refuses to let a member write that it has no number.
// Enter returns that error at once.
func TestRefusedWriteBesideAForeignReadyEndsEnter(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, watcher := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		persistent(t, watcher, path)
		gate := &suite.Gate{Op: recipestest.OpMulti}
		c := link.Client(t, gate.Option(link))
		leave(t, enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)) // so there is a record
		synctest.Wait()
		gate.Shut()
		link.Delay(time.Millisecond)
		e := enter(t.Context(), doublebarrier.New(c, path, 1))
		time.Sleep(time.Second)
		require.True(t, gate.Holding(), "the gate")
		suite.Keep(t, watcher, path+"/ready")
		gate.Open()
		gate.Shut()
		time.Sleep(time.Second)
		require.True(t, gate.Holding(), "the record")
		link.Fail(recipestest.OpMulti, "", noAuth, 1)
		gate.Open()
		_, err := e.wait()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		joined(t, watcher, path, 0)
	})
}

// Another client deletes the node of a member inside, which leaves before it hears of that.
func TestLeaveOfADeletedMemberIsALoss(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		entry := enter(t.Context(), doublebarrier.New(link.Client(t), path, 1)).must(t)
		link.Delay(time.Millisecond)
		require.NoError(t, session(t, c).Conn().Delete(path+"/process/"+entry.Node(), -1))
		err := entry.Leave(t.Context())
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorIs(t, err, protocol.ErrNodeDeleted)
		leave(t, enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)) // removes the gate
	})
}

// A session is lost whose member the server still has, and which it refuses to delete. Enter does
// not join with another one.
func TestOldMemberThatMayNotBeDeletedEndsEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, _ := oneWaits(t)
		link, watcher := stage.Links[0], stage.Clients[1]
		s, old := session(t, stage.Clients[0]), suite.Children(t, watcher, path+"/process")
		stage.Embedded().SetClockRate(0.1) // the server keeps the session
		link.Cut()
		suite.Wait(t, s.Done())
		link.Fail(recipestest.OpMulti, path+"/process/"+old[0], noAuth, 1)
		link.Heal()
		link.TearRequest(recipestest.OpClose, 1) // and the client cannot close it yet
		_, err := e.wait()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		stage.Embedded().SetClockRate(1)
		vanishes(t, watcher, path)
	})
}

// Any request of Waiting is refused. It returns that error, and no members.
func TestRefusedRequestEndsWaiting(t *testing.T) {
	for _, lost := range []bool{false, true} { // the record is
		for _, op := range []recipestest.Op{
			recipestest.OpSync, recipestest.OpExists, recipestest.OpGetData, recipestest.OpGetChildren,
		} {
			t.Run(fmt.Sprintf("%v lost %v", op, lost), func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					path, link, c := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
					b := doublebarrier.New(link.Client(t), path, 1)
					entry := enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)
					if lost {
						_, err := session(t, c).Conn().Set(path+"/process", []byte("foreign"), -1)
						require.NoError(t, err)
					}

					refused := 0
					suite.Sweep(t, func(step int) bool {
						var before int
						met := suite.At(link, step, func() {
							before = link.Count(op)
							link.Fail(op, "", noAuth, 1)
						})
						members, err := b.Waiting(t.Context())
						was := met()
						if was && link.Count(op) > before {
							refused++
							require.ErrorIs(t, err, zk.ErrNoAuth, "step %d", step)
							require.Empty(t, members)
							return was
						}
						require.NoError(t, err, "step %d", step)
						require.Len(t, members, 1)
						link.Fail(op, "", noAuth, 0)
						return was
					})
					if lost || op != recipestest.OpExists {
						require.NotZero(t, refused)
					}
					require.NoError(t, entry.Leave(t.Context()))
					vanishes(t, c, path)
				})
			})
		}
	}
}
