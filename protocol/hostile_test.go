package protocol_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A tampering connection changes its first frame, which is the answer to the handshake.
type tampering struct {
	net.Conn
	tamper func(frame []byte) []byte
	rest   io.Reader
}

func (c *tampering) Read(b []byte) (int, error) {
	if c.rest == nil {
		var size [4]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		c.rest = io.MultiReader(strings.NewReader(string(c.tamper(append(size[:], frame...)))), c.Conn)
	}
	return c.rest.Read(b)
}

// tamperFrom dials srv, and tampers with all connections from the n-th on.
func tamperFrom(n int32, srv *recipestest.Server, tamper func([]byte) []byte) protocol.ConnectOption {
	var dials atomic.Int32
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := srv.Dial(network, address, timeout)
		if err == nil && dials.Add(1) >= n {
			conn = &tampering{Conn: conn, tamper: tamper}
		}
		return conn, err
	})
}

// TestServerThatGivesOutAnotherSessionEndsTheOldOne is about servers that answer a resumption with
// a new session.
func TestServerThatGivesOutAnotherSessionEndsTheOldOne(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const other = 0x1234
		root := srv.Root(t)
		var tampered atomic.Bool
		c := srv.Client(t, tamperFrom(2, srv, func(frame []byte) []byte {
			if !tampered.Swap(true) {
				binary.BigEndian.PutUint64(frame[12:], other)
			}
			return frame
		}))
		s := session(t, c)
		g := hold(t, c, root)
		srv.Embedded().DropConnections()
		wait(t, g.Done())
		require.ErrorIs(t, s.Err(), protocol.ErrLost)
		next := session(t, c)
		require.NotEqual(t, s.ID(), next.ID())
		require.NotEqual(t, int64(other), next.ID())
		require.Zero(t, s.Conn().SessionID()&other&^s.ID(), "zk.Conn did not get to see it")
		srv.ExpireSession(s.ID())
	})
}

func TestClientSurvivesMalformedHandshakes(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func([]byte) []byte{
		"empty frame":        func([]byte) []byte { return make([]byte, 4) },
		"short frame":        func(f []byte) []byte { return append([]byte{0, 0, 0, 19}, f[4:23]...) },
		"negative length":    func(f []byte) []byte { return append([]byte{255, 255, 255, 255}, f[4:]...) },
		"huge length":        func(f []byte) []byte { return append([]byte{127, 255, 255, 255}, f[4:]...) },
		"huge password":      func(f []byte) []byte { binary.BigEndian.PutUint32(f[20:], 1<<31-1); return f },
		"no password":        func(f []byte) []byte { binary.BigEndian.PutUint32(f[20:], 1<<32-1); return f },
		"no session":         func(f []byte) []byte { binary.BigEndian.PutUint64(f[12:], 0); return f },
		"no timeout":         func(f []byte) []byte { binary.BigEndian.PutUint32(f[8:], 0); return f },
		"negative timeout":   func(f []byte) []byte { binary.BigEndian.PutUint32(f[8:], 1<<31); return f },
		"a frame too short":  func(f []byte) []byte { return append(f, 0, 0, 0, 1, 0) },
		"a frame too long":   func(f []byte) []byte { return append(f, 127, 255, 255, 255, 0) },
		"an answer unasked":  func(f []byte) []byte { return append(append(f, 0, 0, 0, 16), make([]byte, 16)...) },
		"an event cut short": func(f []byte) []byte { return append(append(f, 0, 0, 0, 16, 255, 255, 255, 255), make([]byte, 12)...) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				c, err := protocol.Connect(within(t, 3*time.Second), srv.ConnectString(), tamperFrom(1, srv, tamper))
				if err == nil {
					_, err := lineAt(c, srv.Root(t)).Enter(within(t, 3*time.Second), request)
					t.Log(err)
					c.Close()
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				require.Empty(t, ourGoroutines())
			})
		})
	}
}

// An answer that makes no sense says nothing about the session.
func TestSessionSurvivesAMalformedHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var tampered atomic.Bool
		c := srv.Client(t, tamperFrom(2, srv, func(frame []byte) []byte {
			if tampered.Swap(true) {
				return frame
			}
			return append([]byte{0, 0, 0, 19}, frame[4:23]...)
		}))
		s, g := session(t, c), hold(t, c, srv.Root(t))
		srv.Embedded().DropConnections()
		require.NoError(t, g.Verify(lasting(t)))
		require.True(t, tampered.Load())
		require.NoError(t, s.Err())
		release(t, g)
	})
}

