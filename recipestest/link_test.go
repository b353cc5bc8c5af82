package recipestest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestCutIsNoticedByBothSidesAndHealed(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		session := n.conn.SessionID()
		idle := suite.Got(n.link.Dial("tcp", n.server.ConnectString(), 10*time.Second))(t)

		n.link.Cut()
		require.ErrorIs(t, suite.Err(idle.Read(make([]byte, 1))), syscall.ECONNRESET)
		require.ErrorIs(t, suite.Err(idle.Write([]byte{0})), syscall.ECONNRESET)
		_, err := n.link.Dial("tcp", n.server.ConnectString(), 10*time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Error(t, attempt(n.conn, n.root))

		n.link.Heal()
		again := n.link.Answered(recipestest.OpConnect, 2)
		suite.Wait(t, again)
		create(t, n.conn, n.root, 0)
		require.Equal(t, session, n.conn.SessionID(), "the session outlives a cut")
		require.NoError(t, idle.Close())
	})
}

func TestCutDoesNotReachOtherLinks(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		root := s.Root(t)
		other := connect(t, s, s.Link(t).Dial, 10*time.Second)
		direct := connect(t, s, s.Dial, 10*time.Second)
		s.Link(t).Cut()
		create(t, other, root, 0)
		create(t, direct, root+"/a", 0)
	})
}

func TestStallLosesBytesAndKeepsSockets(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		suite.Wait(t, n.link.Answered(recipestest.OpPing, 1)) // from now on the client waits for two thirds of its timeout
		idle := suite.Got(n.link.Dial("tcp", n.server.ConnectString(), 10*time.Second))(t)
		lossy := suite.Got(n.link.Dial("tcp", n.server.ConnectString(), 10*time.Second))(t)

		n.link.Stall()
		suite.Got(lossy.Write([]byte{0, 0, 0, 1, 0}))(t)
		begin := time.Now()
		require.ErrorIs(t, attempt(n.conn, n.root), zk.ErrConnectionClosed)
		require.GreaterOrEqual(t, time.Since(begin), 300*time.Millisecond, "only the client's own timeout ends the request")
		requireExists(t, n.direct, n.root, false)

		mute := suite.Got(n.link.Dial("tcp", n.server.ConnectString(), 10*time.Second))(t)
		suite.Got(mute.Write([]byte{0, 0, 0, 1, 0}))(t)
		require.NoError(t, mute.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := mute.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, mute.SetReadDeadline(time.Time{}))

		n.link.Heal()
		for _, c := range []net.Conn{lossy, mute} {
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET, "a connection that has lost bytes cannot go on")
			require.NoError(t, c.Close())
		}

		require.NoError(t, suite.Err(idle.Write([]byte{0, 0, 0, 1, 0})), "a connection that has lost nothing goes on")
		suite.Wait(t, n.link.Answered(recipestest.OpConnect, 2))
		requireExists(t, n.conn, n.root, false)
		require.NoError(t, idle.Close())
	})
}

func TestStalledSessionExpiresThoughItsClientHangsUp(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, zk.FlagEphemeral)
		exists, _, gone, err := n.direct.ExistsW(n.root)
		require.NoError(t, err)
		require.True(t, exists)

		n.link.Stall()
		begin := time.Now()
		n.conn.Close()
		require.Equal(t, zk.EventNodeDeleted, suite.Wait(t, gone).Type)
		require.Greater(t, time.Since(begin), 800*time.Millisecond, "the server did not see the client close its session")
	})
}

func TestStallRepliesLetsRequestsBeExecuted(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		created := suite.WatchAt(t, n.direct.ExistsW, n.root)

		n.link.StallReplies()
		failed := suite.Later(func() error { return attempt(n.conn, n.root) })

		require.Equal(t, zk.EventNodeCreated, suite.Wait(t, created).Type)
		require.ErrorIs(t, suite.Wait(t, failed), zk.ErrConnectionClosed)
		n.link.Heal()
		suite.Wait(t, n.link.Answered(recipestest.OpConnect, 2))
		requireExists(t, n.conn, n.root, true)
	})
}

func TestStallRequestsLetsEventsArrive(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		created := suite.WatchAt(t, n.conn.ExistsW, n.root)

		n.link.StallRequests()
		create(t, n.direct, n.root, 0)
		require.Equal(t, zk.EventNodeCreated, suite.Wait(t, created).Type)
		require.Equal(t, 1, n.link.Events())
		_, _, err := n.conn.Get(n.root)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)

		n.link.Heal()
		suite.Wait(t, n.link.Answered(recipestest.OpConnect, 2))
		requireExists(t, n.conn, n.root, true)
	})
}

