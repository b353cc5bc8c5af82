package embedded_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

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
	_, err := c.Create(path, []byte(data), 0, open)
	require.NoError(t, err)
}

func set(t *testing.T, c *zk.Conn, path, data string) {
	t.Helper()
	_, err := c.Set(path, []byte(data), -1)
	require.NoError(t, err)
}

func data(t *testing.T, c *zk.Conn, path string) string {
	t.Helper()
	b, _, err := c.Get(path)
	require.NoError(t, err)
	return string(b)
}

func exists(t *testing.T, c *zk.Conn, path string) bool {
	t.Helper()
	ok, _, err := c.Exists(path)
	require.NoError(t, err)
	return ok
}

// later runs f in a goroutine and returns a channel with its result. When later returns, f is
// blocked or has ended.
func later[T any](f func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- f() }()
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

func TestReadsFromALaggingFollowerAreStale(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		set(t, e.leads, "/a", "new")
		put(t, e.leads, "/a/b", "")
		time.Sleep(lag - 1)
		require.Equal(t, "old", data(t, e.lags, "/a"))
		require.False(t, exists(t, e.lags, "/a/b"))
		names, stat, err := e.lags.Children("/a")
		require.NoError(t, err)
		require.Empty(t, names)
		require.Zero(t, stat.NumChildren)

		time.Sleep(time.Nanosecond)
		synctest.Wait() // for the follower to catch up
		require.Equal(t, "new", data(t, e.lags, "/a"))
		require.True(t, exists(t, e.lags, "/a/b"))
		_, there, err := e.lags.Get("/a")
		require.NoError(t, err)
		_, here, err := e.leads.Get("/a")
		require.NoError(t, err)
		require.Equal(t, here, there)
	})
}

// They fire late too if the client sets them again meanwhile, on a new connection.
func TestWatchesOnALaggingFollowerFireLate(t *testing.T) {
	for name, interrupt := range map[string]func(*ensemble){
		"connected":   func(*ensemble) {},
		"reconnected": func(e *ensemble) { e.DropConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			lagging(t, func(t *testing.T, e *ensemble) {
				_, _, changed, err := e.lags.GetW("/a")
				require.NoError(t, err)
				_, _, created, err := e.lags.ExistsW("/a/b")
				require.NoError(t, err)
				_, _, children, err := e.lags.ChildrenW("/a")
				require.NoError(t, err)
				set(t, e.leads, "/a", "new")
				put(t, e.leads, "/a/b", "")

				interrupt(e)
				time.Sleep(lag - 1)
				require.Equal(t, "old", data(t, e.lags, "/a"))
				for ch, want := range map[<-chan zk.Event]zk.EventType{
					changed: zk.EventNodeDataChanged, created: zk.EventNodeCreated, children: zk.EventNodeChildrenChanged,
				} {
					require.Equal(t, want, receive(t, ch).Type)
					e.since(t, lag)
				}
			})
		})
	}
}

func TestWritesThroughALaggingFollowerAreCommittedAtOnceAndAnsweredLate(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		_, _, event, err := e.lags.ExistsW("/mine")
		require.NoError(t, err)
		answer := later(func() error {
			_, err := e.lags.Create("/mine", nil, zk.FlagEphemeral, open)
			return err
		})

		require.True(t, exists(t, e.leads, "/mine"))
		require.NoError(t, receive(t, answer))
		e.since(t, lag)

		select {
		case ev := <-event:
			require.Equal(t, zk.EventNodeCreated, ev.Type)
		default:
			require.Fail(t, "the event comes after the answer")
		}
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

		require.Equal(t, "first", receive(t, read))
		e.since(t, lag)
		require.NoError(t, receive(t, first))
		requireNothing(t, second)
		require.NoError(t, receive(t, second))
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

			require.NoError(t, receive(t, written))
			require.Equal(t, "new", receive(t, read))
		}
	})
}

func TestWritesThroughALaggingFollowerFailByTheLeadersState(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		put(t, e.leads, "/b", "")
		require.False(t, exists(t, e.lags, "/b"))
		_, err := e.lags.Create("/b", nil, 0, open)
		require.ErrorIs(t, err, zk.ErrNodeExists)
		e.since(t, lag)
		require.True(t, exists(t, e.lags, "/b"), "the client sees what its answer told")
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
		require.NoError(t, receive(t, synced))
		e.since(t, lag)
		require.Equal(t, "new", data(t, e.lags, "/a"))
	})
}

func TestPingsThroughALaggingFollowerKeepASessionAlive(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		_, err := e.lags.Create("/mine", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		id := e.lags.SessionID()
		time.Sleep(10 * time.Minute) // during which the client pings
		_, stat, err := e.leads.Get("/mine")
		require.NoError(t, err)
		require.Equal(t, id, stat.EphemeralOwner)
	})
}

