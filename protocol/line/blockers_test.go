package line_test

import (
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A contender with several blockers is granted as soon as any one of them is gone.
func TestAnyOfSeveralBlockersWakes(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		const permits = 3
		enter := func(c *protocol.Client, path string) *protocol.Grant {
			l := line.New(protocol.NewRecipe(c, "test", path), line.Kind{Name: "permit-"})
			g, err := l.Enter(suite.Lasting(t), line.Request{Kind: "permit-", Blockers: line.Permits(permits)})
			require.NoError(t, err)
			return g
		}
		for leaves := range permits {
			path, c := fmt.Sprintf("%s/%d", srv.Root(t), leaves), srv.Client(t)
			var holders []*protocol.Grant
			for range permits {
				holders = append(holders, enter(c, path))
			}
			link := srv.Link(t)
			asleep := link.Answered(recipestest.OpGetData, 1+permits) // its own node, and its blockers
			waiter := link.Client(t)
			next := suite.Later(func() *protocol.Grant { return enter(waiter, path) })
			suite.Wait(t, asleep)
			require.Empty(t, next)

			release(t, holders[leaves])

			holders[leaves] = suite.Wait(t, next)
			for _, g := range holders {
				require.NoError(t, g.Err())
				release(t, g)
			}
		}
	})
}

// What a contender has read may be out of date once its session had to be confirmed.
func TestContenderLooksAgainOnceItsSessionIsConfirmed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, operator := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		holder := hold(t, operator, path)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s := suite.Session(t, c)
		waiter := campaign(t.Context(), c, path)
		synctest.Wait()
		gate.Shut()
		time.Sleep(s.Timeout())
		require.NoError(t, s.Err(), "only its trust has run out")

		// The waiter is told that it has no predecessor any more.
		resign(t, holder)
		synctest.Wait()
		require.True(t, gate.Holding())
		require.Empty(t, waiter, "its session has to be confirmed")

		// Its node is deleted, and another contender holds.
		contenders, err := lineAt(operator, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, contenders, 1)
		require.NoError(t, lineAt(operator, path).Break(suite.Lasting(t), contenders[0].Node))
		other := hold(t, operator, path)
		gate.Open()
		time.Sleep(s.Timeout())
		synctest.Wait()

		require.Empty(t, waiter)
		require.NoError(t, other.Err())
		resign(t, other)
		resign(t, suite.Wait(t, waiter))
		require.NoError(t, s.Err())
	})
}

// A contender that was alone is told so late that its session has to be confirmed. A listing that
// another contender of the session makes meanwhile is out of date after that.
func TestContenderThatWasAloneLooksAgainOnceItsSessionIsConfirmed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would end the other contender's listing
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, operator := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s, l := suite.Session(t, c), lineAt(c, path)
		release(t, suite.Wait(t, enter(suite.Lasting(t), l, request)))

		// It comes just before a ping: the leader knows of contacts that are long past alone.
		time.Sleep(s.Timeout())
		for pings := link.Count(recipestest.OpPing); pings == link.Count(recipestest.OpPing); {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(s.Timeout() * 37 / 120)
		gate.Shut()
		link.Delay(s.Timeout() * 3 / 120)
		alone := enter(suite.Lasting(t), l, request)
		time.Sleep(s.Timeout() * 7 / 120)
		link.Delay(0)
		synctest.Wait()
		require.True(t, gate.Holding())

		second := enter(suite.Lasting(t), l, request)
		time.Sleep(s.Timeout() * 4 / 120) // packets that are late arrive first
		contenders, err := lineAt(operator, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, contenders, 2)
		require.NoError(t, lineAt(operator, path).Break(suite.Lasting(t), contenders[0].Node))
		gate.Open()
		g := suite.Wait(t, second)
		synctest.Wait()
		require.Empty(t, alone, "its node was deleted")
		release(t, g)
		release(t, suite.Wait(t, alone))
	})
}
