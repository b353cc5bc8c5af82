package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// All members die when one of them has sent or got so many packets, and no other comes to the path.
// The server removes all that they have created.
func TestNothingIsLeftOfMembersThatHaveAllDied(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				watcher := srv.Client(t)
				var paths []string
				suite.Sweep(t, func(step int) bool {
					paths = append(paths, pathOf(root, step))
					return dieTogether(t, srv, paths[len(paths)-1], n, step)
				})

				time.Sleep(time.Minute) // several session timeouts
				for range 3 {           // a level each
					srv.Embedded().ReapContainers()
				}

				conn := session(t, watcher).Conn()
				for i, path := range paths {
					children, _, err := conn.Children(path)
					if err == nil { // a container that has never had a child is not removed
						_, stat, err := conn.Get(path + "/process")
						require.True(t, errors.Is(err, zk.ErrNoNode) || stat.Cversion == 0, "step %d: %v", i+1, stat)
						require.Subset(t, []string{"process"}, children, "step %d", i+1)
						continue
					}
					require.ErrorIs(t, err, zk.ErrNoNode, "step %d", i+1)
				}
			})
		})
	}
}

// dieTogether kills n members when the first has come to the step of its Enter or Leave.
func dieTogether(t *testing.T, srv *recipestest.Server, path string, n, step int) (met bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	links := make([]*recipestest.Link, n)
	cs := make([]*protocol.Client, n)
	for i := range n {
		links[i] = srv.Link(t)
		cs[i] = links[i].Client(t)
		session(t, cs[i])
	}

	stop := links[0].At(step, func() {
		for _, l := range links {
			l.Cut() // for good
		}
		cancel()
	})

	var all group
	for _, c := range cs {
		all.Go(func() error {
			if e, err := doublebarrier.New(c, path, n).Enter(ctx); err == nil {
				e.Leave(ctx)
			}
			return nil
		})
	}

	require.NoError(t, all.Wait())
	met = !stop()
	for _, c := range cs {
		suite.TryClose(c)
	}
	return met
}

func TestNothingIsLeftOfADeadRoundOnAnyServer(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		suite.Needs(t, srv, suite.Containers)
		path := srv.Root(t) + "/b"
		cs, watcher := clients(t, srv, 3), srv.Client(t)

		inside(t, path, cs...)
		conn := session(t, watcher).Conn()
		conn.Sync(path) // it may be another server
		_, stat := suite.Get(t, watcher, path+"/ready")
		require.NotZero(t, stat.EphemeralOwner)

		for _, c := range cs {
			srv.ExpireSession(session(t, c).ID())
		}
		require.Eventually(t, func() bool {
			if e := srv.Embedded(); e != nil {
				e.ReapContainers()
			}
			conn.Sync(path)
			there, _, err := conn.Exists(path)
			return err == nil && !there
		}, 5*suite.Limit, 10*time.Millisecond, "the server removes containers once a minute")
	})
}

// The opener's session ends as soon as the gate is open, before the others have learnt of it. The
// server removes what it may.
func TestCountedMemberEntersThoughTheOpenerHasDied(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		const n = 3
		links := []*recipestest.Link{srv.Link(t), srv.Link(t)}
		opener := srv.Client(t)
		watcher := srv.Client(t)

		var waiting []*entering
		for i, l := range links {
			waiting = append(waiting, enter(patient(t), doublebarrier.New(l.Client(t), path, n)))
			joined(t, watcher, path, i+1)
			<-l.Answered(recipestest.OpGetData, 1) // the record
		}

		for _, l := range links {
			l.Cut()
		}

		e := enter(patient(t), doublebarrier.New(opener, path, n))
		members := e.must(t).Members()
		id := session(t, opener).ID()
		suite.Close(t, opener)
		suite.Expire(srv, id) // if the server was slow to answer
		if s := srv.Embedded(); s != nil {
			s.ReapContainers()
		}
		suite.CatchUp(t, watcher) // its server may lag behind the opener's
		require.False(t, suite.Exists(t, watcher, path+"/ready"))

		_, err := doublebarrier.New(watcher, path, n).Enter(patient(t))
		require.ErrorIs(t, err, doublebarrier.ErrFull, "the round goes on")
		next := enter(patient(t), doublebarrier.New(watcher, path, 1, doublebarrier.WithWaiting()))

		var leaving group
		for _, l := range links {
			l.Heal()
		}
		for _, w := range waiting {
			require.Equal(t, members, w.must(t).Members())
			require.Equal(t, e.entry.Token(), w.entry.Token())
		}

		left := make(chan error, 1)
		go func() { left <- waiting[0].entry.Leave(patient(t)) }()
		joined(t, watcher, path, 1)
		select {
		case <-left:
			require.FailNow(t, "left too early")
		case <-next.done:
			require.FailNow(t, "a member of the next round has lapped it")
		case <-time.After(50 * time.Millisecond):
		}

		leaving.Go(func() error { return waiting[1].entry.Leave(patient(t)) })
		require.NoError(t, leaving.Wait())
		require.NoError(t, <-left)
		require.Greater(t, next.must(t).Token(), e.entry.Token())
		require.NoError(t, next.entry.Leave(patient(t)))
		vanishes(t, watcher, path)
	})
}

