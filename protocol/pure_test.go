package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	code := func(n int) error { return fmt.Errorf("unknown error: %d", n) } // as zk.Conn spells it
	for _, c := range []struct {
		err  error
		want outcome
	}{
		{nil, definite},
		{zk.ErrNoNode, definite},
		{zk.ErrNodeExists, definite},
		{zk.ErrBadVersion, definite},
		{zk.ErrNotEmpty, definite},
		{zk.ErrNoAuth, definite},
		{zk.ErrAuthFailed, definite},
		{zk.ErrInvalidPath, definite},
		{zk.ErrBadArguments, definite},
		{zk.ErrAPIError, definite},
		{zk.ErrShortBuffer, definite},
		{code(-125), definite}, // quota
		{code(-6), definite},   // unimplemented

		{zk.ErrNoServer, notSent},
		{zk.ErrSessionExpired, notSent},
		{zk.ErrSessionMoved, notSent},
		{code(-127), notSent}, // throttled

		{zk.ErrConnectionClosed, unknown},
		{zk.ErrClosing, unknown},
		{zk.ErrNothing, unknown},
		{code(-4), unknown}, // connection loss
		{code(-7), unknown}, // time-out
		{fmt.Errorf("call: %w", zk.ErrConnectionClosed), unknown},
		{io.EOF, unknown},
		{io.ErrUnexpectedEOF, unknown},
		{&refusal{zkwire.CodeThrottled, ErrThrottled}, notSent},
		{&net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}, unknown},

		// What a caller says is not taken for an outage: it would be repeated.
		{context.Canceled, definite},
		{context.DeadlineExceeded, definite}, // which is a net.Error
		{fmt.Errorf("%w: %w", context.Canceled, io.EOF), definite},
	} {
		require.Equal(t, c.want, outcomeOf(c.err), "%v", c.err)
	}
	require.Zero(t, serverCode(errors.New("unknown error: 99999999999")))
}

func TestDeniedTransactionNamesTheOperation(t *testing.T) {
	t.Parallel()
	ops := []any{
		&zk.CheckVersionRequest{Path: "/a"}, &zk.CreateRequest{Path: "/b/c"},
		&zk.DeleteRequest{Path: "/d/e"}, &zk.SetDataRequest{Path: "/f"},
	}
	for i, want := range []string{"read /a:", "create /b/c:", "delete /d/e:", "write /f:"} {
		answers := make([]zk.MultiResponse, len(ops))
		answers[i].Error = zk.ErrNoAuth
		err := deniedIn(zk.ErrNoAuth, answers, ops)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no permission to "+want)
	}
	require.Equal(t, zk.ErrBadVersion, deniedIn(zk.ErrBadVersion, make([]zk.MultiResponse, len(ops)), ops))
}

// Not all clients begin with the first server.
func TestServersAreShuffled(t *testing.T) {
	t.Parallel()
	first := make(map[string]bool)
	for range 100 {
		first[shuffled([]string{"a", "b", "c"})[0]] = true
	}
	require.Greater(t, len(first), 1)
}

// A connection that a dialer makes too late is of no use.
func TestConnectionThatComesTooLateIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		here, there := net.Pipe()
		gone := make(chan struct{})
		go func() { synctest.Wait(); cancel() }()
		_, err := dialWith(ctx, func(string, string, time.Duration) (net.Conn, error) {
			<-gone
			return here, nil
		}, "tcp", "server", time.Second)
		require.ErrorIs(t, err, context.Canceled)
		close(gone)
		_, err = there.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// In a process that was stopped, nothing has noticed yet that the grant is lost.
func TestContextOfAGrantThatIsLostHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := held(t)
		time.Sleep(time.Minute)
		ctx, cancel := g.Context(t.Context())
		defer cancel()
		require.True(t, isClosed(ctx.Done()))
		require.ErrorIs(t, context.Cause(ctx), ErrLost)
	})
}

// A client that is being closed starts no goroutine for a deletion.
func TestReleaseOfAClosingClientEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := held(t)
		g.remove = func(context.Context) error { return ErrClosed }
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
	here, _ := net.Pipe()
	_, err := newConnection(s, here, time.Second)
	require.ErrorIs(t, err, ErrLost)
	_, err = s.connected(new(connection), zkwire.ConnectResponse{SessionID: 1, Timeout: time.Second})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, g.Err(), ErrLost)
	s.finish(ErrClosed)
	require.NotErrorIs(t, s.Err(), ErrClosed)
}

func TestContextErrorHasTheTextOfTheCauseOnly(t *testing.T) {
	t.Parallel()
	reason := fmt.Errorf("the reason: %w", zk.ErrConnectionClosed)
	plain, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, contextError(plain))

	caused, end := context.WithCancelCause(t.Context())
	end(reason)
	late, stop := context.WithDeadlineCause(t.Context(), time.Now(), reason)
	defer stop()
	for want, ctx := range map[error]context.Context{context.Canceled: caused, context.DeadlineExceeded: late} {
		err := contextError(ctx)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "the reason")
		require.NotErrorIs(t, err, zk.ErrConnectionClosed)
		require.Equal(t, definite, outcomeOf(err))
	}
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

