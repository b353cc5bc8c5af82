package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A journal is a slog.Handler that keeps what is above level debug, each with the time since the
// journal was made.
type journal struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return nil
	}
	line := fmt.Sprintf("%v %v %s", r.Time.Sub(j.began).Round(time.Millisecond), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value.Resolve())
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return nil
}

// take returns the lines with this text, and forgets all.
func (j *journal) take(text string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	j.lines = nil
	return found
}

func (j *journal) logger() protocol.Option { return protocol.WithLogger(slog.New(j)) }

// refuse is a dialer for servers that are down.
func refuse(string, string, time.Duration) (net.Conn, error) {
	return nil, errors.New("connection refused")
}

// times returns when lines were written.
func times(lines []string) (all []string) {
	for _, line := range lines {
		at, _, _ := strings.Cut(line, " ")
		all = append(all, at)
	}
	return all
}

func TestConnectToNoServerIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, _ *recipestest.Server) {
		log, told := newJournal(), make(observer, 99)
		_, err := protocol.Connect(within(t, 200*time.Second), "a:1,b:2",
			protocol.WithDialer(refuse), log.logger(), protocol.WithObserver(told))
		require.ErrorContains(t, err, "connection refused")

		lines := log.take("WARN no connection servers=")
		require.Equal(t, []string{"1s", "3s", "7s", "15s", "31s", "1m3s", "2m3s", "3m3s"}, times(lines))
		require.Contains(t, lines[0], "a:1")
		require.Contains(t, lines[0], "error=connection refused")
		require.NotContains(t, lines[0], "lost at")
		synctest.Wait()
		require.Len(t, told, len(lines))
		before := 0
		for range lines {
			e := wait(t, told)
			require.Equal(t, protocol.EventConnecting, e.Kind)
			require.ErrorContains(t, e.Err, "connection refused")
			require.Greater(t, e.Count, before, "attempts")
			require.NotZero(t, e.Duration)
			before = e.Count
		}
		time.Sleep(time.Hour)
		require.Empty(t, log.take(""), "after Close")
	})
}

// A connection is lost while something is held, for longer than a session lasts.
func TestLostConnectionIsToldOfUntilItIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, told := srv.Link(t), make(observer, 99)
		log := newJournal()
		c := link.Client(t, log.logger())
		require.Empty(t, log.take(""), "nothing to tell")
		view := newJournal()
		g := hold(t, c.With(view.logger(), protocol.WithObserver(told)), srv.Root(t)+"/x")
		id, session := g.Session().ID(), fmt.Sprintf("session=%#x", uint64(g.Session().ID()))

		log.began = time.Now()
		link.Cut()
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, log.take(""))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		lines := log.take("no connection")
		require.Equal(t, []string{"1s"}, times(lines))
		require.Contains(t, lines[0], session)
		require.Contains(t, lines[0], "holds=1 lost at="+g.Session().Deadline().String())
		link.Heal()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.NoError(t, g.Err())
		require.Contains(t, fmt.Sprint(log.take("INFO connected again")), session)
		link.Cut()
		time.Sleep(100 * time.Millisecond)
		link.Heal()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Empty(t, log.take(""), "no notice, so no end of one")

		log.began = time.Now()
		link.Cut()
		time.Sleep(20 * time.Second)
		link.Heal()
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		lines = log.take("")
		require.Equal(t, []string{"1s", "3s", "7s", "15s"}, times(only(lines, "no connection")))
		require.Len(t, only(lines, "WARN session lost "+session), 1)
		back := only(lines, "INFO connected again")
		require.Len(t, back, 1)
		require.NotContains(t, back[0], session)
		require.Contains(t, back[0], "after=20")
		require.NotContains(t, fmt.Sprint(lines), fmt.Sprint(id), "session IDs have one form")
		require.Len(t, view.take("WARN lost recipe=test"), 1)
		for len(told) > 0 {
			require.NotEqual(t, protocol.EventConnecting, wait(t, told).Kind, "which is the client's own")
		}
	})
}