func TestLoseReplyLosesTheReplyOfAnExecutedRequest(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		session := n.conn.SessionID()

		n.link.LoseReply(recipestest.OpCreate, 2)
		for _, path := range []string{n.root, n.root + "/a"} {
			require.ErrorIs(t, attempt(n.conn, path), zk.ErrConnectionClosed)
			requireExists(t, n.direct, path, true)
			requireExists(t, n.conn, path, true)
		}

		create(t, n.conn, n.root+"/b", 0)
		require.Equal(t, session, n.conn.SessionID())
		require.Equal(t, 3, n.link.Count(recipestest.OpCreate))
		suite.Wait(t, n.link.Answered(recipestest.OpCreate, 1))

		n.link.LoseReply(recipestest.OpDelete, 1)
		n.link.LoseReply(recipestest.OpDelete, 0)
		require.NoError(t, n.conn.Delete(n.root+"/b", -1))

		n.link.LoseReply(recipestest.OpAny, 1)
		_, err := n.conn.Multi(&zk.DeleteRequest{Path: n.root + "/a", Version: -1})
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		requireExists(t, n.conn, n.root+"/a", false)
	})
}

func TestTornRequestIsNotExecuted(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		session := n.conn.SessionID()
		create(t, n.conn, n.root, 0)

		for i, bytes := range []int{1, 4, 20, 1 << 20} { // in the length, after it, in the path, but for the last byte
			path := fmt.Sprintf("%s/%d", n.root, i)
			n.link.TearRequest(recipestest.OpCreate, bytes)
			require.Error(t, attempt(n.conn, path))
			require.Contains(t, n.link.Trace(), "is torn")
			suite.Wait(t, n.link.Answered(recipestest.OpConnect, i+2)) // so the server has read what there was
			requireExists(t, n.direct, path, false)
			create(t, n.conn, path, 0)
		}

		n.link.TearRequest(recipestest.OpAny, 4)
		n.link.TearRequest(recipestest.OpAny, 0)
		requireExists(t, n.conn, n.root, true)
		require.Equal(t, session, n.conn.SessionID())
	})
}

func TestTornReplyIsThatOfAnExecutedRequest(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)

		for i, bytes := range []int{1, 4, 19, 1 << 20} {
			path := fmt.Sprintf("%s/%d", n.root, i)
			n.link.TearReply(recipestest.OpCreate, bytes)
			require.ErrorIs(t, attempt(n.conn, path), zk.ErrConnectionClosed)
			requireExists(t, n.direct, path, true)
			requireExists(t, n.conn, path, true)
		}
	})
}

func TestHandshakesAndEventsAreLostOrTorn(t *testing.T) {
	for name, fault := range map[string]func(*recipestest.Link, recipestest.Op){
		"lost": func(l *recipestest.Link, op recipestest.Op) { l.LoseReply(op, 1) },
		"torn": func(l *recipestest.Link, op recipestest.Op) { l.TearReply(op, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *recipestest.Server) {
				link, root := s.Link(t), s.Root(t)
				direct := connect(t, s, s.Dial, 10*time.Second)
				link.TearRequest(recipestest.OpConnect, 6)
				fault(link, recipestest.OpConnect)
				conn := connect(t, s, link.Dial, 10*time.Second)
				require.Equal(t, 2, link.Count(recipestest.OpConnect), "the torn request is not counted")

				created := suite.WatchAt(t, conn.ExistsW, root)
				fault(link, recipestest.OpEvent)
				create(t, direct, root, 0)
				require.Equal(t, zk.EventNodeCreated, suite.Wait(t, created).Type, "seen when the watch is set again")
				require.Positive(t, link.Count(recipestest.OpSetWatches))
			})
		})
	}
}

func TestDelayAddsLatencyAndKeepsPipelining(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		link, root := s.Link(t), s.Root(t)
		conn := connect(t, s, link.Dial, 10*time.Second)
		create(t, conn, root, 0)

		const latency = 200 * time.Millisecond
		link.Delay(latency)
		begin := time.Now()
		suite.ReadAt(t, conn.Get, root)
		require.Equal(t, 2*latency, time.Since(begin))

		begin = time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := conn.Create(fmt.Sprintf("%s/%d", root, i), nil, 0, zk.WorldACL(zk.PermAll))
				if err != nil {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		require.Equal(t, 2*latency, time.Since(begin), "ten requests share a round trip")

		link.Delay(0)
		begin = time.Now()
		suite.ReadAt(t, conn.Get, root)
		require.Zero(t, time.Since(begin))
	})
}

func TestDelayKeepsOrderWhenItShrinks(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		link, root := s.Link(t), s.Root(t)
		conn := connect(t, s, link.Dial, 10*time.Second)
		link.Delay(time.Second)
		sent := link.Sent(recipestest.OpCreate, 1)
		failed := suite.Later(func() error { return attempt(conn, root) })

		time.Sleep(time.Millisecond)
		link.Delay(0)
		requireExists(t, conn, root, true)
		suite.Wait(t, sent)
		require.NoError(t, suite.Wait(t, failed))
	})
}

