package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// inside returns the entries of n members that have entered, each of a client of its own.
func inside(t *testing.T, path string, cs ...*protocol.Client) (entries []*doublebarrier.Entry) {
	t.Helper()
	var all []*entering
	for _, c := range cs {
		all = append(all, enter(patient(t), doublebarrier.New(c, path, len(cs))))
	}

	for _, e := range all {
		entries = append(entries, e.must(t))
	}
	return entries
}

// leave leaves with all of them.
func leave(t *testing.T, entries ...*doublebarrier.Entry) {
	t.Helper()
	var leaving group
	for _, e := range entries {
		leaving.Go(func() error { return e.Leave(patient(t)) })
	}
	require.NoError(t, leaving.Wait())
}

func TestMemberThatDiesBeforeTheGateIsReplaced(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		watcher := srv.Client(t)
		dead, live, next := srv.Client(t), srv.Client(t), srv.Client(t)

		d := enter(patient(t), doublebarrier.New(dead, path, 3))
		l := enter(patient(t), doublebarrier.New(live, path, 3))
		joined(t, watcher, path, 2)

		suite.Close(t, dead)
		_, err := d.wait()
		require.ErrorIs(t, err, protocol.ErrClosed)

		n := enter(patient(t), doublebarrier.New(next, path, 3))
		joined(t, watcher, path, 2)
		last := enter(patient(t), doublebarrier.New(next, path, 3))
		require.ElementsMatch(t, []string{l.must(t).Node(), n.must(t).Node(), last.must(t).Node()}, l.must(t).Members())
		leave(t, l.entry, n.entry, last.entry)
	})
}

func TestMemberThatDiesInsideCountsAsLeft(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, when := range []string{"before the others leave", "while the others wait"} {
			t.Run(when, func(t *testing.T) {
				path := srv.Root(t) + "/b"
				const n, deaths = 9, 2
				cs := clients(t, srv, n)
				entries := inside(t, path, cs...)

				kill := func() {
					for i := range deaths {
						srv.ExpireSession(session(t, cs[i]).ID())
					}
				}
				var leaving group
				leaveAll := func() {
					for _, e := range entries[deaths:] {
						leaving.Go(func() error { return e.Leave(patient(t)) })
					}
				}

				if when == "before the others leave" {
					kill()
					leaveAll()
				} else {
					leaveAll()
					joined(t, cs[n-1], path, deaths)
					kill()
				}

				require.NoError(t, leaving.Wait())
				for _, e := range entries[:deaths] {
					<-e.Done()
					require.ErrorIs(t, e.Leave(patient(t)), protocol.ErrLost)
				}
				vanishes(t, cs[n-1], path)
			})
		}
	})
}

// Many members die at once when all others have left already. None of those waits for the dead ones
// in particular.
func TestLeaversNoticeThatAllOthersHaveDied(t *testing.T) {
	for _, die := range []int{1, 4, 7, 8} {
		synctest.Test(t, func(t *testing.T) {
			const n = 9
			stage := suite.NewStage(t, n)
			path := stage.Root(t) + "/b"
			entries := inside(t, path, stage.Clients...)

			var leaving group
			for i, e := range entries[die:] {
				leaving.Go(func() error { return e.Leave(t.Context()) })
				joined(t, stage.Clients[n-1], path, n-1-i)
			}

			synctest.Wait()
			for _, l := range stage.Links[:die] {
				l.Stall()
			}

			began := time.Now()
			require.NoError(t, leaving.Wait())
			require.Less(t, time.Since(began), 20*time.Second)
			vanishes(t, stage.Clients[n-1], path)
			stage.Calm()
		})
	}
}

// The leavers that wait for the last member die, too.
func TestNoLeaverIsStrandedWhenTheLastFewDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 8
		stage := suite.NewStage(t, n)
		path := stage.Root(t) + "/b"
		entries := inside(t, path, stage.Clients...)

		left := make(chan error, n)
		for i, e := range entries[:n-1] {
			go func() { left <- e.Leave(t.Context()) }()
			joined(t, stage.Clients[0], path, n-1-i)
		}

		synctest.Wait()
		for _, c := range stage.Clients[2:] { // among them all that saw that few are left
			require.NoError(t, c.Close())
		}

		var ended, closed int
		for range n - 1 {
			switch err := <-left; {
			case err == nil:
				ended++
			case errors.Is(err, protocol.ErrClosed):
				closed++
			default:
				require.NoError(t, err)
			}
		}

		require.GreaterOrEqual(t, ended, 2)
		vanishes(t, stage.Clients[0], path)
	})
}

