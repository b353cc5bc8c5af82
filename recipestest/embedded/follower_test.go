package embedded_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// lag is how far followers lag in these tests: less than any timeout of a client.
const lag = 5 * time.Second

// An ensemble is a leader and a follower in a bubble, with a client of each.
type ensemble struct {
	*embedded.Server
	follower     *embedded.Follower
	leads, lags  *zk.Conn
	beganLagging time.Time
}

// lagging runs f with a follower that has just begun to lag.
func lagging(t *testing.T, f func(t *testing.T, e *ensemble)) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		e := &ensemble{Server: s, follower: s.Follower()}
		e.leads, e.lags = dial(t, s), dial(t, e.follower)
		put(t, e.leads, "/a", "old")
		e.follower.Lag(lag)
		e.beganLagging = time.Now()
		f(t, e)
		e.follower.Lag(0) // or closing the client would wait for the follower
	})
}

// since requires that exactly want has passed since the follower began to lag.
func (e *ensemble) since(t *testing.T, want time.Duration) {
	t.Helper()
	require.Equal(t, want, time.Since(e.beganLagging))
}

func put(t *testing.T, c *zk.Conn, path, data string) {
	t.Helper()
	suite.Got(c.Create(path, []byte(data), 0, open))(t)
}

func set(t *testing.T, c *zk.Conn, path, data string) {
	t.Helper()
	suite.Got(c.Set(path, []byte(data), -1))(t)
}

func data(t *testing.T, c *zk.Conn, path string) string {
	t.Helper()
	b := suite.ReadAt(t, c.Get, path)
	return string(b)
}

func exists(t *testing.T, c *zk.Conn, path string) bool {
	t.Helper()
	ok := suite.ReadAt(t, c.Exists, path)
	return ok
}

// later runs f in a goroutine and returns a channel with its result. When later returns, f is
// blocked or has ended.
func later[T any](f func() T) <-chan T {
	result := suite.Later(f)
	synctest.Wait()
	return result
}

// requireNothing requires that a channel is empty. what it waits for is part of the message.
func requireNothing[T any](t *testing.T, ch <-chan T, what ...any) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-ch:
		require.Fail(t, fmt.Sprintf("%v comes too early", v), what...)
	default:
	}
}

// They fire late too if the client sets them again meanwhile, on a new connection.
func TestWatchesOnALaggingFollowerFireLate(t *testing.T) {
	for name, interrupt := range map[string]func(*ensemble){
		"connected":   func(*ensemble) {},
		"reconnected": func(e *ensemble) { e.DropConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			lagging(t, func(t *testing.T, e *ensemble) {
				changed := suite.WatchAt(t, e.lags.GetW, "/a")
				created := suite.WatchAt(t, e.lags.ExistsW, "/a/b")
				children := suite.WatchAt(t, e.lags.ChildrenW, "/a")
				set(t, e.leads, "/a", "new")
				put(t, e.leads, "/a/b", "")

				interrupt(e)
				time.Sleep(lag - 1)
				require.Equal(t, "old", data(t, e.lags, "/a"))
				for ch, want := range map[<-chan zk.Event]zk.EventType{
					changed: zk.EventNodeDataChanged, created: zk.EventNodeCreated, children: zk.EventNodeChildrenChanged,
				} {
					require.Equal(t, want, suite.Wait(t, ch).Type)
					e.since(t, lag)
				}
			})
		})
	}
}

func TestWritesThroughALaggingFollowerAreCommittedAtOnceAndAnsweredLate(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		event := suite.WatchAt(t, e.lags.ExistsW, "/mine")
		answer := later(func() error {
			_, err := e.lags.Create("/mine", nil, zk.FlagEphemeral, open)
			return err
		})

		require.True(t, exists(t, e.leads, "/mine"))
		require.NoError(t, suite.Wait(t, answer))
		e.since(t, lag)

		select {
		case ev := <-event:
			require.Equal(t, zk.EventNodeCreated, ev.Type)
		default:
			require.Fail(t, "the event comes after the answer")
		}

		dial(t, e.follower)
		e.since(t, 2*lag) // a session begins with a transaction, too
	})
}

func TestRequestsToALaggingFollowerAreAnsweredInOrder(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		first := later(func() error { _, err := e.lags.Set("/a", []byte("first"), -1); return err })
		read := later(func() string { return data(t, e.lags, "/a") })
		time.Sleep(lag / 2)
		second := later(func() error { _, err := e.lags.Set("/a", []byte("second"), 1); return err })
		require.Equal(t, "second", data(t, e.leads, "/a"), "the leader applies it before the first is answered")
		requireNothing(t, read)

		require.Equal(t, "first", suite.Wait(t, read))
		e.since(t, lag)
		require.NoError(t, suite.Wait(t, first))
		requireNothing(t, second)
		require.NoError(t, suite.Wait(t, second))
		e.since(t, lag+lag/2)
	})
}

