package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestObserveYieldsThePresentAndEveryChange(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/observed"
		onlooker := srv.Client(t)
		observer := election.New(onlooker, path)
		early := observed(t, t.Context(), observer)
		require.Equal(t, "vacant", next(t, early))

		var wait suite.Group
		a := campaign(t, srv.Client(t), path, "a")
		require.Equal(t, "a", next(t, early))
		late := observed(t, t.Context(), observer)
		require.Equal(t, "a", next(t, late))
		both := func(want string) {
			t.Helper()
			require.Equal(t, want, next(t, early))
			require.Equal(t, want, next(t, late))
		}

		require.NoError(t, a.Proclaim(t.Context(), []byte("a, ready")))
		both("a, ready")
		wonB := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		wonC := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		resign(t, a)
		both("b")
		resign(t, next(t, wonB))
		both("c")
		resign(t, next(t, wonC))
		both("vacant")
		d := campaign(t, srv.Client(t), path, "d")
		both("d")
		resign(t, d)
		both("vacant")
		require.NoError(t, wait.Wait())
	})
}

func TestObserveSeesTheLineComeAndGo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/reaped"
		changes := observed(t, t.Context(), election.New(srv.Client(t), path))
		require.Equal(t, "vacant", next(t, changes), "the path does not exist")

		for i := range 3 {
			term := campaign(t, c, path, fmt.Sprint(i))
			require.Equal(t, fmt.Sprint(i), next(t, changes))
			resign(t, term)
			require.Equal(t, "vacant", next(t, changes))
			err := suite.Session(t, c).Conn().Delete(path, -1)
			if !errors.Is(err, zk.ErrNoNode) { // the server may have removed the container first
				require.NoError(t, err)
			}
		}
	})
}

func TestObserverCostsOneReadForEachLeaderAndNoListing(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		const n = 6
		onlooker, path := srv.Client(t), srv.Root(t)+"/cheap"
		var wait suite.Group
		var won []<-chan *election.Term
		for i := range n {
			won = append(won, stand(t, onlooker, srv.Client(t), path, fmt.Sprint(i), i, &wait))
		}

		link := srv.Link(t)
		e := election.New(link.Client(t), path)
		changes := []<-chan string{observed(t, t.Context(), e), observed(t, t.Context(), e), observed(t, t.Context(), e)}

		for i := range n - 1 {
			for _, c := range changes {
				require.Equal(t, fmt.Sprint(i), next(t, c))
			}
			if i == 0 {
				require.LessOrEqual(t, link.Count(recipestest.OpGetChildren), len(changes)*(1+again(t, link)))
			}
			reads := link.Count(recipestest.OpGetData)
			require.LessOrEqual(t, reads, i+1+len(changes)*again(t, link), "three observers of one client share it")
			resign(t, next(t, won[i]))
		}

		for _, c := range changes {
			require.Equal(t, fmt.Sprint(n-1), next(t, c))
		}

		listings, events := link.Count(recipestest.OpGetChildren), link.Events()
		require.LessOrEqual(t, listings, len(changes)*(1+again(t, link)), "the line was listed only at the beginning")
		require.LessOrEqual(t, events, n-1+again(t, link))
		resign(t, next(t, won[n-1]))
		require.NoError(t, wait.Wait())
	})
}

func TestObserveSurvivesSessionLossAndEndsWithItsContext(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/lost"
		c := srv.Client(t)
		e := election.New(c, path)
		ctx, cancel := context.WithCancelCause(t.Context())
		changes := observed(t, ctx, e)
		require.Equal(t, "vacant", next(t, changes))
		a := campaign(t, srv.Client(t), path, "a")
		require.Equal(t, "a", next(t, changes))
		old := suite.Session(t, c)
		srv.ExpireSession(old.ID())
		<-old.Done()
		resign(t, a)
		require.Equal(t, "vacant", next(t, changes), "and a was not yielded twice")
		b := campaign(t, srv.Client(t), path, "b")
		require.Equal(t, "b", next(t, changes))
		cancel(errors.New("enough"))
		require.Equal(t, "error: election: "+path+": context canceled: enough", next(t, changes))
		_, more := <-changes
		require.False(t, more)
		resign(t, b)

		again := observed(t, t.Context(), e)
		require.Equal(t, "vacant", next(t, again))
		require.NoError(t, c.Close())
		require.Contains(t, next(t, again), protocol.ErrClosed.Error())
	})
}

