package protocol_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	kernel "github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// tamperOnce dials srv, and tampers with the answer to the second handshake. The second result says
// whether it has done so.
func tamperOnce(srv *recipestest.Server, tamper func(frame []byte) []byte) (protocol.ConnectOption, *atomic.Bool) {
	var dials atomic.Int32
	tampered := new(atomic.Bool)
	return suite.Over(srv.Dial, func(conn net.Conn) suite.Wire {
		if dials.Add(1) != 2 {
			return suite.Wire{Conn: conn}
		}
		return suite.Wire{Conn: conn, OnRead: suite.Frames(conn, func(frame []byte) []byte {
			if !tampered.Swap(true) {
				return tamper(frame)
			}
			return frame
		})}
	}), tampered
}

// TestServerThatGivesOutAnotherSessionEndsTheOldOne is about servers that answer a resumption with
// a new session.
func TestServerThatGivesOutAnotherSessionEndsTheOldOne(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const other = 0x1234
		tampering, _ := tamperOnce(srv, func(frame []byte) []byte {
			binary.BigEndian.PutUint64(frame[12:], other)
			return frame
		})
		c := srv.Client(t, tampering)
		s, g := suite.Session(t, c), suite.Hold(t, c, srv.Root(t))
		srv.Embedded().DropConnections()
		suite.Wait(t, g.Done())
		require.ErrorIs(t, s.Err(), protocol.ErrLost)
		next := suite.Session(t, c)
		require.NotEqual(t, s.ID(), next.ID())
		require.NotEqual(t, int64(other), next.ID())
		require.Zero(t, s.Conn().SessionID()&other&^s.ID(), "zk.Conn did not get to see it")
		srv.ExpireSession(s.ID())
	})
}

// An answer that makes no sense says nothing about the session.
func TestSessionSurvivesAMalformedHandshake(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		tampering, tampered := tamperOnce(srv, func(frame []byte) []byte {
			return append([]byte{0, 0, 0, 19}, frame[4:23]...)
		})
		c := srv.Client(t, tampering)
		s, g := suite.Session(t, c), suite.Hold(t, c, srv.Root(t))
		srv.Embedded().DropConnections()
		require.NoError(t, g.Verify(suite.Lasting(t)))
		require.True(t, tampered.Load())
		require.NoError(t, s.Err())
		suite.Release(t, g)
	})
}

// The error of Connect says how the server has ended the handshake.
func TestConnectTellsWhatBecameOfTheHandshake(t *testing.T) {
	for want, answer := range map[string][]byte{
		"the server hangs up during the handshake": nil,
		"handshake: EOF": {0, 0, 0, 37, 0},
	} {
		t.Run(want, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, _ *recipestest.Server) {
				_, err := protocol.Connect(suite.Within(t, 10*time.Second), "server", answering(answer))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, want)
			})
		})
	}
}

// A faulty connection fails once, in one way.
type faulty struct {
	net.Conn
	deadlines int                 // how many deadlines can be set before one fails
	fails     func(p []byte) bool // whether this is the write that fails
	closed    atomic.Bool
}

var errFaulty = errors.New("faulty")

func (f *faulty) SetDeadline(at time.Time) error {
	if f.deadlines--; f.deadlines == -1 {
		return errFaulty
	}
	return f.Conn.SetDeadline(at)
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.fails != nil && f.fails(p) {
		return 0, errFaulty
	}
	return f.Conn.Write(p)
}

func (f *faulty) Close() error {
	f.closed.Store(true)
	return f.Conn.Close()
}

// firstIs dials srv. The first connection is f.
func firstIs(f *faulty, srv *recipestest.Server) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := srv.Dial(network, address, timeout)
		if err != nil || f.Conn != nil {
			return conn, err
		}
		f.Conn = conn
		return f, nil
	})
}

// A connection whose deadline cannot be set would bound neither a handshake nor later
// requests.
func TestConnectionWhoseDeadlineCannotBeSetIsLeft(t *testing.T) {
	for deadlines := range 2 {
		bubbles := func(t *testing.T, srv *recipestest.Server) {
			f := &faulty{deadlines: deadlines}
			suite.Session(t, srv.Client(t, firstIs(f, srv)))
			require.True(t, f.closed.Load())
		}
		t.Run(fmt.Sprint(deadlines), func(t *testing.T) { suite.Bubble(t, bubbles) })
	}
}