// The gate has lost its opener. At each packet of the member that removes it, that member meets a
// fault.
func TestFaultAtEachStepOfRemovingAnOrphanedGate(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					path := pathOf(root, t.Name(), step)
					link := srv.Link(t)
					opener, victim, watcher := srv.Client(t), link.Client(t), srv.Client(t)
					defer suite.Close(t, victim, watcher)

					first := enter(patient(t), doublebarrier.New(victim, path, 2))
					joined(t, watcher, path, 1)
					enter(patient(t), doublebarrier.New(opener, path, 2)).must(t)
					first.must(t)
					dead, id := session(t, opener).ID(), session(t, victim).ID()
					suite.Close(t, opener)
					suite.Expire(srv, dead) // if the server was slow to answer

					met := suite.At(link, step, func() { f.Do(srv, link, id) })
					if err := first.entry.Leave(patient(t)); f.Name != "expiry" {
						require.NoError(t, err, "step %d", step)
					}
					was := met()

					b := doublebarrier.New(watcher, path, 2)
					round(t, b, b)
					vanishes(t, watcher, path)
					require.Subset(t, []string{"process"}, suite.Children(t, watcher, path), "step %d", step)
					return was
				})
			})
		}
	})
}

// A removal of an orphaned gate arrives late. The path was removed meanwhile, and another round is
// under way, whose record has the same version.
func TestLateRemovalOfAnOrphanedGateDoesNotHitALaterGate(t *testing.T) {
	const slow = time.Second
	for step := range 16 {
		synctest.Test(t, func(t *testing.T) {
			stage := suite.NewStage(t, 3)
			path := stage.Root(t) + "/b"
			link := stage.Links[0]
			e := enter(t.Context(), doublebarrier.New(stage.Clients[0], path, 2))
			joined(t, stage.Clients[2], path, 1)
			enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
			e.must(t)
			require.NoError(t, stage.Clients[1].Close())
			stop := link.At(step+1, func() { link.Delay(slow) })
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), slow/4)
			defer cancel()
			e.entry.Leave(ctx)

			conn := session(t, stage.Clients[2]).Conn()
			wipe(t, conn, path)
			b := doublebarrier.New(stage.Clients[2], path, 2)
			first, second := enter(t.Context(), b), enter(t.Context(), b)
			require.Equal(t, first.must(t).Token(), second.must(t).Token())
			time.Sleep(5 * slow)
			_, stat := suite.Get(t, stage.Clients[2], path+"/process")
			require.Equal(t, first.entry.Token(), stat.Mzxid, "step %d", step)
			leave(t, first.entry, second.entry)
			stage.Calm()
		})
	}
}

// The record changes just before a member withdraws, which it does in the background.
func TestMemberWithdrawsThoughTheRecordHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, cancel := oneWaits(t)

		stage.Links[0].Delay(time.Second)
		data, _ := suite.Get(t, stage.Clients[1], path+"/process")
		_, err := session(t, stage.Clients[1]).Conn().Set(path+"/process", data, -1)
		require.NoError(t, err)
		cancel()
		_, err = e.wait()
		require.ErrorIs(t, err, protocol.ErrUncertain)
		joined(t, stage.Clients[1], path, 0)
		stage.Calm()
	})
}

// A gate has counted a member, whose node is then deleted by hand. Its ctx ends before it has heard
// of either. It does not claim to have withdrawn.
func TestCountedMemberThatIsDeletedHasNotWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, first, cancel := oneWaits(t)

		stage.Links[0].Delay(time.Millisecond)
		second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		conn := session(t, stage.Clients[1]).Conn()
		require.NoError(t, conn.Delete(path+"/process/"+second.Members()[0], -1))
		cancel()
		_, err := first.wait()
		require.ErrorIs(t, err, protocol.ErrLost)
		leave(t, second)
		stage.Calm()
	})
}