func TestStaleGateIsRemovedByTheNext(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		for _, n := range []int{1, 2, 3} {
			path := srv.Root(t) + "/b"
			cs := clients(t, srv, n)
			persistent(t, cs[0], path) // or the server would remove the gate's record with its container
			entries := inside(t, path, cs...)

			for _, c := range cs {
				srv.ExpireSession(session(t, c).ID())
			}
			for _, e := range entries {
				<-e.Done()
			}

			watcher := srv.Client(t)
			data, _ := suite.Get(t, watcher, path+"/process")
			require.Contains(t, string(data), entries[0].Node(), "a gate is left")

			if n > 1 {
				var next []*entering
				for i := range n - 1 {
					next = append(next, enter(patient(t), doublebarrier.New(cs[i], path, n)))
				}
				joined(t, watcher, path, n-1)
				select {
				case <-next[0].done:
					require.FailNow(t, "let in by a stale gate")
				case <-time.After(20 * time.Millisecond):
				}

				next = append(next, enter(patient(t), doublebarrier.New(watcher, path, n)))
				var in []*doublebarrier.Entry
				for _, e := range next {
					require.Greater(t, e.must(t).Token(), entries[0].Token())
					in = append(in, e.entry)
				}
				leave(t, in...)
				continue
			}
			round(t, doublebarrier.New(watcher, path, n))
		}
	})
}

// A removal is on its way for long. It must not remove the gate of a later round.
func TestLateRemovalDoesNotHitALaterGate(t *testing.T) {
	const slow = time.Second
	for after := range 12 {
		synctest.Test(t, func(t *testing.T) {
			stage := suite.NewStage(t, 3)
			path := stage.Root(t) + "/b"
			link := stage.Links[0]
			late := doublebarrier.New(stage.Clients[0], path, 1)
			e, err := late.Enter(t.Context())
			require.NoError(t, err)

			stop := link.At(after+1, func() { link.Delay(slow) })
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), slow/4)
			defer cancel()
			e.Leave(ctx)
			// Meanwhile the other clients are inside a barrier of their own.

			others := inside(t, path+"2", stage.Clients[1:]...)
			for _, o := range others {
				require.NoError(t, o.Err())
			}

			second := doublebarrier.New(stage.Clients[1], path, 1, doublebarrier.WithWaiting())
			for range 5 {
				in, err := second.Enter(t.Context())
				require.NoError(t, err)
				token := in.Token()
				time.Sleep(3 * slow)
				_, stat := suite.Get(t, stage.Clients[1], path+"/ready")
				require.Equal(t, token, stat.Czxid)
				require.NoError(t, in.Leave(t.Context()))
			}

			var all group
			for _, o := range others {
				all.Go(func() error { return o.Leave(t.Context()) })
			}
			require.NoError(t, all.Wait())
		})
	}
}

// A member is cut off when its gate opens. It enters, though the others have left long since.
func TestSlowMemberEntersWhenFastOnesHaveLeft(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		link := srv.Link(t)
		slow, watcher := link.Client(t), srv.Client(t)

		e := enter(patient(t), doublebarrier.New(slow, path, 3))
		joined(t, watcher, path, 1)
		<-link.Answered(recipestest.OpGetData, 1) // the record
		link.Cut()

		b := doublebarrier.New(watcher, path, 3)
		first, second := enter(patient(t), b), enter(patient(t), b)
		first.must(t)
		second.must(t)

		var leaving group
		leaving.Go(func() error { return first.entry.Leave(patient(t)) })
		leaving.Go(func() error { return second.entry.Leave(patient(t)) })
		joined(t, watcher, path, 1)

		link.Heal()
		require.Equal(t, first.entry.Members(), e.must(t).Members())
		require.NoError(t, e.entry.Leave(patient(t)))
		require.NoError(t, leaving.Wait())
		empty(t, watcher, path)
	})
}