// Of a request that a connection did not take, or only a piece, there will be no answer.
func TestConnectionThatDoesNotTakeARequestIsLeft(t *testing.T) {
	for name, size := range map[string]int{"short": 1, "long": 50_000} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			var armed atomic.Bool
			f := &faulty{deadlines: 2, fails: func(p []byte) bool { return len(p) > 50 && armed.Swap(false) }}
			path, s := srv.Root(t), suite.Session(t, srv.Client(t, firstIs(f, srv)))
			armed.Store(true)
			began, data := time.Now(), bytes.Repeat([]byte("x"), size)
			require.NoError(t, s.Create(suite.Lasting(t), path, data, zk.FlagEphemeral))
			require.Less(t, time.Since(began), time.Second)
			require.True(t, f.closed.Load())
			got, _, err := s.Get(suite.Lasting(t), path)
			require.NoError(t, err)
			require.Equal(t, data, got)
			require.NoError(t, s.Delete(suite.Lasting(t), path, -1))
		})
	}
}

// Close waits for no server to take credentials.
func TestCloseDuringTheAuthenticationEnds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		answered := link.Answered(recipestest.OpConnect, 1)
		link.At(3, link.StallReplies) // the request with the credential
		ctx, cancel := context.WithCancel(t.Context())
		connected := suite.Later(func() error {
			_, err := protocol.Connect(ctx, srv.ConnectString(), alice, protocol.WithDialer(link.Dial))
			return err
		})

		suite.Wait(t, answered)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, suite.Wait(t, connected), context.Canceled)
		time.Sleep(time.Minute)
		require.Empty(t, ourGoroutines(t))
	})
}

// FuzzAnswers is a server that answers the first request of each connection with arbitrary bytes.
// Connect, calls and Close must return.
func FuzzAnswers(f *testing.F) {
	frameOf := func(payload []byte) []byte {
		return append(zkwire.AppendInt32(nil, int32(len(payload))), payload...)
	}
	accepted := zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{
		Timeout: 10 * time.Second, SessionID: 1, Password: make([]byte, 16),
	})
	then := func(answers ...byte) { f.Add(slices.Concat(accepted, answers)) }
	then(frameOf(append(zkwire.AppendInt32(nil, zkwire.XidPing), make([]byte, 12)...))...)
	then(frameOf(make([]byte, 16))...)                                                            // unasked
	then(frameOf(append(zkwire.AppendInt32(nil, 1), make([]byte, 90)...))...)                     // to the first request
	then(frameOf(append(zkwire.AppendInt32(nil, zkwire.XidEvent), make([]byte, 12)...))...)       // cut short
	then(frameOf(append(zkwire.AppendInt32(nil, zkwire.XidEvent), make([]byte, 12+4+4+4)...))...) // without a path
	then(frameOf([]byte("short"))...)
	then([]byte("\xff\xff\xff\xff")...) // a negative length
	then([]byte("\x7f\xff\xff\xff a length that is never reached")...)
	for _, handshake := range []struct{ at, value uint32 }{
		{0, 0}, {0, 1<<32 - 1}, {0, 1<<31 - 1}, // the frame's length
		{8, 0}, {8, 1 << 31}, // the timeout
		{16, 0},                          // the session
		{20, 1<<31 - 1}, {20, 1<<32 - 1}, // the password's length
	} {
		answer := bytes.Clone(accepted)
		binary.BigEndian.PutUint32(answer[handshake.at:], handshake.value)
		f.Add(answer)
	}
	f.Add(frameOf(accepted[4:23]))

	f.Fuzz(func(t *testing.T, answers []byte) {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(2 * time.Second) // by then the server has hung up
			ctx := suite.Within(t, time.Minute)
			client, err := protocol.Connect(ctx, "server:2181", answering(answers), protocol.WithSessionTimeout(10*time.Second),
				kernel.PacketLimit(128<<10).(protocol.ConnectOption)) // zk.Conn trusts the length of a packet
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return
			}
			if s, err := recipe.SessionOf(ctx, client); err == nil {
				s.Exists(ctx, "/a")
				s.Children(ctx, "/a")
			}

			client.Close() // can fail, because the session is perhaps not closed
		})
	})
}

// answering is a server that answers the first request of each connection, ignores all others and
// hangs up a second later.
func answering(answers []byte) protocol.ConnectOption {
	return protocol.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			if _, err := zkwire.ReadFrame(there, 1<<20); err != nil {
				return
			}
			go func() {
				there.Write(answers)
				time.Sleep(time.Second)
				there.Close()
			}()
			io.Copy(io.Discard, there)
		}()
		return here, nil
	})
}
