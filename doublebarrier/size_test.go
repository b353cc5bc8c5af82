package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// requireDisagreement demands an error that says both numbers.
func requireDisagreement(t *testing.T, err error, ours, theirs int) {
	t.Helper()
	require.ErrorIs(t, err, doublebarrier.ErrSize)
	require.ErrorContains(t, err, fmt.Sprintf("%d here, %d at the others", ours, theirs))
}

func TestMemberThatDisagreesWithTheFirstIsRefused(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, order := range [][]int{{2, 3}, {3, 2}, {3, 3, 2, 2, 7}, {2, 3, 3}, {12, 12, 12, 12, 12, 12, 12, 12, 12, 40}} {
			path := srv.Root(t) + "/b"
			c := srv.Client(t)
			n := order[0]

			var agree []*entering
			for i, other := range order {
				e := enter(patient(t), doublebarrier.New(srv.Client(t), path, other))
				if other == n {
					joined(t, c, path, i+1)
					agree = append(agree, e)
					continue
				}
				_, err := e.wait()
				requireDisagreement(t, err, other, n)
				require.NotErrorIs(t, err, protocol.ErrUncertain)
				joined(t, c, path, len(agree)) // it has left no node
				order[i] = n
			}

			for len(agree) < n {
				agree = append(agree, enter(patient(t), doublebarrier.New(c, path, n)))
			}

			var entries []*doublebarrier.Entry
			for _, e := range agree {
				require.Len(t, e.must(t).Members(), n)
				entries = append(entries, e.entry)
			}
			leave(t, entries...)
			empty(t, c, path)

			// The path is free for another number now.
			b := doublebarrier.New(c, path, 2)
			round(t, b, b)
		}
	})
}

// Two members that disagree come at once, and one of them meets a fault at each of its packets. In
// the end no round has a member of the other kind, and neither waits for the other.
func TestDisagreementIsNoticedWhateverHappensMeanwhile(t *testing.T) {
	for _, f := range append(slices.Clone(suite.QuickFaults), suite.Fault{Name: "delay", Do: slow}) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				for _, sizes := range [][]int{{2, 3}, {3, 2}} {
					suite.Sweep(t, func(step int) bool {
						return disagree(t, srv, pathOf(root, sizes[0], step), f, sizes, step)
					})
				}
			})
		})
	}
}

func slow(_ *recipestest.Server, link *recipestest.Link, _ int64) {
	link.Delay(300 * time.Millisecond)
	time.AfterFunc(time.Second, func() { link.Delay(0) })
}

func disagree(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, sizes []int, step int) (met bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	link, other := srv.Link(t), srv.Link(t)
	cs := []*protocol.Client{link.Client(t), other.Client(t)}
	defer suite.Close(t, cs...)
	id := session(t, cs[0]).ID()
	session(t, cs[1])
	defer other.At(1000, cancel)() // they would write their numbers for ever
	met2 := suite.At(link, step, func() { f.Do(srv, link, id) })

	var both []*entering
	for i, c := range cs {
		both = append(both, enter(ctx, doublebarrier.New(c, path, sizes[i])))
	}

	synctest.Wait()
	time.Sleep(time.Minute)
	refused := 0
	for i, e := range both {
		select {
		case <-e.done:
			_, err := e.wait()
			requireDisagreement(t, err, sizes[i], sizes[1-i])
			refused++
		default: // it waits for members that agree
		}
	}

	require.Positive(t, refused, "step %d: they wait for each other", step)
	cancel()
	for _, e := range both {
		e.wait()
	}
	vanishes(t, cs[1], path)
	return met2()
}

// A member with three dies at one of its packets. Perhaps it has written its number and not yet
// listed the line, in which a member with two waits. The next member with three has to see that
// one.
func TestDisagreementIsNoticedThoughTheWriterOfTheNumberDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			c, link, other := srv.Client(t), srv.Link(t), srv.Client(t)
			dead := link.Client(t)
			defer suite.Close(t, c, other)
			id := session(t, dead).ID()

			first := enter(t.Context(), doublebarrier.New(c, path, 2))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()

			met := suite.At(link, step, func() {
				// What was sent is executed, and its answer is lost.
				link.StallReplies()
				time.AfterFunc(time.Second, func() {
					link.Cut()
					suite.Expire(srv, id)
					cancel()
				})
			})

			_, err := doublebarrier.New(dead, path, 3).Enter(ctx)
			require.Error(t, err)
			was := met()
			time.Sleep(2 * time.Second)

			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			_, err = doublebarrier.New(other, path, 3).Enter(ctx)
			requireDisagreement(t, err, 3, 2)
			leave(t, enter(t.Context(), doublebarrier.New(c, path, 2)).must(t), first.must(t))
			suite.TryClose(dead)
			return was
		})
	})
}