func TestForeignNodesAreIgnored(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		persistent(t, c, path)
		conn := session(t, c).Conn()
		_, err := conn.Set(path+"/process", []byte("foreign data"), -1)
		require.NoError(t, err)

		foreign := []string{"a", "member-", "member-1", "ready", "x-member-00000000001", "y", "z"}
		for _, name := range foreign {
			for _, dir := range []string{path + "/process/", path + "/not-"} {
				_, err := conn.Create(dir+name, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}
		}

		b := doublebarrier.New(c, path, 2)
		early := doublebarrier.New(srv.Client(t), path, 2)
		for range 3 {
			first := enter(patient(t), early)
			joined(t, c, path, len(foreign)+1)
			second := enter(patient(t), b)
			require.Len(t, first.must(t).Members(), 2)
			require.Equal(t, first.entry.Members(), second.must(t).Members())

			var leaving group
			leaving.Go(func() error { return first.entry.Leave(patient(t)) })
			require.NoError(t, second.entry.Leave(patient(t)))
			require.NoError(t, leaving.Wait())
		}
		data, stat := suite.Get(t, c, path+"/process")
		require.Regexp(t, `^foreign data.*rounds=3\n$`, string(data))
		require.EqualValues(t, len(foreign), stat.NumChildren)

		_, err = conn.Create(path+"/ready", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		first := enter(patient(t), early)
		_, err = b.Enter(patient(t))
		require.ErrorContains(t, err, "not a gate")
		_, err = first.wait()
		require.ErrorContains(t, err, "not a gate")
		children := suite.Children(t, c, path+"/process")
		require.Len(t, children, len(foreign))
	})
}

// The node of a waiting member is deleted, with all above it: it joins again. A member inside
// notices the loss.
func TestParentsMayVanish(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c, watcher := srv.Client(t), srv.Client(t)
		b := doublebarrier.New(c, path, 2)
		ctx := patient(t)

		first := enter(ctx, b)
		joined(t, watcher, path, 1)
		conn := session(t, watcher).Conn()
		for range 3 {
			wipe(t, conn, path+"/process")
			joined(t, watcher, path, 1)
		}

		second := enter(ctx, b)
		entries := []*doublebarrier.Entry{first.must(t), second.must(t)}
		wipe(t, conn, path)
		for _, e := range entries {
			<-e.Done()
			require.ErrorIs(t, e.Err(), protocol.ErrLost)
			require.ErrorIs(t, e.Leave(ctx), protocol.ErrLost)
		}

		round(t, b, b)
		wipe(t, conn, path)
		round(t, b, b)
	})
}

// wipe deletes the node and all below it.
func wipe(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	for {
		_, err := conn.Sync(path) // others have made what is there
		require.NoError(t, err)
		children, _, err := conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		require.NoError(t, err)
		for _, c := range children {
			wipe(t, conn, path+"/"+c)
		}

		if err = conn.Delete(path, -1); err == nil {
			return
		}
		if !errors.Is(err, zk.ErrNoNode) {
			require.ErrorIs(t, err, zk.ErrNotEmpty)
			return // it has come again
		}
	}
}

func TestEnterGoesOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c, watcher := srv.Client(t), srv.Client(t)
		e := enter(patient(t), doublebarrier.New(c, path, 2))
		for range 3 {
			joined(t, watcher, path, 1)
			srv.ExpireSession(session(t, c).ID())
		}

		other := enter(patient(t), doublebarrier.New(watcher, path, 2, doublebarrier.WithWaiting()))
		if members := other.must(t).Members(); members[0] != e.must(t).Node() && members[1] != e.must(t).Node() {
			require.FailNow(t, "not together")
		}
		leave(t, e.entry, other.entry)
	})
}