// A gate has counted a member, whose node is then deleted by hand, and the round is over before the
// member has heard of either. It cannot know whether it was counted.
func TestDeletedMemberOfARoundThatIsOverIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, first, cancel := oneWaits(t)

		stage.Links[0].Delay(time.Millisecond)
		second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
		conn := session(t, stage.Clients[1]).Conn()
		require.NoError(t, conn.Delete(path+"/process/"+second.Members()[0], -1))
		leave(t, second)
		cancel()
		_, err := first.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		stage.Calm()
	})
}

// The node of a member is deleted by hand, and no round has begun. The member knows that if the
// record has changed once since it was read, but a round may have begun and ended in two changes.
func TestDeletedMemberIsCertainOfARecordThatHasChangedOnce(t *testing.T) {
	for changes := range 3 {
		synctest.Test(t, func(t *testing.T) {
			stage, path, e, cancel := oneWaits(t)

			stage.Links[0].Delay(time.Millisecond)
			conn := session(t, stage.Clients[1]).Conn()
			node := suite.Children(t, stage.Clients[1], path+"/process")[0]
			require.NoError(t, conn.Delete(path+"/process/"+node, -1))
			data, _ := suite.Get(t, stage.Clients[1], path+"/process")
			for range changes {
				_, err := conn.Set(path+"/process", data, -1)
				require.NoError(t, err)
			}
			cancel()
			_, err := e.wait()
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, changes == 2, errors.Is(err, protocol.ErrUncertain), "%d changes", changes)
			stage.Calm()
		})
	}
}

// A gate has counted a member, and the path is deleted by hand before the member has heard of it.
// Perhaps there is another path by then, whose record has a version that the member knows.
func TestMemberOfARoundWhosePathHasVanishedIsUncertain(t *testing.T) {
	for _, anew := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stage, path, first, cancel := oneWaits(t)

			stage.Links[0].Delay(time.Millisecond)
			second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
			wipe(t, session(t, stage.Clients[1]).Conn(), path)
			if anew {
				persistent(t, stage.Clients[1], path)
			}
			cancel()
			_, err := first.wait()
			require.ErrorIs(t, err, context.Canceled, "anew: %v", anew)
			require.ErrorIs(t, err, protocol.ErrUncertain, "anew: %v", anew)
			second.Leave(t.Context())
			stage.Calm()
		})
	}
}

// The node of a member is deleted by hand, and no round has begun. The member knows that, as it has
// seen all changes of the record but one.
func TestDeletedMemberOfNoRoundIsCertain(t *testing.T) {
	for changes := range 4 {
		synctest.Test(t, func(t *testing.T) {
			stage, path, e, cancel := oneWaits(t)

			conn := session(t, stage.Clients[1]).Conn()
			data, _ := suite.Get(t, stage.Clients[1], path+"/process")
			for i := range changes {
				if i == changes-1 {
					stage.Links[0].Delay(time.Millisecond)
				}
				_, err := conn.Set(path+"/process", data, -1)
				require.NoError(t, err)
				if i < changes-1 {
					synctest.Wait()
				}
			}

			stage.Links[0].Delay(time.Millisecond)
			node := suite.Children(t, stage.Clients[1], path+"/process")[0]
			require.NoError(t, conn.Delete(path+"/process/"+node, -1))
			cancel()
			_, err := e.wait()
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, protocol.ErrUncertain, "%d changes", changes)
			stage.Calm()
		})
	}
}

// The first member in line withdraws. Changes of the record that it has not heard of do not make
// that uncertain, as the record still names the first number in line.
func TestWithdrawalOfTheFirstInLineIsCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage, path, e, cancel := oneWaits(t)

		stage.Links[0].Delay(time.Millisecond)
		conn := session(t, stage.Clients[1]).Conn()
		data, _ := suite.Get(t, stage.Clients[1], path+"/process")
		for range 3 {
			_, err := conn.Set(path+"/process", data, -1)
			require.NoError(t, err)
		}
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		stage.Calm()
	})
}