func TestAtMeetsEveryStep(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		create(t, n.conn, n.root, 0)

		var executed []bool
		for step := 1; ; step++ {
			path := fmt.Sprintf("%s/%d", n.root, step)
			stop := n.link.At(step, n.link.Cut)
			_, err := n.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			if stop() {
				require.NoError(t, err)
				break
			}
			require.Error(t, err)
			require.False(t, stop(), "it has run")
			back := n.link.Answered(recipestest.OpConnect, step+1)
			n.link.Heal()
			suite.Wait(t, back)
			exists := suite.ReadAt(t, n.direct.Exists, path)
			executed = append(executed, exists)
		}

		require.Equal(t, []bool{false, true}, executed, "cut before the request, cut before the reply")
		require.Equal(t, 3, n.link.Count(recipestest.OpCreate), "what was cut off on the way in is not counted")
	})
}

func TestAtLetsThePacketMeetTheNetworkAsLeft(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		before := n.link.Packets()

		var sawIt bool
		n.link.At(2, func() { // the server has executed it, the client does not know yet
			sawIt, _, _ = n.direct.Exists(n.root)
		})

		create(t, n.conn, n.root, 0)
		require.True(t, sawIt)
		require.Equal(t, 2, n.link.Packets()-before)

		n.link.At(1, func() { suite.Blip(n.link) })
		require.ErrorIs(t, attempt(n.conn, n.root+"/a"), zk.ErrConnectionClosed, "a blip")
		requireExists(t, n.conn, n.root+"/a", false)
	})
}

func TestAtMayExpireTheSession(t *testing.T) {
	onLink(t, 10*time.Second, func(t *testing.T, n network) {
		session := n.conn.SessionID()
		n.link.At(1, func() { n.server.ExpireSession(session) })
		require.Error(t, suite.Err(n.conn.Create(n.root, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
		requireExists(t, n.direct, n.root, false)
	})
}

func TestLinkCounts(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		require.Equal(t, 1, n.link.Count(recipestest.OpConnect))
		require.Zero(t, n.link.Count(recipestest.OpAny), "the handshake is no operation")
		suite.Wait(t, n.link.Answered(recipestest.OpPing, 2))
		require.Zero(t, n.link.Count(recipestest.OpAny))
		require.Equal(t, 2, n.link.Packets())

		create(t, n.conn, n.root, 0)
		suite.ReadAt(t, n.conn.Children, n.root)
		suite.WatchAt(t, n.conn.GetW, n.root)
		suite.Got(n.conn.Set(n.root, nil, -1))(t)
		suite.ReadAt(t, n.conn.Get, n.root)
		for op, count := range map[recipestest.Op]int{
			recipestest.OpCreate: 1, recipestest.OpGetChildren: 1, recipestest.OpGetData: 2, recipestest.OpSetData: 1,
			recipestest.OpAny: 5, recipestest.OpDelete: 0,
		} {
			require.Equal(t, count, n.link.Count(op), op)
		}

		require.Equal(t, 1, n.link.Events())
		require.Equal(t, 2+10+1, n.link.Packets())
	})
}

func TestSentAndAnsweredSignal(t *testing.T) {
	onLink(t, 6*time.Second, func(t *testing.T, n network) {
		sent, answered := n.link.Sent(recipestest.OpGetData, 1), n.link.Answered(recipestest.OpGetData, 1)
		noSignal(t, sent)

		n.link.Stall()
		failed := suite.Later(func() error {
			_, _, err := n.conn.Get(n.root)
			return err
		})

		require.ErrorIs(t, suite.Wait(t, failed), zk.ErrConnectionClosed)
		noSignal(t, sent)
		n.link.Heal()
		suite.Wait(t, n.link.Answered(recipestest.OpConnect, 2))
		requireBack(t, n.conn)

		_, _, err := n.conn.Get(n.root)
		require.ErrorIs(t, err, zk.ErrNoNode)
		suite.Wait(t, sent)
		suite.Wait(t, answered)
		suite.Wait(t, n.link.Sent(recipestest.OpGetData, 0))
		suite.Wait(t, n.link.Sent(recipestest.OpAny, 1))
		noSignal(t, n.link.Sent(recipestest.OpGetData, 2))
	})
}

func noSignal(t *testing.T, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
		require.FailNow(t, "signal came too early")
	default:
	}
}