func TestRedialAfterTriesEveryServerBeforeItPauses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(1, 9).Draw(t, "servers")
		failures := rapid.IntRange(0, math.MaxInt32).Draw(t, "failures")
		timeout := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "timeout"))
		pause := redialAfter(failures, servers, timeout)
		switch {
		case failures < servers, failures%servers != 0:
			require.Zero(t, pause)
		default:
			require.GreaterOrEqual(t, pause, 5*time.Millisecond)
			require.Less(t, pause, 1500*time.Millisecond)
			require.Less(t, pause, max(timeout/10, 15*time.Millisecond))
		}
	})
}

func TestConnectStrings(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]struct {
		servers []string
		chroot  string
	}{
		"zk":                             {[]string{"zk:2181"}, ""},
		"zk:1":                           {[]string{"zk:1"}, ""},
		"zk1:2181,zk2:2182":              {[]string{"zk1:2181", "zk2:2182"}, ""},
		"zk1, zk2:2182 ,zk3/":            {[]string{"zk1:2181", "zk2:2182", "zk3:2181"}, ""},
		"zk/app":                         {[]string{"zk:2181"}, "/app"},
		"zk1,zk2:2181/app/of mine":       {[]string{"zk1:2181", "zk2:2181"}, "/app/of mine"},
		"127.0.0.1:2181":                 {[]string{"127.0.0.1:2181"}, ""},
		"::1":                            {[]string{"[::1]:2181"}, ""},
		"[::1]":                          {[]string{"[::1]:2181"}, ""},
		"[fe80::1]:99,2001:db8::2/a/b/c": {[]string{"[fe80::1]:99", "[2001:db8::2]:2181"}, "/a/b/c"},
	} {
		servers, chroot, err := parseConnectString(s)
		require.NoError(t, err, s)
		require.Equal(t, want.servers, servers, s)
		require.Equal(t, want.chroot, chroot, s)
	}
	for _, s := range []string{
		"", "/", "/app", ",", "zk,", ",zk", "zk,,zk", " ", ":2181", "zk:", "zk:0", "zk:65536", "zk:-1", "zk:port",
		"zk:2181:2181", "zk//", "zk//app", "zk/app/", "zk/app//", "zk/a//b", "zk/./a", "zk/a/..", "zk/a\x00", "zk/\xff", "zk,/a",
		"[zk", "zk]", "[zk]", "0]0", "[]", "[::1", "::1]", "[[::1]]", "zk 1", "zk\t:1",
	} {
		_, _, err := parseConnectString(s)
		require.Error(t, err, "%q", s)
	}
}

func FuzzConnectString(f *testing.F) {
	for _, s := range []string{"zk1:2181,zk2/app", "[::1]:1,::2/", "a,b//", "zk/%2F/..", ",", "[zk", "0]0", "é:2181/\U0001f600"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		servers, chroot, err := parseConnectString(s)
		if err != nil {
			return
		}
		require.NotEmpty(t, servers)
		for _, server := range servers {
			host, port, err := net.SplitHostPort(server)
			require.NoError(t, err, server)
			require.NotEmpty(t, host)
			n, err := strconv.Atoi(port)
			require.NoError(t, err)
			require.Positive(t, n)
		}
		if chroot != "" {
			require.NoError(t, ValidatePath(chroot+"/child"), "a path below the chroot")
		}
		again, sameChroot, err := parseConnectString(strings.Join(servers, ",") + chroot)
		require.NoError(t, err, "what was understood is understood again")
		require.Equal(t, servers, again)
		require.Equal(t, chroot, sameChroot)
	})
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
			c := &Client{sessions: &sessions{stopped: true}, log: slog.New(slog.DiscardHandler), observer: noObserver{}}
			s := newSession(c)
			s.id, s.trust.timeout = 1, 12*time.Second
			s.trust.began(time.Now())
			s.engage()
			g, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s.base, "/line/node", 1, false, nil)
			require.NoError(t, err)
			ctx, cancel := g.Context(t.Context())
			defer cancel()
			time.Sleep(8*time.Second - 1)
			require.NoError(t, ask(s.base, g, ctx), name)
			time.Sleep(time.Nanosecond)
			require.ErrorIs(t, ask(s.base, g, ctx), ErrLost, name)
			<-g.Done()
			<-s.Done()
		})
	}
}

func TestUntrustedSessionGrantsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Client{sessions: &sessions{stopped: true}, log: slog.New(slog.DiscardHandler), observer: noObserver{}}
		s := newSession(c)
		s.id, s.trust.timeout = 1, 12*time.Second
		s.trust.began(time.Now())
		s.engage()
		time.Sleep(9 * time.Second)
		require.NoError(t, s.Err(), "nothing is held, so nothing is lost")
		_, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s.base, "/line/node", 1, false, nil)
		require.ErrorIs(t, err, errStale)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = NewRecipe(c, "test", "/line").NewGrant(ctx, s.base, "/line/node", 1, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, s.engaged, "as before the call")

		time.Sleep(3 * time.Second)
		_, err = newGrant(context.Background(), NewRecipe(c, "test", "/line"), s.base, "/line/node", 1, false, nil)
		require.ErrorIs(t, err, ErrLost, "silent for a whole timeout")
	})
}