// A member has created the node above the members, and is slow to write its number there. A round
// begins meanwhile, whose record stays.
func TestLateNumberDoesNotReplaceARecord(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		gate := &suite.Gate{Op: recipestest.OpSetData}
		slow := link.Client(t, gate.Option(link))
		session(t, slow)
		gate.Shut()
		late := enter(t.Context(), doublebarrier.New(slow, path, 1))
		synctest.Wait()
		require.True(t, gate.Holding())
		entry := enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)
		before, _ := suite.Get(t, c, path+"/process")
		gate.Open()
		_, err := late.wait()
		require.ErrorIs(t, err, doublebarrier.ErrFull)
		after, _ := suite.Get(t, c, path+"/process")
		require.Equal(t, string(before), string(after))
		leave(t, entry)
		vanishes(t, c, path)
	})
}

// Another client has cut the record short. Its numbers do not count: the member does not join until
// it has one as high.
func TestRecordThatIsCutShortDoesNotCount(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, watcher := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		persistent(t, watcher, path)
		cut := "zkrecipes/doublebarrier n=1 from=1000 rou"
		_, err := session(t, watcher).Conn().Set(path+"/process", []byte(cut), -1)
		require.NoError(t, err)
		leave(t, inside(t, path, link.Client(t))...)
		require.LessOrEqual(t, link.Count(recipestest.OpCreate), 2)
		vanishes(t, watcher, path)
	})
}

// Other clients' data leave no room for the gate in one request. No server gets to see that one.
func TestGateThatDoesNotFitIsRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, watcher := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		persistent(t, watcher, path)
		_, err := session(t, watcher).Conn().Set(path+"/process", make([]byte, protocol.MaxData-200), -1)
		require.NoError(t, err)
		_, err = doublebarrier.New(link.Client(t), path, 1).Enter(t.Context())
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.Equal(t, 1, link.Count(recipestest.OpConnect))
		joined(t, watcher, path, 0)
	})
}

// The node of a member is deleted by hand, and the record has changed once since the member read
// it. No round can have counted the member in one change.
func TestDeletedMemberThatHasReadTheRecordIsCertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		conn := session(t, c).Conn()
		leave(t, inside(t, path, c, c)...) // so the record has the number
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(link.Client(t), path, 2))
		joined(t, c, path, 1)
		synctest.Wait()

		link.Delay(time.Millisecond)
		node := suite.Children(t, c, path+"/process")[0]
		require.NoError(t, conn.Delete(path+"/process/"+node, -1))
		data, _ := suite.Get(t, c, path+"/process")
		_, err := conn.Set(path+"/process", data, -1)
		require.NoError(t, err)
		cancel()
		_, err = e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
	})
}

// The node of a member is deleted by hand when the member is about to write its number. It joins
// again.
func TestMemberThatIsDeletedBeforeItWritesJoinsAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, watcher := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		persistent(t, watcher, path) // so there is no number yet
		gate := &suite.Gate{Op: recipestest.OpMulti}
		c := link.Client(t, gate.Option(link))
		session(t, c)
		gate.Shut()
		e := enter(t.Context(), doublebarrier.New(c, path, 1))
		synctest.Wait()
		require.True(t, gate.Holding())
		first := suite.Children(t, watcher, path+"/process")
		require.Len(t, first, 1)
		require.NoError(t, session(t, watcher).Conn().Delete(path+"/process/"+first[0], -1))
		gate.Open()
		require.NotEqual(t, first[0], e.must(t).Node())
		leave(t, e.entry)
		vanishes(t, watcher, path)
	})
}

// The record was overwritten, and ready is deleted while a client looks for the gate.
func TestReadyMayGoWhileItIsRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, c := srv.Root(t), srv.Link(t), srv.Client(t)
		conn, onlooker := session(t, c).Conn(), link.Client(t)
		session(t, onlooker)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			entry := enter(t.Context(), doublebarrier.New(c, path, 1)).must(t)
			_, err := conn.Set(path+"/process", []byte("foreign"), -1)
			require.NoError(t, err)
			met := suite.At(link, step, func() { require.NoError(t, conn.Delete(path+"/ready", -1)) })
			members, err := doublebarrier.New(onlooker, path, 1).Waiting(t.Context())
			was := met()
			require.NoError(t, err, "step %d", step)
			require.Len(t, members, 1)
			leave(t, entry)
			return was
		})
	})
}