func TestLoopMayEndAtAnyChange(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/break"
		e := election.New(srv.Client(t), path)
		for l, err := range e.Observe(t.Context()) {
			require.NoError(t, err)
			require.True(t, l.Vacant())
			break
		}

		term := campaign(t, srv.Client(t), path, "a")

		for range 100 {
			for l, err := range e.Observe(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, election.Leader{Value: []byte("a"), Token: term.Token()}, l)
				break
			}
		}

		resign(t, term)
	})
}

func TestLeaderIsNoOlderThanTheCall(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/leader"
		link := srv.Link(t)
		e := election.New(link.Client(t), path)
		_, err := e.Leader(t.Context())
		require.ErrorIs(t, err, election.ErrNoLeader)
		c := srv.Client(t)

		for i := range 5 {
			term := campaign(t, c, path, fmt.Sprint(i))
			syncs := link.Count(recipestest.OpSync)
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, election.Leader{Value: fmt.Append(nil, i), Token: term.Token()}, l)
			require.Greater(t, link.Count(recipestest.OpSync), syncs, "a server that lags behind has to catch up first")
			resign(t, term)
			_, err = e.Leader(t.Context())
			require.ErrorIs(t, err, election.ErrNoLeader)
		}
	})
}

// A fault of any length, at any step of an observation, only delays what is yielded.
func TestObserveEndsOnTheNewestDespiteFaults(t *testing.T) {
	for _, f := range append(suite.QuickFaults, suite.SlowFaults(10*time.Second)...) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				suite.Sweep(t, func(step int) bool { return observeThrough(t, srv, fmt.Sprintf("%s/%d", root, step), f, step) })
			})
		})
	}
}

func observeThrough(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, step int) (met bool) {
	link := srv.Link(t)
	victim, leader := link.Client(t), srv.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	session := suite.Session(t, victim).ID()
	stop := link.At(step, func() { f.Do(srv, link, session) })
	changes := observed(t, ctx, election.New(victim, path))
	last := ""
	settle := func(want string) {
		t.Helper()
		late := time.After(time.Minute)
		for last != want {
			select {
			case last = <-changes:
				require.NotContains(t, last, "error")
			case <-late:
				require.FailNow(t, "too late", "step %d: %q is the last", step, last)
			}
		}
	}

	settle("vacant")
	term := campaign(t, leader, path, "a")
	time.Sleep(time.Second)
	require.NoError(t, term.Proclaim(t.Context(), []byte("b")))
	if step%2 == 0 {
		settle("b") // otherwise it may be passed over
	}

	resign(t, term)
	settle("vacant")
	term = campaign(t, leader, path, "c")
	settle("c")
	require.Empty(t, changes)
	met = !stop()
	resign(t, term)
	link.Heal()
	cancel()
	suite.Close(t, leader, victim)
	return met
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	lead := func(context.Context, *election.Term) error { return errors.New("led") }

	for name, bad := range map[string]struct {
		election *election.Election
		want     error
	}{
		"nil client":    {election.New(nil, "/a"), nil},
		"empty path":    {election.New(c, ""), zk.ErrInvalidPath},
		"relative path": {election.New(c, "a"), zk.ErrInvalidPath},
		"dots":          {election.New(c, "/a/../b"), zk.ErrInvalidPath},
		"root":          {election.New(c, "/"), zk.ErrInvalidPath},
		"bad option":    {election.New(c, "/a", election.WithBackOff(nil)), nil},
		"bad view":      {election.New(c.With(protocol.WithACL(nil)), "/a"), nil},
	} {
		_, campaign := bad.election.Campaign(t.Context(), nil)
		_, leader := bad.election.Leader(t.Context())
		_, candidates := bad.election.Candidates(t.Context())
		var observe error
		for _, observe = range bad.election.Observe(t.Context()) {
		}
		run := bad.election.Run(t.Context(), nil, lead)
		listen := bad.election.Listen(t.Context(), nil, func(election.State) {})

		for verb, err := range map[string]error{
			"Campaign": campaign, "Leader": leader, "Candidates": candidates, "Observe": observe, "Run": run, "Listen": listen,
			"Break": bad.election.Break(t.Context(), "x"),
		} {
			require.ErrorContains(t, err, "election: ", name+" "+verb)
			if bad.want != nil {
				require.ErrorIs(t, err, bad.want, name+" "+verb)
			}
		}
	}

	_, err := election.New(c, "/a").Campaign(t.Context(), make([]byte, protocol.MaxData))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	require.ErrorContains(t, election.New(c, "/a", nil).Run(t.Context(), nil, nil), "nil function")
	require.Equal(t, before, link.Packets())
}