func TestLeaveWaitsOnInTheNextSession(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		link := srv.Link(t)
		c, other := link.Client(t), srv.Client(t)

		entries := inside(t, path, c, other)
		heard := link.Sent(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
		left := make(chan error, 1)
		go func() { left <- entries[0].Leave(patient(t)) }()
		<-heard // that its node is gone, and it lists the members that are left

		srv.ExpireSession(session(t, c).ID())
		select {
		case err := <-left:
			require.FailNow(t, "left too early", "%v", err)
		case <-time.After(50 * time.Millisecond):
		}

		require.NoError(t, entries[1].Leave(patient(t)))
		require.NoError(t, <-left)
		vanishes(t, other, path)
	})
}

// At every packet of a member that leaves, it meets a fault.
func TestFaultAtEachStepOfLeave(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			for _, last := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/last=%v", f.Name, last), func(t *testing.T) {
					t.Parallel()
					suite.Sweep(t, func(step int) bool {
						path := pathOf(root, t.Name(), step)
						link := srv.Link(t)
						victim, sound := link.Client(t), srv.Client(t)
						defer suite.Close(t, victim, sound)

						entries := inside(t, path, victim, sound)
						var leaving group
						var err error
						if last {
							leaving.Go(func() error { return entries[1].Leave(patient(t)) })
							joined(t, sound, path, 1)
						}

						id := session(t, victim).ID()
						over := suite.At(link, step, func() { f.Do(srv, link, id) })
						if !last {
							leaving.Go(func() error { return entries[1].Leave(patient(t)) })
						}

						err = entries[0].Leave(patient(t))
						if err != nil && f.Name == "expiry" {
							require.ErrorIs(t, err, protocol.ErrLost)
						} else {
							require.NoError(t, err, "step %d", step)
						}

						require.NoError(t, leaving.Wait(), "step %d", step)
						met := over()
						link.Heal()
						vanishes(t, sound, path)
						return met
					})
				})
			}
		}
	})
}

// Enter returns in time though no server answers. It reports that the outcome is unknown, and
// leaves nothing behind.
func TestEnterReturnsInTimeWhenTheNetworkIsSilent(t *testing.T) {
	for _, counted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stage := suite.NewStage(t, 2)
			path := stage.Root(t) + "/b"

			ctx, cancel := context.WithCancel(t.Context())
			e := enter(ctx, doublebarrier.New(stage.Clients[0], path, 2))
			joined(t, stage.Clients[1], path, 1)
			synctest.Wait()

			stage.Links[0].Stall()
			other := &entering{}
			if counted {
				other = enter(t.Context(), doublebarrier.New(stage.Clients[1], path, 2))
				other.must(t)
			}

			cancel()
			began := time.Now()
			_, err := e.wait()
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, protocol.ErrUncertain)

			stage.Calm()
			if counted {
				require.NoError(t, other.entry.Leave(t.Context()))
			}
			vanishes(t, stage.Clients[1], path)
		})
	}
}

// The outcome of what was never sent is known.
func TestEnterThatWasNeverSentIsCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 1)
		path := stage.Root(t) + "/b"
		session(t, stage.Clients[0])
		stage.Links[0].Cut()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := doublebarrier.New(stage.Clients[0], path, 1).Enter(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		stage.Calm()
	})
}

// A member's request is lost on the way, and its back-off does not allow another attempt.
func TestEnterReturnsTheErrorThatEndsItsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		root := stage.Root(t)
		link, watcher := stage.Links[0], stage.Clients[1]
		impatient := stage.Clients[0].With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		gaveUp := false
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			persistent(t, watcher, path)
			session(t, impatient)
			synctest.Wait()

			met := suite.At(link, step, func() { link.Cut(); link.Heal() })
			e, err := doublebarrier.New(impatient, path, 1).Enter(t.Context())
			was := met()
			if err != nil {
				require.ErrorContains(t, err, "given up", "step %d", step)
				gaveUp = true
			} else {
				require.NotNil(t, e, "step %d: neither an entry nor an error", step)
				e.Leave(t.Context()) // perhaps its back-off ends, too
			}
			vanishes(t, watcher, path)
			return was
		})
		require.True(t, gaveUp)
		stage.Calm()
	})
}

