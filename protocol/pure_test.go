package protocol

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// In a process that was stopped, nothing has noticed yet that the grant is lost.
func TestContextOfAGrantThatIsLostHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := held(t)
		time.Sleep(time.Minute)
		ctx, cancel := g.Context(t.Context())
		defer cancel()
		require.True(t, conn.IsClosed(ctx.Done()))
		require.ErrorIs(t, context.Cause(ctx), ErrLost)
	})
}

// A client that is being closed starts no goroutine for a deletion.
func TestReleaseOfAClosingClientEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := held(t)
		g.remove = func(context.Context, *Session) error { return ErrClosed }
		require.ErrorIs(t, g.Release(t.Context()), ErrClosed)
	})
}

// A session may be over just before its grants are told, and before its connections are cut.
func TestSessionThatIsOverHoldsNothing(t *testing.T) {
	t.Parallel()
	s, g := held(t)
	s.mu.Lock()
	s.err = ErrLost
	s.mu.Unlock()
	require.ErrorIs(t, s.admit(new(Grant)), ErrLost)
	_, err := host[*Grant]{s.session}.Resume(time.Now(), time.Second)
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, g.Err(), ErrLost)
	s.finish(ErrClosed)
	require.NotErrorIs(t, s.Err(), ErrClosed)
}

func TestWrapKeepsNilAndTheError(t *testing.T) {
	t.Parallel()
	require.NoError(t, wrap("lock", "/a", nil))
	err := wrap("lock", "/a", ErrLost)
	require.EqualError(t, err, "lock: /a: lost")
	require.ErrorIs(t, err, ErrLost)
	require.Equal(t, err, wrap("lock", "/a", err), "once is enough")
	require.EqualError(t, wrap("lock", "/b", err), "lock: /b: lock: /a: lost")
}

// TestErrIsComputedFromTheClocksWhenItIsCalled runs no goroutine that looks at the clocks, as in a
// process that has just been stopped for a while.
func TestErrIsComputedFromTheClocksWhenItIsCalled(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(s *Session, g *Grant, ctx context.Context) error{
		"session": func(s *Session, _ *Grant, _ context.Context) error { return s.Err() },
		"grant":   func(_ *Session, g *Grant, _ context.Context) error { return g.Err() },
		"context": func(_ *Session, _ *Grant, ctx context.Context) error {
			if ctx.Err() == nil {
				return nil
			}
			return context.Cause(ctx)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := offline()
			s := newSession(c)
			s.trust.Began(time.Now(), 12*time.Second)
			s.engage()
			g, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s, "/line/node", 1, false, nil)
			require.NoError(t, err)
			ctx, cancel := g.Context(t.Context())
			defer cancel()
			time.Sleep(8*time.Second - 1)
			require.NoError(t, ask(s, g, ctx), name)
			time.Sleep(time.Nanosecond)
			require.ErrorIs(t, ask(s, g, ctx), ErrLost, name)
			<-g.Done()
			<-s.Done()
		})
	}
}

func TestUntrustedSessionGrantsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := offline()
		s := newSession(c)
		s.trust.Began(time.Now(), 12*time.Second)
		s.engage()
		time.Sleep(9 * time.Second)
		require.NoError(t, s.Err(), "nothing is held, so nothing is lost")
		_, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s, "/line/node", 1, false, nil)
		require.ErrorIs(t, err, errStale)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = NewRecipe(c, "test", "/line").NewGrant(ctx, s, "/line/node", 1, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, s.engaged, "as before the call")

		time.Sleep(3 * time.Second)
		require.NoError(t, s.Err(), "silent for a whole timeout, and the servers may know it")
		_, err = newGrant(context.Background(), NewRecipe(c, "test", "/line"), s, "/line/node", 1, false, nil)
		require.ErrorIs(t, err, errStale)
	})
}

func TestWatchIsUnchangedUntilAnEventOrAReconnect(t *testing.T) {
	reconnected := make(chan struct{})
	w := &Watch{shared: &conn.Watched{Reconnected: reconnected}}
	require.True(t, w.Unchanged())
	close(reconnected)
	require.False(t, w.Unchanged(), "events come in any order after a reconnect")
}

// With ten thousand in line, each of them is asked about ten thousand names.
func TestNamesOfOthersCostNoMemory(t *testing.T) {
	own := &Own{prefix: "0000000000000001-00000001-lock-"}
	line := []string{"0000000000000002-00000001-lock-0000000001", "_c_5d3b2c1a-lock-0000000002", "foreign"}
	require.Zero(t, testing.AllocsPerRun(100, func() { own.Among(line) }))
}

// Of two creates of one path, the one that fails does not take back what the other one has created,
// and one whose answer is lost stays in the account.
func TestDraftsOfOnePath(t *testing.T) {
	op := &zk.CreateRequest{Path: "/a", Flags: zk.FlagEphemeral}
	for _, outcome := range []error{nil, zk.ErrConnectionClosed} {
		var a account
		failing, err := a.draw(op)
		require.NoError(t, err)
		other, err := a.draw(op)
		require.NoError(t, err)
		require.ErrorIs(t, other.end(outcome, "/a"), outcome)
		require.ErrorIs(t, failing.end(zk.ErrNodeExists), zk.ErrNodeExists)
		require.Equal(t, size("/a", created), a.used)
	}
}

// A listener that is too slow misses connections that came and went, and no loss.
func TestNoLossIsLeftOutForASlowListener(t *testing.T) {
	q := &calls{due: make([]call, maxCalls)}
	add := func(states ...State) (kept []State) {
		for _, s := range states {
			require.False(t, q.add(call{state: s}))
		}
		for _, c := range q.due[maxCalls:] {
			kept = append(kept, c.state)
		}
		return kept
	}
	require.Equal(t, []State{Connected}, add(Connected, Suspended, Connected, Suspended, Connected))
	require.Equal(t, []State{Connected, Lost, Connected}, add(Lost, Connected))
	require.Equal(t, []State{Connected, Lost, Connected, Suspended, Lost, Closed}, add(Suspended, Lost, Closed))
}