// Another client writes before the record when a gate is about to open. What it has written stays.
func TestGateThatOpensKeepsTheDataOfOthers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, watcher := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		gate := &suite.Gate{Op: recipestest.OpMulti}
		c := link.Client(t, gate.Option(link))
		first := enter(t.Context(), doublebarrier.New(watcher, path, 2))
		joined(t, watcher, path, 1)
		synctest.Wait()
		gate.Shut()
		second := enter(t.Context(), doublebarrier.New(c, path, 2))
		synctest.Wait()
		require.True(t, gate.Holding())

		const foreign = "foreign data "
		data, _ := suite.Get(t, watcher, path+"/process")
		_, err := session(t, watcher).Conn().Set(path+"/process", append([]byte(foreign), data...), -1)
		require.NoError(t, err)
		gate.Open()
		entries := []*doublebarrier.Entry{first.must(t), second.must(t)}
		for _, when := range []string{"the round", "its end"} {
			data, _ = suite.Get(t, watcher, path+"/process")
			require.Contains(t, string(data), foreign, when)
			leave(t, entries...)
		}
		vanishes(t, watcher, path)
	})
}

// loseGate deletes all that tells of a gate, but for its members.
func loseGate(t *testing.T, c *protocol.Client, path string) {
	t.Helper()
	conn := session(t, c).Conn()
	for _, node := range suite.Children(t, c, path) {
		if node != "process" {
			require.NoError(t, conn.Delete(path+"/"+node, -1))
		}
	}
	_, err := conn.Set(path+"/process", nil, -1)
	require.NoError(t, err)
}

// A gate has counted a member, and all that told of it is deleted by hand before the member has
// heard of it. Its node is there still. It does not claim that it was not counted.
func TestMemberThatWasCountedByALostGateIsUncertain(t *testing.T) {
	for _, how := range []string{"withdraws", "joins again", "is told by another to join again"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stage, path, first, cancel := oneWaits(t)
				if how == "withdraws" {
					stage.Links[0].Delay(time.Millisecond)
				} else {
					stage.Links[0].Cut()
				}
				second := enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2)).must(t)
				loseGate(t, stage.Clients[1], path)

				if how == "is told by another to join again" {
					ctx, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					_, err := doublebarrier.New(stage.Clients[1], path, 2).Enter(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, protocol.ErrUncertain)
				}
				if how != "withdraws" {
					stage.Links[0].Heal()
					time.Sleep(time.Minute / 4)
					require.NotSubset(t, second.Members(), suite.Children(t, stage.Clients[1], path+"/process"))
				}

				cancel()
				_, err := first.wait()
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, protocol.ErrUncertain)
				leave(t, second)
				stage.Calm()
			})
		})
	}
}

// As before, and the member loses its session. The server knows its node still.
func TestMemberOfALostSessionAndALostGateIsUncertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		c, other := link.Client(t), srv.Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, other, path, 1)
		synctest.Wait()

		s := session(t, c)
		link.Cut()
		second := enter(t.Context(), doublebarrier.New(other, path, 2)).must(t)
		loseGate(t, other, path)
		srv.Embedded().SetClockRate(0.1) // the server keeps the session
		suite.Wait(t, s.Done())
		require.Subset(t, suite.Children(t, other, path+"/process"), second.Members())
		link.Heal()
		link.TearRequest(recipestest.OpClose, 1) // and the client cannot close it yet
		time.Sleep(time.Second)
		require.NotSubset(t, suite.Children(t, other, path+"/process"), second.Members())

		cancel()
		_, err := first.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		srv.Embedded().SetClockRate(1)
		leave(t, second)
	})
}

func TestForeignNodesDoNotSlowALeave(t *testing.T) {
	for _, n := range []int{3, 9} {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path := srv.Root(t) + "/b"
			c := srv.Client(t)
			persistent(t, c, path)
			for i := range 20 {
				_, err := session(t, c).Conn().Create(fmt.Sprintf("%s/process/foreign%d", path, i), nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}

			entries := inside(t, path, clients(t, srv, n)...)
			began := time.Now()
			leave(t, entries...)
			require.Zero(t, time.Since(began))
		})
	}
}

