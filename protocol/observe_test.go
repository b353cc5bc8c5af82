package protocol_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

type busy struct{ error }

func (busy) Busy() bool { return true }

// observer records events.
type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

// require compares the next events, except for fields that differ from run to run. Of their
// contexts it compares the caller.
func (o observer) require(t *testing.T, want ...protocol.Event) {
	t.Helper()

	for _, w := range want {
		e := suite.Wait(t, o)
		require.ErrorIs(t, e.Err, w.Err)
		require.GreaterOrEqual(t, e.Duration, w.Duration)
		require.NotNil(t, e.Context)
		if w.Context != nil {
			require.Equal(t, w.Context.Value(caller{}), e.Context.Value(caller{}), e.Kind)
		}
		require.LessOrEqual(t, e.Time, time.Now())
		require.NotZero(t, e.Time)
		e.Err, e.Duration, w.Err, w.Duration = nil, 0, nil, 0
		e.Time, e.Context, w.Context = time.Time{}, nil, nil
		require.Equal(t, w, e)
	}
}

// caller is the key of a value that a caller's context has.
type caller struct{}

// The events of a call (and of the loss of what it has acquired) have the values of the caller's
// context, even when that has ended.
func TestObserverIsToldWhatHappensInOrder(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, told := srv.Link(t), srv.Root(t), make(observer, 99)
		c := link.Client(t, protocol.WithObserver(told))
		id, l := suite.Session(t, c).ID(), suite.LineAt(c, root)
		as := func(who string) context.Context { return context.WithValue(suite.Lasting(t), caller{}, who) }
		event := func(k protocol.EventKind, who string, g *recipe.Grant, d time.Duration, err error) protocol.Event {
			e := protocol.Event{Kind: k, Recipe: "test", Path: root, Duration: d, Err: err, Context: as(who)}
			if g != nil {
				e.Session, e.Token = id, g.Token()
			}
			return e
		}
		hold := func(who string) *recipe.Grant {
			ctx, cancel := context.WithCancel(as(who))
			g := suite.Got(l.Enter(ctx, suite.Request))(t)
			cancel()
			told.require(t, event(protocol.EventWaiting, who, nil, 0, nil), event(protocol.EventAcquired, who, g, 0, nil))
			return g
		}

		one := hold("one")
		impatient, cancel := context.WithTimeout(as("impatient"), 2*time.Second)
		defer cancel()
		require.Error(t, suite.Err(l.Enter(impatient, suite.Request)))
		told.require(t, event(protocol.EventWaiting, "impatient", nil, 0, nil),
			event(protocol.EventAcquired, "impatient", nil, 2*time.Second, context.DeadlineExceeded))
		require.NoError(t, one.Release(as("releaser")))
		told.require(t, event(protocol.EventReleased, "releaser", one, 2*time.Second, nil))

		two := hold("two")
		time.Sleep(3 * time.Second)
		require.NoError(t, l.Break(suite.Lasting(t), two.Node()))
		told.require(t, event(protocol.EventLost, "two", two, 3*time.Second, protocol.ErrLost))

		three := hold("three")
		link.LoseReply(recipestest.OpDelete, 1)
		require.NoError(t, three.Release(as("releaser")))
		retried := event(protocol.EventRetried, "releaser", nil, 0, zk.ErrConnectionClosed)
		retried.Session = id
		told.require(t, event(protocol.EventReleased, "releaser", three, 0, nil), retried)

		four := hold("four")
		require.NoError(t, c.Close())
		told.require(t, event(protocol.EventLost, "four", four, 0, protocol.ErrLost))
		synctest.Wait()
		require.Empty(t, told)
	})
}

// Connect sends a credential and asks for the chroot, in the name of no recipe.
func TestObserverIsToldOfRetriesOfTheClientItself(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, told := srv.Link(t), srv.Root(t), make(observer, 99)
		suite.Ensure(t, suite.Session(t, srv.Client(t)), root)
		link.LoseReply(recipestest.OpAuth, 1)
		link.LoseReply(recipestest.OpSync, 1)
		c := connect(t, srv.ConnectString()+root,
			alice, protocol.WithDialer(link.Dial), protocol.WithExistingChroot(), protocol.WithObserver(told))
		retried := protocol.Event{Kind: protocol.EventRetried, Session: suite.Session(t, c).ID(), Err: zk.ErrConnectionClosed}
		told.require(t, retried, retried)
	})
}

func TestLogObserverHasALevelForEachKind(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := protocol.LogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))

	for kind, want := range map[protocol.EventKind]string{
		protocol.EventAcquired:     "level=INFO msg=acquired",
		protocol.EventReleased:     "level=INFO msg=released",
		protocol.EventLost:         "level=WARN msg=lost",
		protocol.EventRetried:      "level=DEBUG msg=retried",
		protocol.EventOffered:      "level=INFO msg=offered",
		protocol.EventTaken:        "level=INFO msg=taken",
		protocol.EventRedelivered:  "level=INFO msg=redelivered",
		protocol.EventCollided:     "level=DEBUG msg=collided",
		protocol.EventDeadLettered: "level=WARN msg=dead-lettered",
		protocol.EventWaiting:      "level=DEBUG msg=waiting",
		protocol.EventConnecting:   "level=WARN msg=connecting",
		protocol.EventAcknowledged: "level=INFO msg=acknowledged",
		protocol.EventReturned:     "level=INFO msg=returned",
		protocol.EventReturned + 1: "level=INFO msg=unknown",
	} {
		log.Reset()
		o.Observe(protocol.Event{
			Kind: kind, Recipe: "rwlock", Mode: "read", Path: "/a", Session: 0x12, Token: 7, Count: 3, Duration: time.Second,
		})
		require.Contains(t, log.String(), want+" recipe=rwlock path=/a mode=read session=0x12 token=7 count=3 duration=1s")
	}

	// There can be very many contenders that refuse to wait.
	for want, err := range map[string]error{
		`level=DEBUG msg="not acquired" error=x`: busy{errors.New("x")},
		`level=INFO msg="not acquired" error=x`:  errors.New("x"),
	} {
		log.Reset()
		o.Observe(protocol.Event{Kind: protocol.EventAcquired, Err: err})
		require.Contains(t, log.String(), want)
	}
}
