package recipe_test

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestRetriesUseTheOptionsOfTheView(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, told, others := srv.Root(t)+"/line", srv.Link(t), make(observer, 99), make(observer, 99)
		dialer, creates := suite.Breaking(link, recipestest.OpCreate)
		var log, othersLog bytes.Buffer
		logTo := func(w io.Writer) protocol.Option {
			return protocol.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
		}
		pauses := 0
		c := link.Client(t, dialer, protocol.WithObserver(others), logTo(&othersLog))
		v := c.With(protocol.WithObserver(told), logTo(&log), protocol.WithBackOff(func() backoff.BackOff {
			pauses++
			return backoff.NewConstantBackOff(time.Millisecond)
		}))
		suite.Release(t, suite.Hold(t, v, path))

		before := pauses
		creates.Store(2)
		suite.Release(t, suite.Hold(t, v, path))
		synctest.Wait()

		require.Zero(t, creates.Load())
		require.Greater(t, pauses, before)
		require.Contains(t, log.String(), "trying again")
		require.NotContains(t, othersLog.String(), "trying again")
		require.Empty(t, others)
		for e := (protocol.Event{}); e.Kind != protocol.EventRetried; {
			e = suite.Wait(t, told)
		}
	})
}

// observer receives events.
type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

func TestReportIsForTheObserverOfTheView(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, told := srv.Root(t), make(observer, 9)
		base := srv.Client(t)
		r := recipe.New(base.With(protocol.WithObserver(told)), "test", root)
		taken := protocol.Event{Kind: protocol.EventTaken, Session: 7, Count: 3, Err: zk.ErrNodeExists}
		r.Report(taken)
		r.Part(root + "/inside").Report(taken)
		recipe.New(base, "test", root).Report(taken) // another view's
		recipe.New(nil, "test", root).Report(taken)

		e := suite.Wait(t, told)
		e.Time, e.Context = time.Time{}, nil
		taken.Recipe, taken.Path = "test", root
		require.Equal(t, taken, e)
		synctest.Wait()
		require.Empty(t, told)
	})
}