// After a reconnect the client sets the same watches again. The server takes what the client has
// seen in the meantime for known, and does not report it. Waiting requests go out before the
// watches are set: if the connection breaks in between, the event is lost for good.
func TestObserverLearnsWhatItsServerForgetsToReport(t *testing.T) {
	for _, vacant := range []bool{false, true} {
		t.Run(fmt.Sprintf("vacant=%t", vacant), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				leader := srv.Client(t)
				root := srv.Root(t)

				for step := range 40 {
					path := fmt.Sprintf("%s/%d", root, step)
					link := srv.Link(t)
					c := link.Client(t)
					term := campaign(t, leader, path, "a")
					if vacant {
						resign(t, term)
					}

					changes := observed(t, t.Context(), election.New(c, path))
					next(t, changes)
					conn := suite.Session(t, c).Conn()
					link.Cut()
					time.Sleep(time.Second / 4)
					if vacant {
						term = campaign(t, leader, path, "b")
					} else {
						require.NoError(t, term.Proclaim(t.Context(), []byte("b")))
					}

					var waiting suite.Group
					for range 10 {
						waiting.Go(func() error {
							conn.Exists(path)
							return nil
						})
					}

					link.At(step+1, func() { link.Cut(); link.Heal() })
					link.Heal()
					require.NoError(t, waiting.Wait())

					select {
					case change := <-changes:
						require.Equal(t, "b", change)
					case <-time.After(20 * time.Second):
						require.FailNow(t, "the change was missed", "step %d", step)
					}

					resign(t, term)
					require.NoError(t, c.Close())
				}
			})
		})
	}
}

// What an observer finds out about a watch after a reconnect must reach a candidate of the same
// client, too.
func TestObserverDoesNotTakeACandidatesWatchAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		leader := srv.Client(t)
		root := srv.Root(t)

		for round := range 400 {
			path := fmt.Sprintf("%s/%d", root, round)
			link := srv.Link(t)
			c := link.Client(t)
			var wait suite.Group
			term := campaign(t, leader, path, "a")
			won := stand(t, leader, c, path, "next", 1, &wait)
			changes := observed(t, t.Context(), election.New(c, path))
			require.Equal(t, "a", next(t, changes))
			link.Cut()
			require.NoError(t, term.Proclaim(t.Context(), []byte("b")))
			link.Heal()
			require.Equal(t, "b", next(t, changes))
			time.Sleep(time.Second)
			resign(t, term)
			resign(t, next(t, won))
			require.NoError(t, wait.Wait())
			require.NoError(t, c.Close())
		}
	})
}
