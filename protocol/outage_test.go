package protocol_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A journal is a slog.Handler that keeps lines above level debug, each with the time since the
// journal was made.
type journal struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

func (j *journal) WithGroup(string) slog.Handler { return j }

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
func (j *journal) take(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.lines
	j.lines = nil
	return only(all, text)
}

func (j *journal) logger() protocol.Option { return protocol.WithLogger(slog.New(j)) }

// refuse is a dialer for servers that are down.
func refuse(string, string, time.Duration) (net.Conn, error) {
	return nil, syscall.ECONNREFUSED
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
	suite.Bubble(t, func(t *testing.T, _ *recipestest.Server) {
		log, told := newJournal(), make(observer, 99)
		_, err := protocol.Connect(suite.Within(t, 200*time.Second), "a:1,b:2",
			protocol.WithDialer(refuse), log.logger(), protocol.WithObserver(told))
		require.Equal(t, 200*time.Second, time.Since(log.began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, "a:1")
		require.Empty(t, ourGoroutines(t))

		lines := log.take("WARN no connection servers=")
		require.Equal(t, []string{"1s", "3s", "7s", "15s", "31s", "1m3s", "2m3s", "3m3s"}, times(lines))
		require.Contains(t, lines[0], "a:1")
		require.Contains(t, lines[0], "error=connection refused")
		require.NotContains(t, lines[0], "lost at")
		synctest.Wait()
		require.Len(t, told, len(lines))
		before := 0
		for range lines {
			e := suite.Wait(t, told)
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
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, told := srv.Link(t), make(observer, 99)
		log := newJournal()
		c := link.Client(t, log.logger())
		require.Empty(t, log.take(""), "nothing to tell")
		view := newJournal()
		g := suite.Hold(t, c.With(view.logger(), protocol.WithObserver(told)), srv.Root(t)+"/x")
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
			require.NotEqual(t, protocol.EventConnecting, suite.Wait(t, told).Kind, "which is the client's own")
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
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log := srv.Link(t), newJournal()
		c := link.Client(t, log.logger())
		s := suite.Session(t, c)

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

// Without WithLogger, warnings go to slog's default logger as it is at that time, and nothing less
// does. One of them says, once, that the server grants another session timeout than was asked for.
func TestDefaultLoggerGetsWarnings(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) { // not in parallel: the logger is everybody's
		link := srv.Link(t)
		long := []protocol.ConnectOption{protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(1234 * time.Second)}
		c := connect(t, srv.ConnectString(), long...)
		synctest.Wait() // until the first warning is out
		before := slog.Default()
		defer slog.SetDefault(before)
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))

		g := suite.Hold(t, c, srv.Root(t)+"/line")
		waits := suite.Later(func() error {
			g, err := suite.LineAt(c, srv.Root(t)+"/line").Enter(suite.Lasting(t), suite.Request)
			if err == nil {
				suite.Release(t, g)
			}

			return err
		})

		time.Sleep(6 * time.Second) // so long that a waiter would be an info
		link.Cut()
		time.Sleep(2 * time.Second)
		link.Heal()
		time.Sleep(5 * time.Second)
		suite.Release(t, g)
		require.NoError(t, suite.Wait(t, waits))
		synctest.Wait()
		require.Contains(t, log.String(), "no connection")
		require.NotContains(t, log.String(), "level=INFO")
		require.NotContains(t, log.String(), "level=DEBUG")

		// The warning about the timeout has come before: another client gets one of its own.
		connect(t, srv.ConnectString(), long...)
		suite.Blip(link)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "the server grants another session timeout"))
		require.Contains(t, log.String(), "asked=20m34s")
	})
}

// Ten thousand leases that are lost are one message with a number and some paths. It has none of
// the holds inside a recipe.
func TestManyLossesAreOneMessage(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log, root := srv.Link(t), newJournal(), srv.Root(t)
		c := link.Client(t, log.logger())
		n := suite.Size(2000, 200)
		var last *recipe.Grant
		for i := range n {
			last = suite.Hold(t, c, fmt.Sprint(root, "/", i))
		}
		inside := recipe.New(c, "test", root).Part(root + "/inside")
		suite.Got(line.New(inside, line.Locks...).Enter(suite.Lasting(t), suite.Request))(t)

		link.Stall()
		suite.Wait(t, last.Session().Done())
		synctest.Wait()
		lost := log.take("WARN lost")
		require.Len(t, lost, 1)
		require.Contains(t, lost[0], fmt.Sprintf("count=%d paths=%s", n, root))
		require.Equal(t, 5, strings.Count(lost[0], root))
		link.Heal()
	})
}

// After a long outage an idle client pauses for up to 16 seconds between attempts to connect. A
// call doesn't wait for that, whether the session is over or goes on.
func TestCallCutsALongPauseShort(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		suite.Run(t, timeout.String(), func(t *testing.T, srv *recipestest.Server) {
			links, clients := make([]*recipestest.Link, 5), make([]*protocol.Client, 5)
			for i := range links {
				links[i] = srv.Link(t)
				clients[i] = links[i].Client(t, protocol.WithSessionTimeout(timeout))
				suite.Session(t, clients[i])
				links[i].Cut()
			}
			time.Sleep(2 * time.Minute)
			_, err := clients[0].Session(suite.Within(t, time.Second))
			require.Equal(t, timeout < time.Minute, errors.Is(err, context.DeadlineExceeded), "it may be over")
			time.Sleep(time.Minute)
			for i, c := range clients {
				links[i].Heal()
				began := time.Now()
				suite.Exists(t, c, "/zookeeper")
				require.Less(t, time.Since(began), time.Second)
			}
		}, recipestest.WithConfig(embedded.Config{MaxSessionTimeout: 10 * time.Minute}))
	}
}