func TestConfirmationOfAnAnswer(t *testing.T) {
	t.Parallel()
	const moved = zkwire.CodeSessionMoved
	for _, op := range []zkwire.Op{
		zkwire.OpCreate, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpMulti,
		zkwire.OpCreateContainer, zkwire.OpCreateTTL,
	} {
		for _, code := range []zkwire.Code{
			zkwire.CodeOK, zkwire.CodeNoNode, zkwire.CodeNoAuth, zkwire.CodeBadVersion, zkwire.CodeNodeExists,
		} {
			require.Equal(t, byQuorum, confirmationOf(op, code), "%v, %v", op, code)
		}
		require.Equal(t, byServer, confirmationOf(op, moved), op)
	}
	require.Equal(t, byLeader, confirmationOf(zkwire.OpSync, zkwire.CodeOK))
	require.Equal(t, byServer, confirmationOf(zkwire.OpSync, moved))
	for _, op := range []zkwire.Op{
		zkwire.OpExists, zkwire.OpGetData, zkwire.OpPing, zkwire.OpAuth, zkwire.OpSetWatches, zkwire.OpCloseSession,
	} {
		require.Equal(t, byServer, confirmationOf(op, zkwire.CodeOK), op)
	}
}

func TestWatchIsUnchangedUntilAnEventOrAReconnect(t *testing.T) {
	reconnected := make(chan struct{})
	w := &Watch{shared: &sharedWatch{reading: make(chan struct{}), reconnected: reconnected}}
	require.True(t, w.Unchanged())
	close(reconnected)
	require.False(t, w.Unchanged(), "events come in any order after a reconnect")
	w.shared.reconnected = nil
	w.shared.fired.Store(true)
	require.False(t, w.Unchanged())
}

func TestChangeBeforeItIsAskedForIsTold(t *testing.T) {
	s := newSession(&Client{sessions: new(sessions)}).base
	w := &Watch{session: s, shared: &sharedWatch{}}
	early, told := w.Changed(), 0
	w.onChange(func() { told++ })
	require.False(t, isClosed(early))
	require.Zero(t, told)

	w.shared.fire()

	require.True(t, isClosed(early))
	require.Equal(t, 1, told)
	w.onChange(func() { told++ })
	require.Equal(t, 2, told)
	late := &Watch{session: s, shared: &sharedWatch{}}
	late.shared.fire()
	require.True(t, isClosed(late.Changed()))
}

// A watch lasts for longer than its waiters.
func TestWaitersThatHaveLeftGiveTheirRoomUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Client{sessions: &sessions{stopped: true}, log: slog.New(slog.DiscardHandler), observer: noObserver{}}
		s := newSession(c).base
		var watches []*Watch
		for _, path := range []string{"/a", "/b", "/c"} {
			watches = append(watches, &Watch{session: s, key: path, node: path, shared: &sharedWatch{}})
		}
		s.watches.watches = map[string]*sharedWatch{}
		for _, w := range watches {
			s.watches.watches[w.key] = w.shared
		}

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		steady := make(chan error, 1)
		go func() { steady <- s.WaitAny(t.Context(), watches...) }()
		synctest.Wait()
		for range 1000 {
			require.ErrorIs(t, s.WaitAny(gone, watches...), context.Canceled)
		}
		for _, w := range watches {
			require.LessOrEqual(t, cap(w.shared.waiters), 4)
		}

		s.watches.notify(zk.Event{Type: zk.EventNodeDeleted, Path: "/b"})
		require.NoError(t, <-steady)
		require.Empty(t, watches[1].shared.waiters)
		require.NoError(t, s.WaitAny(t.Context(), watches...), "it has fired before")
	})
}

// TestEveryRequestToSetWatchesIsAnswered sends one that was left over from the connection before,
// and the one of this connection while packets wait.
func TestEveryRequestToSetWatchesIsAnswered(t *testing.T) {
	t.Parallel()
	w := &connection{established: true}
	for range 3 * rewatchWindow {
		w.rewatch = append(w.rewatch, emptyRewatch())
	}
	for xid := range int32(2) {
		p := emptyRewatch()
		zkwire.SetXid(p, 1+xid)
		_, replaced := w.note(p, nil)
		require.True(t, replaced)
	}
	w.takeRewatch(len(w.rewatch))
	for xid := range int32(2) {
		_, sent := w.take(1 + xid)
		require.True(t, sent, "request %d", 1+xid)
	}
	require.Len(t, w.sent, 3*rewatchWindow-1, "packets of our own")
}

// With ten thousand in line, each of them is asked about ten thousand names.
func TestNamesOfOthersCostNoMemory(t *testing.T) {
	own := &Own{prefix: "0000000000000001-00000001-lock-"}
	line := []string{"0000000000000002-00000001-lock-0000000001", "_c_5d3b2c1a-lock-0000000002", "foreign"}
	require.Zero(t, testing.AllocsPerRun(100, func() { own.Among(line) }))
}