// A member with three is in line between two with two, and does not know yet that it disagrees.
func TestMemberThatDisagreesIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 3)
		path := stage.Root(t) + "/b"
		first := enter(patient(t), doublebarrier.New(stage.Clients[0], path, 2))
		joined(t, stage.Clients[2], path, 1)
		session(t, stage.Clients[1])
		stage.Links[1].StallReplies()
		three := enter(patient(t), doublebarrier.New(stage.Clients[1], path, 3))
		joined(t, stage.Clients[2], path, 2)

		second := enter(patient(t), doublebarrier.New(stage.Clients[2], path, 2)).must(t)
		require.Equal(t, []string{first.must(t).Node(), second.Node()}, second.Members())
		stage.Links[1].Cut()
		stage.Links[1].Heal()
		_, err := three.wait()
		require.ErrorIs(t, err, doublebarrier.ErrFull)
		leave(t, first.entry, second)
		empty(t, stage.Clients[2], path)
	})
}

// A member has withdrawn, so the number of the next one would do for the last of two. It waits.
func TestGapsAmongTheNumbersDoNotOpenAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 1)
		b := doublebarrier.New(stage.Clients[0], stage.Root(t)+"/b", 2)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			e := enter(ctx, b)
			synctest.Wait()
			select {
			case <-e.done:
				require.FailNow(t, "entered alone", "%v", e.err)
			default:
			}
			cancel()
			_, err := e.wait()
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// Curator's members are nodes at the path itself. Curator counts all nodes there.
func TestPathOfCuratorsDoubleBarrierIsRefused(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		c := srv.Client(t)
		s := session(t, c)
		_, err := s.EnsurePath(t.Context(), path)
		require.NoError(t, err)

		curators := path + "/0d9e3b0c-6b3f-4c5e-9a53-7d0c8d2c6f11"
		_, err = s.Conn().Create(curators, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		_, err = doublebarrier.New(c, path, 2).Enter(patient(t))
		require.ErrorIs(t, err, zk.ErrNodeExists)
		require.ErrorContains(t, err, "Curator")
		suite.CatchUp(t, c)
		require.Len(t, suite.Children(t, c, path), 1, "Curator would count another node as a member")
		require.NoError(t, s.Conn().Delete(curators, -1))
	})
}

// The path has had rounds of three. A member with four is slow from one of its packets on: perhaps
// when it has its place in line, and has not read the number. A member with three comes after it,
// and reads that all agree on three.
func TestWaitingMemberNoticesAnEarlierOneThatDisagrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link, other := srv.Link(t), srv.Client(t)
			late := link.Client(t)
			defer suite.Close(t, late, other)
			session(t, late)
			b := doublebarrier.New(other, path, 3)
			round(t, b, b, b)

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			met := suite.At(link, step, func() { slow(srv, link, 0) })
			four := enter(ctx, doublebarrier.New(late, path, 4))
			time.Sleep(10 * time.Millisecond)
			three := enter(ctx, b)
			_, err3 := three.wait()
			_, err4 := four.wait()
			require.True(t, errors.Is(err3, doublebarrier.ErrSize) != errors.Is(err4, doublebarrier.ErrSize),
				"step %d: %v; %v", step, err3, err4)
			return met()
		})
	})
}

// A member with two is about to write that all agree on two. Then the path is deleted by hand, and
// a member with three waits in a new container, whose data have the same version. The write that
// arrives late must not count.
func TestLateAgreementDoesNotHitALaterContainer(t *testing.T) {
	const delay = time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := pathOf(root, step)
			link, other := srv.Link(t), srv.Client(t)
			late := link.Client(t)
			defer suite.Close(t, late, other)
			session(t, late)
			conn := session(t, other).Conn()
			three := doublebarrier.New(other, path, 3)
			round(t, three, three, three)

			ctx, cancel := context.WithTimeout(t.Context(), delay/4)
			defer cancel()
			met := suite.At(link, step, func() { link.Delay(delay) })

			enter(ctx, doublebarrier.New(late, path, 2)).wait()
			_, before := suite.Get(t, other, path+"/process")
			wipe(t, conn, path)
			first := enter(t.Context(), three)
			joined(t, other, path, 1)
			synctest.Wait()
			data, stat := suite.Get(t, other, path+"/process")
			for stat.Version < before.Version {
				var err error
				stat, err = conn.Set(path+"/process", data, -1)
				require.NoError(t, err)
			}

			time.Sleep(5 * delay)
			link.Delay(0)
			now, _ := suite.Get(t, other, path+"/process")
			require.Equal(t, string(data), string(now), "step %d", step)
			second, third := enter(t.Context(), three), enter(t.Context(), three)
			leave(t, first.must(t), second.must(t), third.must(t))
			return met()
		})
	})
}