// What a server does to the handshake is in the error of Connect.
func TestConnectTellsWhatBecameOfTheHandshake(t *testing.T) {
	for want, answer := range map[string][]byte{
		"the server hangs up during the handshake": nil,
		"handshake: EOF": {0, 0, 0, 37, 0},
	} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *recipestest.Server) {
				_, err := protocol.Connect(within(t, 10*time.Second), "server", protocol.WithDialer(
					func(string, string, time.Duration) (net.Conn, error) {
						here, there := net.Pipe()
						go func() {
							there.Read(make([]byte, 1024))
							there.Write(answer)
							there.Close()
						}()
						return here, nil
					}))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, want)
			})
		})
	}
}

// A faulty connection fails once, in one way.
type faulty struct {
	net.Conn
	deadlines int                 // that may be set before one may not
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

// A connection whose deadline cannot be set would bound neither a handshake nor what comes after
// it.
func TestConnectionWhoseDeadlineCannotBeSetIsLeft(t *testing.T) {
	for deadlines := range 2 {
		bubbles := func(t *testing.T, srv *recipestest.Server) {
			f := &faulty{deadlines: deadlines}
			session(t, srv.Client(t, firstIs(f, srv)))
			require.True(t, f.closed.Load())
		}
		t.Run(fmt.Sprint(deadlines), func(t *testing.T) { bubble(t, bubbles) })
	}
}

// Of a request that a connection did not take, or only a piece, there will be no answer.
func TestConnectionThatDoesNotTakeARequestIsLeft(t *testing.T) {
	for name, size := range map[string]int{"short": 1, "long": 50_000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				var armed atomic.Bool
				f := &faulty{deadlines: 2, fails: func(p []byte) bool { return len(p) > 50 && armed.Swap(false) }}
				path, s := srv.Root(t), session(t, srv.Client(t, firstIs(f, srv)))
				armed.Store(true)
				began, data := time.Now(), bytes.Repeat([]byte("x"), size)
				require.NoError(t, s.Create(lasting(t), path, data, zk.FlagEphemeral))
				require.Less(t, time.Since(began), time.Second)
				require.True(t, f.closed.Load())
				got, _, err := s.Get(lasting(t), path)
				require.NoError(t, err)
				require.Equal(t, data, got)
				require.NoError(t, s.Delete(lasting(t), path, -1))
			})
		})
	}
}

// Close waits for no server to take credentials.
func TestCloseDuringTheAuthenticationEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		answered := link.Answered(recipestest.OpConnect, 1)
		link.At(3, link.StallReplies) // the request with the credential
		ctx, cancel := context.WithCancel(t.Context())
		connected := later(func() error {
			_, err := protocol.Connect(ctx, srv.ConnectString(), alice, protocol.WithDialer(link.Dial))
			return err
		})
		wait(t, answered)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, wait(t, connected), context.Canceled)
		time.Sleep(time.Minute)
		require.Empty(t, ourGoroutines())
	})
}

// A session that is lost while no server answers cannot be closed.
func TestCloseReportsALostSessionThatStays(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := connect(t, srv.ConnectString(), protocol.WithDialer(link.Dial))
		g := hold(t, c, srv.Root(t))
		link.Stall()
		wait(t, g.Done())
		synctest.Wait()
		require.ErrorContains(t, c.Close(), "could not be closed")
	})
}

// drawPath makes paths of all kinds of characters, many of them valid.
func drawPath(t *rapid.T) string {
	part := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("abé.…~ %\\:*")), 0, 4, -1),
		rapid.StringOfN(rapid.OneOf(rapid.Rune(), rapid.RuneFrom([]rune{0, 0x1f, 0x20, 0x7e, 0x7f, 0x9f, 0xa0, 0xd7ff, 0xe000, 0xf8ff, 0xf900,
			0xffef, 0xfff0, 0xfffd, 0xffff, 0x10000, 0x1f600})), 1, 3, -1),
		rapid.SampledFrom([]string{".", "..", "...", "", "zookeeper", "\xff"}),
	)
	return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), "/")
}

func TestPathsThatAreValidAreAcceptedByTheServer(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) { // rapid.Check asks for t.Deadline
		s, root := session(t, srv.Client(t)), srv.Root(t)
		_, err := create(s, root, 0)(s.Conn()) // a container would be gone soon
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			path := root + "/" + drawPath(t)
			if recipe.ValidatePath(path) != nil {
				return
			}
			_, err := s.Conn().Create(s.Path(path), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if err == nil {
				err = s.Conn().Delete(s.Path(path), -1)
			}
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatalf("%q: %v", path, err)
			}
		})
	})
}