// All members but the opener have died or left, and the opener's own node is gone. The server
// removes the container before the opener has closed the gate.
func TestReadyGoesThoughTheRecordIsGone(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		link := srv.Link(t)
		opener, other := link.Client(t), srv.Client(t)
		first := enter(patient(t), doublebarrier.New(other, path, 2))
		joined(t, other, path, 1)
		entry := enter(patient(t), doublebarrier.New(opener, path, 2)).must(t)
		conn := session(t, other).Conn()
		first.must(t)

		asked := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
		left := make(chan error, 1)
		go func() { left <- entry.Leave(patient(t)) }()
		<-asked // who is left

		wipe(t, conn, path+"/process")
		require.NoError(t, <-left)
		vanishes(t, other, path)
		there := suite.Exists(t, other, path)
		if there {
			children := suite.Children(t, other, path)
			require.Empty(t, children)
		}
	})
}

// Each node of a gate is deleted by hand, or the record is overwritten, during a round or after the
// death of all its members. The next round comes about. In the end nothing is left but the data of
// other clients.
func TestNextRoundComesAboutWhateverWasLostOfTheGate(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, lost := range []string{"ready", "ID node", "both", "record", "record and ID node"} {
			for _, dead := range []bool{false, true} {
				path := srv.Root(t) + "/b"
				cs, watcher := clients(t, srv, 2), srv.Client(t)
				persistent(t, watcher, path)
				conn := session(t, watcher).Conn()
				first := enter(patient(t), doublebarrier.New(cs[0], path, 2))
				joined(t, watcher, path, 1)
				opened := enter(patient(t), doublebarrier.New(cs[1], path, 2)).must(t)
				first.must(t)

				nodes := suite.Children(t, watcher, path)
				for _, node := range nodes {
					isReady, isID := node == "ready", strings.HasPrefix(node, "ready-")
					if isReady && (lost == "ready" || lost == "both") || isID && lost != "ready" && lost != "record" {
						require.NoError(t, conn.Delete(path+"/"+node, -1))
					}
				}

				foreign := strings.HasPrefix(lost, "record")
				if foreign {
					_, err := conn.Set(path+"/process", []byte("foreign"), -1)
					require.NoError(t, err)
				}
				if dead { // but for the opener's session, whose nodes remain
					srv.ExpireSession(session(t, cs[0]).ID())
					require.NoError(t, conn.Delete(path+"/process/"+opened.Node(), -1))
					joined(t, watcher, path, 0)
				} else {
					leave(t, first.entry, opened)
				}

				b := doublebarrier.New(watcher, path, 2)
				round(t, b, b)
				data, _ := suite.Get(t, watcher, path+"/process")
				require.Equal(t, foreign, strings.HasPrefix(string(data), "foreign"), "%s, %v: %q", lost, dead, data)
				require.NotContains(t, string(data), "member", "%s, %v", lost, dead)
				empty(t, watcher, path)
			}
		}
	})
}

// Other clients have deleted the gate of a round that is under way. Only its members are left,
// which were counted.
func TestCountedByALostGate(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		conn := session(t, c).Conn()

		entries := inside(t, path, clients(t, srv, 2)...)
		nodes := suite.Children(t, c, path)
		for _, node := range nodes {
			if node != "process" {
				require.NoError(t, conn.Delete(path+"/"+node, -1))
			}
		}
		_, err := conn.Set(path+"/process", nil, -1)
		require.NoError(t, err)

		b := doublebarrier.New(c, path, 2)
		round(t, b, b)
		leave(t, entries...)
	})
}

// The record was overwritten, so ready alone says that a round is under way. A member that waits
// for the next round does not ask again and again.
func TestMemberWaitsForTheEndOfARoundWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 3)
		path := stage.Root(t) + "/b"
		entries := inside(t, path, stage.Clients[:2]...)
		_, err := session(t, stage.Clients[0]).Conn().Set(path+"/process", []byte("foreign"), -1)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		session(t, stage.Clients[2])
		stop := stage.Links[2].At(200, cancel)
		defer stop()
		next := enter(ctx, doublebarrier.New(stage.Clients[2], path, 1, doublebarrier.WithWaiting()))
		time.Sleep(5 * time.Second)
		require.NoError(t, ctx.Err(), "it has sent too much")
		leave(t, entries...)
		require.NoError(t, next.must(t).Leave(t.Context()))
	})
}