// A member is counted although its back-off has ended before the answer to its request came. The
// others do not wait for it to leave.
func TestMemberThatIsCountedAfterItsBackOffHasEndedLeaves(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		impatient := link.Client(t, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		watcher := srv.Client(t)
		persistent(t, watcher, path)
		session(t, impatient)
		synctest.Wait()

		link.LoseReply(recipestest.OpCreate, 1)
		link.LoseReply(recipestest.OpSync, 1) // before it looks for its node
		_, err := doublebarrier.New(impatient, path, 2).Enter(t.Context())
		link.Cut()
		require.ErrorContains(t, err, "given up")
		require.ErrorIs(t, err, protocol.ErrUncertain)
		other := enter(suite.Lasting(t), doublebarrier.New(watcher, path, 2)).must(t)
		require.Len(t, other.Members(), 2)
		link.Heal()
		require.NoError(t, other.Leave(suite.Lasting(t)))
		vanishes(t, watcher, path)
	})
}

// A member was counted, and its session has to be confirmed before it enters. Enter does not wait
// for that when its ctx ends.
func TestEnterThatIsGivenUpAsItIsCountedIsUncertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c, watcher := link.Client(t, gate.Option(link)), srv.Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, watcher, path, 1)
		time.Sleep(10 * session(t, c).Timeout())

		gate.Shut()
		other := enter(suite.Lasting(t), doublebarrier.New(watcher, path, 2)).must(t)
		synctest.Wait()
		require.True(t, gate.Holding())
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		gate.Open()
		require.NoError(t, other.Leave(suite.Lasting(t)))
	})
}

// The member that a session has taken along may have been counted by a round that is over.
func TestEnterThatHasLostASessionIsUncertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, watcher := srv.Root(t)+"/b", srv.Client(t), srv.Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, watcher, path, 1)
		srv.ExpireSession(session(t, c).ID())
		joined(t, watcher, path, 1)
		synctest.Wait()
		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, protocol.ErrUncertain)
	})
}

// What became of the member of the first of two lost sessions stays unknown, though that of the
// second one is found and withdrawn.
func TestEnterThatHasLostTwoSessionsIsUncertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/b", srv.Link(t)
		c, watcher := link.Client(t), srv.Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		e := enter(ctx, doublebarrier.New(c, path, 2))
		joined(t, watcher, path, 1)
		srv.ExpireSession(session(t, c).ID())
		joined(t, watcher, path, 1)
		synctest.Wait()

		s, second := session(t, c), suite.Children(t, watcher, path+"/process")
		srv.Embedded().SetClockRate(0.1) // the server keeps the session
		link.Cut()
		suite.Wait(t, s.Done())
		require.Equal(t, second, suite.Children(t, watcher, path+"/process"))
		link.Heal()
		link.TearRequest(recipestest.OpClose, 1) // and the client cannot close it yet
		time.Sleep(time.Second)
		third := suite.Children(t, watcher, path+"/process")
		require.Len(t, third, 1)
		require.NotEqual(t, second, third)

		cancel()
		_, err := e.wait()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		srv.Embedded().SetClockRate(1)
	})
}

// A member dies while the last one arrives. If there is no gate by then, it is not counted.
func TestMemberThatDiesBeforeTheGateOpensIsNotCounted(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, far, link := srv.Root(t)+"/d", srv.Link(t), srv.Link(t)
			dying, c := far.Client(t), link.Client(t)
			conn, session := suite.Session(t, srv.Client(t)).Conn(), suite.Session(t, dying).ID()
			ctx, cancel := context.WithCancel(t.Context())
			first := enter(ctx, doublebarrier.New(dying, path, 2))
			time.Sleep(time.Second)

			open := true
			over := suite.At(link, step, func() {
				far.Cut()
				srv.ExpireSession(session)
				var err error
				open, _, err = conn.Exists(path + "/ready")
				require.NoError(t, err)
			})
			bounded, stop := context.WithTimeout(ctx, 5*time.Minute)
			entry, err := doublebarrier.New(c, path, 2).Enter(bounded)
			stop()
			if met = over(); met && !open {
				require.ErrorIs(t, err, context.DeadlineExceeded, "step %d", step)
			}
			if err == nil {
				entry.Leave(patient(t)) // the other one may be gone
			}
			cancel()
			far.Heal()
			if entry, err := first.wait(); err == nil {
				entry.Leave(patient(t)) // its session may be over
			}
		})
		return met
	})
}