func TestLaggingFollowerLearnsLateThatASessionHasEnded(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		_, err := e.leads.Create("/theirs", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		_, err = e.lags.Sync("/")
		require.NoError(t, err)
		_, _, theirs, err := e.lags.GetW("/theirs")
		require.NoError(t, err)
		other := dial(t, e.follower)
		_, _, own, err := other.GetW("/a")
		require.NoError(t, err)

		e.beganLagging = time.Now()
		require.True(t, e.ExpireSession(e.leads.SessionID()))
		require.True(t, e.ExpireSession(other.SessionID()))
		time.Sleep(lag / 2)
		require.True(t, exists(t, e.lags, "/theirs"))
		require.True(t, exists(t, other, "/theirs"), "its session has ended, and the follower does not know")
		failed := later(func() error { _, err := other.Set("/a", nil, -1); return err })

		require.Equal(t, zk.EventNodeDeleted, receive(t, theirs).Type)
		e.since(t, lag)
		require.Error(t, receive(t, failed))
		require.ErrorIs(t, receive(t, own).Err, zk.ErrSessionExpired)
		require.Equal(t, "old", data(t, e.lags, "/a"), "the write has failed")
	})
}

func TestWritesOfASessionThatHasEndedFail(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		c := connect(t, f, hello{})
		f.Lag(lag)
		require.True(t, s.ExpireSession(c.session))
		time.Sleep(time.Nanosecond)
		f.Lag(2 * lag) // the connection ends after this lag

		require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/late", nil, 1)))
		require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/late", nil, 0)))

		synctest.Wait()
		require.False(t, exists(t, dial(t, s), "/late"))
		require.Zero(t, connect(t, s, hello{session: c.session, password: c.password}).session)

		began := time.Now()
		_, err := c.receive()
		require.ErrorIs(t, err, io.EOF, "the connection ends before the answer")
		require.Equal(t, 2*lag-1, time.Since(began))
	})
}

// A switchingDialer dials with its current dialer.
type switchingDialer struct{ dial zk.Dialer }

func (r *switchingDialer) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return r.dial(network, address, timeout)
}

func TestClientsThatHaveSeenMoreThanAFollowerAreRefused(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		r := &switchingDialer{e.Server.Dial}
		c := dial(t, r)
		id := c.SessionID()
		put(t, c, "/b", "")

		r.dial = e.follower.Dial
		e.DropConnections()
		require.Empty(t, receive(t, later(func() string { return dataOf(c, "/b") })))
		require.GreaterOrEqual(t, time.Since(e.beganLagging), lag)
		require.Equal(t, id, c.SessionID())
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
	})
}

func TestSessionsBeginAndEndOnALaggingFollower(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		f.Lag(lag)
		began := time.Now()
		c := connect(t, f, hello{})
		require.Equal(t, lag, time.Since(began))
		require.NoError(t, c.send(zkwire.OpCloseSession, nil))
		a, err := c.receive()
		require.NoError(t, err)
		require.Zero(t, a.code)
		require.Equal(t, 2*lag, time.Since(began))
		_, err = c.receive()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, 2*lag, time.Since(began))
	})
}

func TestFollowersOfAServerThatStopsCatchUp(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		set(t, e.leads, "/a", "new")
		e.Stop()
		_, err := e.follower.Dial("tcp", "", time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, e.Resume())
		time.Sleep(lag / 2)
		require.Equal(t, "new", data(t, e.lags, "/a"))
	})
}

func TestClosedFollowersRefuseConnections(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		c, other := connect(t, f, hello{}), dial(t, s)
		f.Lag(lag)
		require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/a", nil, 0)))
		synctest.Wait()
		f.Close()
		f.Close()
		_, err := c.receive()
		require.ErrorIs(t, err, io.EOF)
		_, err = f.Dial("tcp", "", time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.True(t, exists(t, other, "/a"))
		require.Equal(t, c.session, connect(t, s, hello{session: c.session, password: c.password}).session)
	})
}

func TestWatchesOfFollowersAreCounted(t *testing.T) {
	lagging(t, func(t *testing.T, e *ensemble) {
		_, _, _, err := e.lags.GetW("/a")
		require.NoError(t, err)
		_, _, _, err = e.leads.GetW("/a")
		require.NoError(t, err)
		require.Contains(t, word(t, e.Server, "wchs"), "2 connections watching 2 paths\nTotal watches:2\n")
		require.Contains(t, word(t, e.Server, "mntr"), "zk_watch_count\t2\n")
	})
}

func TestClientThatDefersTooMuchIsCutOff(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		f := s.Follower()
		c := connect(t, f, hello{})
		f.Lag(time.Hour)
		c.nc.SetDeadline(time.Time{})
		var err error
		for sent := 0; err == nil; sent++ {
			require.Less(t, sent, 200)
			err = c.send(zkwire.OpSetData, packet{}.string("/zookeeper").buffer(nil).int32(-1))
			if err == nil {
				err = c.send(zkwire.OpGetData, packet{}.string(string(make([]byte, 200_000))).bool(false))
			}
		}
		requireAlive(t, s)
	})
}
