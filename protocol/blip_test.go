package protocol_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// TestHolderSurvivesBlipsOfEveryPhase begins a fault at each phase of the cycle of proofs. The
// lengths, in twelfths of the timeout, are the longest that are survived at all phases. After a cut
// the pause before the next attempt to connect is random.
func TestHolderSurvivesBlipsOfEveryPhase(t *testing.T) {
	stall, cut := (*recipestest.Link).Stall, (*recipestest.Link).Cut
	for _, blip := range []struct {
		name   string
		begin  func(*recipestest.Link)
		delay  time.Duration
		length float64
	}{
		{"cut", cut, time.Millisecond, 4},
		{"cut of a slow link", cut, 150 * time.Millisecond, 3.25},
		{"stall", stall, time.Millisecond, 4.75},
		{"stall of a slow link", stall, 150 * time.Millisecond, 4.25},
		{"no leader", (*recipestest.Link).Isolate, time.Millisecond, 4.75},
		{"requests lost", (*recipestest.Link).StallRequests, time.Millisecond, 4.75},
		{"replies lost", (*recipestest.Link).StallReplies, time.Millisecond, 4.75},
	} {
		t.Run(blip.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c := link.Client(t)
				link.Delay(blip.delay)
				twelfth := session(t, c).Timeout() / 12
				g := hold(t, c, root)
				for phase := range 28 {
					time.Sleep(24 * twelfth)
					awaitWrite(link)
					time.Sleep(time.Duration(phase) * twelfth / 4)
					blip.begin(link)
					time.Sleep(time.Duration(blip.length * float64(twelfth)))
					link.Heal()
					time.Sleep(12 * twelfth)
					require.NoError(t, g.Err(), "phase %d", phase)
				}
				release(t, g)
			})
		})
	}
}

// awaitWrite waits until a write to renew trust is sent.
func awaitWrite(link *recipestest.Link) {
	for before := link.Count(recipestest.OpDelete); link.Count(recipestest.OpDelete) == before; {
		time.Sleep(time.Millisecond)
	}
}

// TestQuorumThatSuddenlySlowsDownLosesNothing makes writes take almost a quarter of the timeout,
// without notice.
func TestQuorumThatSuddenlySlowsDownLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, f := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		link.Move(f)
		link.Delay(time.Millisecond)
		for phase := range 28 {
			c := link.Client(t)
			twelfth := session(t, c).Timeout() / 12
			g := hold(t, c, root)
			time.Sleep(24 * twelfth)
			awaitWrite(link)
			time.Sleep(time.Duration(phase) * twelfth / 4)
			f.Lag(11 * twelfth / 4)
			time.Sleep(36 * twelfth)
			f.Lag(0)
			require.NoError(t, g.Err(), "phase %d", phase)
			release(t, g)
			require.NoError(t, c.Close())
		}
	})
}

// TestRequestsAtRest counts all that a session sends in ten minutes, pings included.
func TestRequestsAtRest(t *testing.T) {
	for leases, want := range map[int]struct{ requests, writes int }{
		0:  {180, 0}, // a ping every third of the timeout
		1:  {480, 120},
		50: {480, 120},
	} {
		t.Run(fmt.Sprint(leases, " leases"), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c := link.Client(t, protocol.WithSessionTimeout(10*time.Second))
				require.Equal(t, 10*time.Second, session(t, c).Timeout())
				var held []*recipe.Grant
				for i := range leases {
					held = append(held, hold(t, c, fmt.Sprint(root, "/", i)))
				}
				time.Sleep(time.Minute + 100*time.Millisecond)

				requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
				syncs, writes := link.Count(recipestest.OpSync), link.Count(recipestest.OpDelete)
				time.Sleep(10 * time.Minute)
				requests, pings = link.Count(recipestest.OpAny)-requests, link.Count(recipestest.OpPing)-pings
				syncs, writes = link.Count(recipestest.OpSync)-syncs, link.Count(recipestest.OpDelete)-writes
				require.Equal(t, want.requests, requests+pings)
				require.Equal(t, want.writes, writes)
				require.Equal(t, requests, syncs+writes)
				for _, g := range held {
					release(t, g)
				}
			})
		})
	}
}

// TestGrantAfterAnIdleWait grants what was waited for at each phase of the pings. Until then the
// leader has learnt of the session from pings alone.
func TestGrantAfterAnIdleWait(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		holder, c := srv.Client(t), link.Client(t)
		link.Delay(time.Millisecond)
		s := session(t, c)
		twelfth := s.Timeout() / 12
		for wait := range 60 {
			held := hold(t, holder, root)
			granted := later(func() *recipe.Grant { return hold(t, c, root) })
			time.Sleep(2*twelfth + time.Duration(wait)*twelfth/4)
			release(t, held)
			g := <-granted
			require.Greater(t, time.Until(s.Deadline()), twelfth*29/10, "wait %d", wait)
			for range 40 {
				require.Greater(t, time.Until(s.Deadline()), 2*twelfth, "wait %d", wait)
				time.Sleep(twelfth / 5)
			}
			for range 40 {
				require.Greater(t, time.Until(s.Deadline()), twelfth*49/10, "wait %d", wait)
				time.Sleep(twelfth / 5)
			}
			release(t, g)
		}
	})
}

// TestPingsGoOnWhileNothingIsHeld reads now and then. If reads replaced pings, contacts could be
// further apart than pings when a contender's turn comes.
func TestPingsGoOnWhileNothingIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		pings := link.Count(recipestest.OpPing)
		for range 120 {
			time.Sleep(s.Timeout() / 12)
			_, _, err := s.Conn().Exists("/")
			require.NoError(t, err)
		}
		require.InDelta(t, 30, link.Count(recipestest.OpPing)-pings, 1)
	})
}
