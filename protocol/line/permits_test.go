package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// permitsAt returns a line of contenders none of which is exclusive.
func permitsAt(c *protocol.Client, path string) *line.Line {
	return line.New(protocol.NewRecipe(c, "test", path), line.Kind{Name: "permit-"})
}

// permits returns a request of that line.
func permits(n int) line.Request {
	return line.Request{Kind: "permit-", Blockers: line.Permits(n)}
}

// enter calls Enter in the background. Its channel gets the grant, or nil.
func enter(ctx context.Context, l *line.Line, r line.Request) <-chan *protocol.Grant {
	return suite.Later(func() *protocol.Grant {
		g, _ := l.Enter(ctx, r)
		return g
	})
}

// pending fails the test if there is a grant already. Call it in a bubble where all is at rest.
func pending(t *testing.T, granted <-chan *protocol.Grant) {
	t.Helper()
	synctest.Wait()
	select {
	case g := <-granted:
		require.FailNow(t, "granted", "%s", g.Node())
	default:
	}
}

func TestPermitsLetSoManyIn(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 3
		path := srv.Root(t) + "/permits"
		var held []*protocol.Grant
		var waiting []<-chan *protocol.Grant
		for i := range 3 * n {
			granted := enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(n))
			if i < n {
				held = append(held, suite.Wait(t, granted))
				continue
			}
			pending(t, granted)
			waiting = append(waiting, granted)
		}
		_, err := permitsAt(srv.Client(t), path).Enter(suite.Lasting(t),
			line.Request{Kind: "permit-", Blockers: line.Permits(n), Try: true})
		require.ErrorIs(t, err, line.ErrBusy)

		for i := range waiting {
			for _, w := range waiting[i:] {
				pending(t, w)
			}
			gone := (i * 2) % n // the first, the last, and one in between
			release(t, held[gone])
			g := suite.Wait(t, waiting[i])
			require.Greater(t, g.Token(), held[gone].Token())
			held[gone] = g
		}
		for _, g := range held {
			release(t, g)
		}
	})
}

// Whichever of the blockers goes, and however, the waiter behind them hears of it.
func TestWaiterForAPermitHearsOfEachBlocker(t *testing.T) {
	const n = 3
	for blocker := range n {
		for name, end := range map[string]func(*testing.T, *recipestest.Server, *line.Line, *protocol.Grant){
			"released": func(t *testing.T, _ *recipestest.Server, _ *line.Line, g *protocol.Grant) { release(t, g) },
			"broken": func(t *testing.T, _ *recipestest.Server, l *line.Line, g *protocol.Grant) {
				require.NoError(t, l.Break(suite.Lasting(t), g.Node()))
			},
			"expired": func(t *testing.T, srv *recipestest.Server, _ *line.Line, g *protocol.Grant) {
				srv.ExpireSession(g.Session().ID())
			},
		} {
			t.Run(fmt.Sprintf("%s %d", name, blocker), func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					path, operator := srv.Root(t)+"/permits", srv.Client(t)
					var held []*protocol.Grant
					for range n {
						held = append(held, suite.Wait(t, enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(n))))
					}
					next := enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(n))
					pending(t, next)

					end(t, srv, permitsAt(operator, path), held[blocker])

					g := suite.Wait(t, next)
					for i, h := range held {
						if i != blocker {
							require.NoError(t, h.Err())
							release(t, h)
						}
					}
					release(t, g)
				})
			})
		}
	}
}

// A waiter whose node is broken joins the line again, and is granted behind the others.
func TestBrokenWaiterForAPermitGoesToTheEnd(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, operator := srv.Root(t)+"/permits", srv.Client(t)
		at := func() *line.Line { return permitsAt(srv.Client(t), path) }
		a := suite.Wait(t, enter(suite.Lasting(t), at(), permits(2)))
		b := suite.Wait(t, enter(suite.Lasting(t), at(), permits(2)))
		broken := enter(suite.Lasting(t), at(), permits(2))
		pending(t, broken)
		other := enter(suite.Lasting(t), at(), permits(2))
		pending(t, other)
		l := permitsAt(operator, path)
		all, err := l.Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.NoError(t, l.Break(suite.Lasting(t), all[2].Node))
		pending(t, broken)

		release(t, b)
		c := suite.Wait(t, other)
		time.Sleep(time.Second)
		pending(t, broken)
		release(t, a)
		release(t, suite.Wait(t, broken))
		release(t, c)
	})
}

// The connection of a waiter for a permit breaks at each step, and a holder releases while it is
// away, or the waiter gives up.
func TestFaultAtEachStepOfAWaitForAPermit(t *testing.T) {
	for _, gives := range []string{"waits", "gives up"} {
		t.Run(gives, func(t *testing.T) {
			t.Parallel()
			over := false
			for step := 1; !over; step++ {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					path, link, other := srv.Root(t)+"/permits", srv.Link(t), srv.Client(t)
					c := link.Client(t)
					suite.Session(t, c)
					var held []*protocol.Grant
					for range 2 {
						held = append(held, suite.Wait(t, enter(suite.Lasting(t), permitsAt(other, path), permits(2))))
					}
					ctx, cancel := context.WithCancel(suite.Lasting(t))
					defer cancel()
					stop := link.At(step, func() {
						if gives == "gives up" {
							cancel()
						}
						link.Cut()
						time.AfterFunc(100*time.Millisecond, link.Heal)
					})

					next := enter(ctx, permitsAt(c, path), permits(2))
					leave := func() *protocol.Grant {
						synctest.Wait()
						release(t, held[1])
						return suite.Wait(t, next)
					}
					g := leave()
					over = stop()
					if g == nil {
						require.Error(t, ctx.Err(), "step %d", step)
					} else {
						release(t, g)
					}
					time.Sleep(suite.Limit / 2)
					release(t, held[0])
					children, _, err := suite.Session(t, other).Children(suite.Lasting(t), path)
					if !errors.Is(err, zk.ErrNoNode) {
						require.NoError(t, err)
					}
					require.Empty(t, children, "step %d", step)
				})
			}
		})
	}
}

// A waiter whose session was not confirmed lately asks before it is granted, and looks again.
func TestWaiterForAPermitOfALaggingServer(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t, recipestest.Lagging(20*time.Millisecond))
	path := srv.Root(t) + "/permits"
	counts := make(chan struct{}, 2)
	var wait suite.Group
	for range 6 {
		l := permitsAt(srv.Client(t), path)
		wait.Go(func() error {
			for range 5 {
				g, err := l.Enter(t.Context(), permits(2))
				if err != nil {
					return err
				}
				select {
				case counts <- struct{}{}:
				default:
					return errors.New("three holders of two permits")
				}
				<-counts
				if err := g.Release(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, wait.Wait())
}

// Markers are for exclusive kinds: something may be ahead of a holder of another one.
func TestHolderOfAPermitLeavesNoMarker(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/permits", srv.Link(t)
		first := suite.Wait(t, enter(suite.Lasting(t), permitsAt(srv.Client(t), path), permits(2)))
		second := suite.Wait(t, enter(suite.Lasting(t), permitsAt(link.Client(t), path), permits(2)))
		multis, deletes := link.Count(recipestest.OpMulti), link.Count(recipestest.OpDelete)

		release(t, second)

		require.Equal(t, multis, link.Count(recipestest.OpMulti))
		require.Equal(t, deletes+1, link.Count(recipestest.OpDelete))
		release(t, first)
	})
}