// A gate opens while a member is at any step of Enter, perhaps between reading the record and
// ready. That member leaves last, and clears the record.
func TestRecordIsReadAgainWhenAGateOpensMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link, other := srv.Link(t), srv.Client(t)
			late := link.Client(t)
			defer suite.Close(t, late, other)
			session(t, late)
			persistent(t, other, path) // with the data from the beginning: such a record is not lost
			conn := session(t, other).Conn()
			require.NoError(t, conn.Delete(path+"/process", -1))
			_, err := conn.Create(path+"/process", []byte("foreign"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)

			met := suite.At(link, step, func() { slow(srv, link, 0) })
			first := enter(t.Context(), doublebarrier.New(late, path, 2))
			time.Sleep(10 * time.Millisecond)
			second := enter(t.Context(), doublebarrier.New(other, path, 2)).must(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			second.Leave(ctx) // and does not wait, so the other one has to do it
			require.NoError(t, first.must(t).Leave(t.Context()))
			data, _ := suite.Get(t, other, path+"/process")
			require.Regexp(t, `^foreign.*rounds=1\n$`, string(data), "step %d", step)
			return met()
		})
	})
}

// The opener waits for the others no longer when the last of them dies. Its session lasts, and no
// other member comes.
func TestGateGoesThoughItsOpenerHasStoppedWaiting(t *testing.T) {
	for _, how := range []string{"its ctx has ended", "its function has panicked"} {
		t.Run(how, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, dies, opener := srv.Root(t)+"/b", srv.Client(t), srv.Client(t)
				other := enter(t.Context(), doublebarrier.New(dies, path, 2))
				joined(t, opener, path, 1)

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				do := func() error {
					return doublebarrier.New(opener, path, 2).Do(ctx, func(context.Context) error {
						other.must(t)
						if how == "its function has panicked" {
							panic(how)
						}
						cancel()
						return nil
					})
				}
				if how == "its function has panicked" {
					require.PanicsWithValue(t, how, func() { do() })
				} else {
					require.ErrorIs(t, do(), context.Canceled)
				}
				synctest.Wait()
				require.True(t, suite.Exists(t, opener, path+"/ready"))

				suite.Expire(srv, session(t, dies).ID())
				vanishes(t, opener, path)
			})
		})
	}
}

// A round has died but for its opener, which has left and is cut off, so ready stays. The server
// removes process, whose numbers begin again. Members that come then do not wait until those are as
// high as they were.
func TestNumbersBeginAgainBesideAReadyThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/b"
		for number := range int64(9) {
			requireRound(t, srv, path, number+1)
		}

		dies, watcher, link := srv.Client(t), srv.Client(t), srv.Link(t)
		opener := link.Client(t)
		first := enter(t.Context(), doublebarrier.New(dies, path, 2))
		joined(t, watcher, path, 1)
		second := enter(t.Context(), doublebarrier.New(opener, path, 2)).must(t)
		first.must(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, second.Leave(ctx), context.DeadlineExceeded)
		link.Cut()
		require.NoError(t, dies.Close())
		srv.Embedded().ReapContainers()
		require.False(t, suite.Exists(t, watcher, path+"/process"))
		require.True(t, suite.Exists(t, watcher, path+"/ready"))

		next := inside(t, path, clients(t, srv, 2)...)
		for _, e := range next {
			require.EqualValues(t, 11, e.Round())
			require.Contains(t, e.Node(), "-1-of-2-", "it has joined again")
		}
		leave(t, next...)
	})
}

// The record was copied to another path, or server, with or without a gate. The numbers of the copy
// begin again, but for those of the rounds.
func TestCopiedRecordIsOfUse(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		original, watcher := srv.Root(t)+"/b", srv.Client(t)
		for number := range int64(3) {
			requireRound(t, srv, original, number+1, doublebarrier.WithKeptRounds())
		}
		cs := clients(t, srv, 2)
		open := inside(t, original, cs...)
		suite.CatchUp(t, watcher)
		withGate, _ := suite.Get(t, watcher, original+"/process")
		leave(t, open...)
		suite.CatchUp(t, watcher)
		without, _ := suite.Get(t, watcher, original+"/process")
		require.NotEqual(t, withGate, without)

		for _, record := range [][]byte{withGate, without} {
			path := srv.Root(t) + "/b"
			persistent(t, watcher, path)
			conn := session(t, watcher).Conn()
			require.NoError(t, conn.Delete(path+"/process", -1))
			_, err := conn.Create(path+"/process", record, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)

			for _, c := range cs {
				suite.CatchUp(t, c)
			}
			next := inside(t, path, cs...)
			for _, e := range next {
				require.EqualValues(t, 5, e.Round())
				require.Contains(t, e.Node(), "-1-of-2-", "it has joined again")
			}
			leave(t, next...)
			empty(t, watcher, path)
		}
	})
}