func TestServerHangsUpOnWhatIsNotZooKeeper(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		link := s.Link(t)
		c := suite.Got(link.Dial("tcp", s.ConnectString(), 10*time.Second))(t)
		require.Error(t, suite.Err(c.Write([]byte("GET / HTTP/1.1\r\n"))))
		require.ErrorIs(t, suite.Err(c.Read(make([]byte, 1))), syscall.ECONNRESET)

		c = suite.Got(link.Dial("tcp", s.ConnectString(), 10*time.Second))(t)
		_, err := c.Write([]byte{0, 0, 0, 1, 0}) // a handshake that is too short
		require.NoError(t, err)
		require.Error(t, suite.Err(c.Read(make([]byte, 1))))
		require.NoError(t, c.Close())
	})
}

// A server that ends a connection before it has read all requests resets it.
func TestAnswerBeforeAResetArrives(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		for range 20 {
			link := s.Link(t)
			client := &speaker{t: t}
			client.handshake(link.Dial, s, 0)
			answered := link.Answered(recipestest.OpClose, 1)

			client.send(recipestest.OpExists, "\x00\x00\x00\x01/\x00")
			client.send(recipestest.OpClose, "")
			for range 20 { // which the server need not read
				client.send(recipestest.OpExists, strings.Repeat("x", 100_000))
			}

			suite.Wait(t, answered)
			require.Equal(t, 1, int(binary.BigEndian.Uint32(client.read(0))))
			require.Equal(t, 2, int(binary.BigEndian.Uint32(client.read(0))))
			_, err := io.Copy(io.Discard, client.conn)
			require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
			require.NoError(t, client.conn.Close())
		}
	})
}

// Package conntest tests the rest, as for any net.Conn.
func TestClosedConnSaysSo(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		c := suite.Got(s.Link(t).Dial("tcp", s.ConnectString(), 10*time.Second))(t)
		require.Equal(t, s.ConnectString(), c.RemoteAddr().String())
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		failed := suite.Later(func() error {
			_, err := c.Read(make([]byte, 1))
			return err
		})

		suite.Got(c.Write(nil))(t)
		require.NoError(t, c.Close())
		require.ErrorIs(t, suite.Wait(t, failed), net.ErrClosed, "and not of a deadline that was taken back")
		require.ErrorIs(t, c.Close(), net.ErrClosed)
		require.ErrorIs(t, suite.Err(c.Write([]byte{0})), net.ErrClosed)
		require.ErrorIs(t, c.SetDeadline(time.Time{}), net.ErrClosed)
	})
}

func TestReadEndsAtTheLatestDeadline(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		c := suite.Got(s.Link(t).Dial("tcp", s.ConnectString(), time.Second))(t)
		defer c.Close()
		for _, deadlines := range [][]time.Duration{{5, 2}, {1, 5}, {2, 3, 1}, {0, 4}, {3, 0, 5}} {
			began := time.Now()
			failed := make(chan error, 1)
			require.NoError(t, c.SetReadDeadline(time.Time{}))
			go func() {
				_, err := c.Read(make([]byte, 1))
				failed <- err
			}()
			for _, d := range deadlines {
				synctest.Wait()
				var at time.Time
				if d > 0 {
					at = began.Add(d * 100 * time.Millisecond)
				}
				require.NoError(t, c.SetReadDeadline(at))
			}
			require.ErrorIs(t, suite.Wait(t, failed), os.ErrDeadlineExceeded)
			require.Equal(t, deadlines[len(deadlines)-1]*100*time.Millisecond, time.Since(began), "deadlines %d", deadlines)
		}
	})
}

func TestMoveLeadsToAFollower(t *testing.T) {
	overBoth(t, func(t *testing.T, s *recipestest.Server) {
		link, root := s.Link(t), s.Root(t)
		conn := connect(t, s, link.Dial, 10*time.Second)
		session := conn.SessionID()
		create(t, conn, root, 0)
		follower := s.Embedded().Follower()
		follower.Lag(time.Hour) // which is over when the test is
		seen := func() bool {
			there := suite.ReadAt(t, conn.Exists, root+"/a")
			return there
		}

		link.Move(follower)
		direct := connect(t, s, s.Dial, 10*time.Second)
		create(t, direct, root+"/a", zk.FlagEphemeral)
		require.True(t, seen(), "the connection that is there stays")
		require.NoError(t, direct.Delete(root+"/a", -1))
		follower.Lag(0)
		follower.Lag(time.Hour)
		suite.Blip(link)
		suite.Wait(t, link.Answered(recipestest.OpConnect, 2))
		require.Equal(t, session, conn.SessionID())

		create(t, direct, root+"/a", zk.FlagEphemeral)
		require.False(t, seen(), "it has moved")
		follower.Lag(0)
		require.True(t, seen())
		follower.Lag(time.Hour)
	})
}

func TestOpString(t *testing.T) {
	t.Parallel()
	require.Equal(t, "getData", recipestest.OpGetData.String())
	require.Equal(t, "any", recipestest.OpAny.String())
	require.Equal(t, "op4711", recipestest.Op(4711).String())
}
