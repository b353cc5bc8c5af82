package protocol_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// answering is a way through link on which, while code is not zero, each answer to a request says
// that code.
func answering(link *recipestest.Link) (protocol.ConnectOption, *atomic.Int32) {
	code := new(atomic.Int32)
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &answeringConn{Conn: c, code: code}, nil
	}), code
}

type answeringConn struct {
	net.Conn
	code   *atomic.Int32
	frame  []byte // what was not handed over yet
	shaken bool
}

func (c *answeringConn) Read(p []byte) (int, error) {
	if len(c.frame) == 0 {
		head := make([]byte, 4)
		if err := readFull(c.Conn, head); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head))
		if err := readFull(c.Conn, body); err != nil {
			return 0, err
		}
		if code := c.code.Load(); code != 0 && c.shaken && int32(binary.BigEndian.Uint32(body)) > 0 {
			body = body[:16]
			binary.BigEndian.PutUint32(body[12:], uint32(code))
			binary.BigEndian.PutUint32(head, 16)
		}
		c.shaken = true
		c.frame = append(head, body...)
	}
	n := copy(p, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

func readFull(c net.Conn, b []byte) error {
	for len(b) > 0 {
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// The connection breaks once, and then the server says nothing any more.
func TestDeadlineDuringAnAttemptSaysWhatTheLastDiedOf(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		calls := 0

		_, err := recipe.Do(within(t, time.Second), s, func(c *zk.Conn) (bool, error) {
			if calls++; calls == 1 {
				return false, zk.ErrSessionMoved
			}
			link.Stall()
			there, _, err := c.Exists("/")
			return there, err
		})

		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, zk.ErrSessionMoved.Error())
		link.Heal()
	})
}

// A server that refuses to work for ever must not look like a lock that is busy.
func TestDeadlineSaysWhatTheServerDid(t *testing.T) {
	for code, text := range map[int32]string{-127: "-127", -118: zk.ErrSessionMoved.Error(), -4: "-4"} {
		t.Run(text, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, told := srv.Root(t)+"/line", srv.Link(t), new(retries)
				dialer, answer := answering(link)
				c := link.Client(t, dialer, protocol.WithObserver(told))
				s := session(t, c)
				for name, call := range map[string]func(context.Context) error{
					"enter": func(ctx context.Context) error { _, err := lineAt(c, path).Enter(ctx, request); return err },
					"try": func(ctx context.Context) error {
						_, err := lineAt(c, path).Enter(ctx, line.Request{Kind: "lock-", Blockers: line.Exclusive, Try: true})
						return err
					},
					"ensure": func(ctx context.Context) error { _, err := s.EnsurePath(ctx, path); return err },
				} {
					before := told.observed.Load()
					answer.Store(code)

					err := call(within(t, time.Second))

					require.ErrorIs(t, err, context.DeadlineExceeded, name)
					require.ErrorContains(t, err, text, name)
					synctest.Wait()
					require.Greater(t, told.observed.Load(), before, name)
					answer.Store(0)
				}
				requireNoContenders(t, srv.Client(t), path)
			})
		})
	}
}