func only(lines []string, text string) (found []string) {
	for _, line := range lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// One short interruption is no news. Many in a row are.
func TestConnectionThatComesAndGoesIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log := srv.Link(t), newJournal()
		c := link.Client(t, log.logger())
		s := session(t, c)
		for range 3 {
			link.Cut()
			time.Sleep(100 * time.Millisecond)
			link.Heal()
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		require.Empty(t, log.take(""))

		log.began = time.Now()
		for range 20 {
			link.Cut()
			time.Sleep(300 * time.Millisecond)
			link.Heal()
			time.Sleep(600 * time.Millisecond)
		}
		synctest.Wait()
		require.NoError(t, s.Err())
		notices := len(log.take("no connection"))
		require.Greater(t, notices, 1)
		require.Less(t, notices, 6)
	})
}

// However many calls wait for a session, each notice comes once.
func TestManyCallsThatWaitForASessionAreToldOfOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log := srv.Link(t), newJournal()
		c := link.Client(t, log.logger())
		first := session(t, c)
		link.Cut()
		time.Sleep(first.Timeout())
		synctest.Wait()
		log.take("")
		const n = 10_000
		sessions := make(chan *recipe.Session, n)
		for range n {
			go func() { s, _ := recipe.SessionOf(context.Background(), c); sessions <- s }()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, sessions)
		require.Len(t, log.take(""), 1)

		link.Heal()
		for range n {
			require.NotNil(t, wait(t, sessions))
		}
	})
}

// A blocker is a slog.Handler that blocks at notices until resume is closed.
type blocker struct {
	*journal
	blocked chan struct{}
	resume  chan struct{}
}

func (b *blocker) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "no connection" {
		b.blocked <- struct{}{}
		<-b.resume
	}
	return b.journal.Handle(ctx, r)
}

func (b *blocker) WithAttrs([]slog.Attr) slog.Handler { return b }

func TestBlockedLoggerGetsTheNoticesOfAnOutageLater(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		log := &blocker{newJournal(), make(chan struct{}, 99), make(chan struct{})}
		c := link.Client(t, protocol.WithLogger(slog.New(log)))
		first := session(t, c)
		link.Cut()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, log.blocked, 1)
		require.NoError(t, first.Err(), "nothing was held")

		log.began = time.Now()
		close(log.resume)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, log.take("no connection"), 14+10)
		link.Heal()
		require.NoError(t, session(t, c).Sync(lasting(t), "/"))
		require.NoError(t, c.Close())
	})
}

func TestCloseDuringANoticeEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		log := &blocker{newJournal(), make(chan struct{}, 99), make(chan struct{})}
		c := link.Client(t, protocol.WithLogger(slog.New(log)))
		link.Cut()
		wait(t, log.blocked)
		began := time.Now()
		c.Close() // the session could not be closed
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		close(log.resume)
		synctest.Wait()
		log.take("")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, log.take("no connection"))
	})
}

// What an observer is told of, it may answer by closing the client.
func TestObserverMayCloseTheClientDuringAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, closed := srv.Link(t), make(chan time.Duration, 99)
		var c atomic.Pointer[protocol.Client]
		c.Store(link.Client(t, protocol.WithObserver(observe(func(e protocol.Event) {
			if e.Kind == protocol.EventConnecting {
				began := time.Now()
				c.Load().Close()
				closed <- time.Since(began)
			}
		}))))
		require.NoError(t, session(t, c.Load()).Err())
		link.Cut()
		require.LessOrEqual(t, wait(t, closed), 2*time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, closed)
	})
}

type observe func(protocol.Event)

func (f observe) Observe(e protocol.Event) { f(e) }

func TestTimeoutThatServersCutIsToldOfOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log := srv.Link(t), newJournal()
		c := link.Client(t, log.logger(), protocol.WithSessionTimeout(time.Hour))
		granted := session(t, c).Timeout()
		require.Less(t, granted, time.Hour)
		for range 3 {
			link.Cut()
			link.Heal()
			time.Sleep(5 * time.Second)
		}
		srv.ExpireSession(session(t, c).ID())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		lines := log.take("asked=1h0m0s granted=" + granted.String())
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "WARN")
	})
}

// The values of a caller's context are in the events of what it has asked for, and in those of its
// loss.
func TestEventsHaveTheCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		type key struct{}
		link, told := srv.Link(t), make(observer, 99)
		c := link.Client(t, protocol.WithObserver(told))
		path := srv.Root(t) + "/x"
		require.NotZero(t, session(t, c))
		as := func(who string) context.Context { return context.WithValue(lasting(t), key{}, who) }
		next := func(kind protocol.EventKind, who any) protocol.Event {
			e := wait(t, told)
			require.Equal(t, kind, e.Kind)
			require.Equal(t, who, e.Context.Value(key{}), kind)
			require.Equal(t, path, e.Path)
			require.Equal(t, "test", e.Recipe)
			return e
		}

		ctx, cancel := context.WithCancel(as("acquirer"))
		link.LoseReply(recipestest.OpCreate, 1)
		g, err := lineAt(c, path).Enter(ctx, request)
		require.NoError(t, err)
		cancel()
		next(protocol.EventWaiting, "acquirer")
		next(protocol.EventRetried, "acquirer")
		next(protocol.EventAcquired, "acquirer")
		link.LoseReply(recipestest.OpDelete, 1)
		require.NoError(t, g.Release(as("releaser")))
		next(protocol.EventReleased, "releaser")
		next(protocol.EventRetried, "releaser")

		g, err = lineAt(c, path).Enter(as("loser"), request)
		require.NoError(t, err)
		next(protocol.EventWaiting, "loser")
		next(protocol.EventAcquired, "loser")
		require.NoError(t, lineAt(srv.Client(t), path).Break(lasting(t), g.Node()))
		require.ErrorIs(t, next(protocol.EventLost, "loser").Err, protocol.ErrLost)
	})
}

// What a client proves its identity with is in no log, event or error.
func TestCredentialsAreInNoLogEventOrError(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const secret = "hunter2"
		link, told := srv.Link(t), make(observer, 999)
		var log strings.Builder
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		root := srv.Root(t)
		owner := session(t, srv.Client(t))
		_, err := create(owner, root, 0)(owner.Conn())
		require.NoError(t, err)
		_, err = owner.Conn().SetACL(root, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)

		c := link.Client(t, protocol.WithAuth("digest", []byte("bob:"+secret)),
			protocol.WithLogger(slog.New(handler)), protocol.WithObserver(told))
		_, err = lineAt(c, root+"/x").Enter(lasting(t), request)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no permission to create "+root+"/x: the ACL of "+root+" does not allow it")
		require.ErrorContains(t, err, "the client is digest:")
		require.NotContains(t, err.Error(), secret)
		link.Cut()
		time.Sleep(30 * time.Second)
		link.Heal()
		time.Sleep(30 * time.Second)
		require.NoError(t, c.Close())
		synctest.Wait()
		require.NotContains(t, log.String(), secret)
		require.Contains(t, log.String(), "no connection")
		for len(told) > 0 {
			require.NotContains(t, fmt.Sprintf("%+v", <-told), secret)
		}
		_, err = owner.Conn().SetACL(root, zk.WorldACL(zk.PermAll), -1) // for the clean-up
		require.NoError(t, err)
	})
}

func TestServerThatDemandsAuthenticationIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c, path := link.Client(t), srv.Root(t)+"/x"
		s := session(t, c)
		link.Fail(recipestest.OpExists, path, -124, 1)
		_, err := s.Exists(lasting(t), path)
		require.ErrorContains(t, err, "authentication required: see WithAuth (error -124)")
	})
}