// A failed transaction is answered after it has made followers apply what is due. At this instant
// another connection's deferred answers are due too, and the two must not share a buffer.
func TestAnswersDoNotMix(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		for range 100 {
			written := later(func() error { _, err := e.lags.Set("/a", []byte("new"), -1); return err })
			read := later(func() string { return data(t, e.lags, "/a") })
			time.Sleep(lag)

			results, err := e.leads.Multi(&zk.SetDataRequest{Path: "/a", Version: -1}, &zk.DeleteRequest{Path: "/none", Version: -1})
			require.ErrorIs(t, err, zk.ErrNoNode)
			require.Len(t, results, 2)

			require.NoError(t, suite.Wait(t, written))
			require.Equal(t, "new", suite.Wait(t, read))
		}
	})
}

func TestSyncWaitsForWhatTheLeaderHasCommittedBefore(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		sync := func() error { _, err := e.lags.Sync("/a"); return err }
		require.NoError(t, sync())
		e.since(t, 0) // the follower is up to date

		set(t, e.leads, "/a", "new")
		time.Sleep(lag / 2)
		synced := later(sync)
		time.Sleep(lag / 4)
		set(t, e.leads, "/a", "newer")
		require.NoError(t, suite.Wait(t, synced))
		e.since(t, lag)
		require.Equal(t, "new", data(t, e.lags, "/a"))
	})
}

func TestLaggingFollowerLearnsLateThatASessionHasEnded(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		suite.Got(e.leads.Create("/theirs", nil, zk.FlagEphemeral, open))(t)
		suite.Got(e.lags.Sync("/"))(t)
		theirs := suite.WatchAt(t, e.lags.GetW, "/theirs")
		other := dial(t, e.follower)
		own := suite.WatchAt(t, other.GetW, "/a")

		e.beganLagging = time.Now()
		require.True(t, e.ExpireSession(e.leads.SessionID()))
		require.True(t, e.ExpireSession(other.SessionID()))
		time.Sleep(lag / 2)
		require.True(t, exists(t, e.lags, "/theirs"))
		require.True(t, exists(t, other, "/theirs"), "its session has ended, and the follower does not know")
		failed := later(func() error { _, err := other.Set("/a", nil, -1); return err })

		require.Equal(t, zk.EventNodeDeleted, suite.Wait(t, theirs).Type)
		e.since(t, lag)
		require.Error(t, suite.Wait(t, failed))
		require.ErrorIs(t, suite.Wait(t, own).Err, zk.ErrSessionExpired)
		suite.Got(e.lags.Sync("/a"))(t)
		require.Equal(t, "old", data(t, e.lags, "/a"), "the write has failed")
	})
}

func TestFollowersCatchUpWhenTheyLagLess(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		set(t, e.leads, "/a", "1")
		time.Sleep(lag / 2)
		set(t, e.leads, "/a", "2")
		e.follower.Lag(lag / 4)
		require.Equal(t, "1", data(t, e.lags, "/a"))
		e.follower.Lag(lag)
		time.Sleep(lag - 1)
		require.Equal(t, "1", data(t, e.lags, "/a"))
		e.follower.Lag(0)
		require.Equal(t, "2", data(t, e.lags, "/a"))
		set(t, e.leads, "/a", "3")
		require.Equal(t, "3", data(t, e.lags, "/a"))

		// They are up to date when their server has been away.
		e.follower.Lag(lag)
		set(t, e.leads, "/a", "4")
		e.Stop()
		require.NoError(t, e.Resume())
		time.Sleep(lag / 2)
		require.Equal(t, "4", data(t, e.lags, "/a"))
	})
}

func TestClientThatDefersTooMuchIsCutOff(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		c := connect(t, f, hello{})
		f.Lag(time.Hour)
		c.nc.SetDeadline(time.Time{})
		read := packet{}.string(string(make([]byte, 200_000))).bool(false)
		var err error
		for sent := 0; err == nil; sent++ {
			require.Less(t, sent, 200)
			err = c.send(zkwire.OpSetData, packet{}.string("/zookeeper").buffer(nil).int32(-1))
			if err == nil {
				err = c.send(zkwire.OpGetData, read)
			}
		}
		requireAlive(t, s)
	})
}
