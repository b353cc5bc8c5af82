package protocol_test

import (
	"context"
	"math"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// replying dials a server that accepts the session, and sends a frame of its own for each request
// but pings. After each connection it tells how long after the last frame the client hung up.
func replying(frame func(xid int32) []byte) (protocol.ConnectOption, <-chan time.Duration) {
	hungUp := make(chan time.Duration, 100)
	serve := func(c net.Conn) {
		defer c.Close()
		if _, err := zkwire.ReadFrame(c, 1<<20); err != nil {
			return
		}
		c.Write(zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{
			Timeout: 10 * time.Second, SessionID: 1, Password: make([]byte, 16),
		}))
		for last := time.Now(); ; {
			request, err := zkwire.ReadFrame(c, 1<<20)
			if err != nil {
				hungUp <- time.Since(last)
				return
			}
			if r, ok := zkwire.ParseRequestHeader(request); ok && r.Xid > 0 {
				last = time.Now()
				c.Write(frame(r.Xid))
			}
		}
	}
	return protocol.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		here, there := net.Pipe()
		go serve(there)
		return here, nil
	}), hungUp
}

// head is that of an answer without an error.
func head(xid int32) []byte { return append(zkwire.AppendInt32(nil, xid), make([]byte, 12)...) }

// replyOf is an answer whose body begins with n and has more bytes after that.
func replyOf(xid, n int32, more int) []byte {
	return append(zkwire.AppendInt32(head(xid), n), make([]byte, more)...)
}

// underHostileServer makes one call of a server that sends these frames, for five seconds.
func underHostileServer(t *testing.T, frame func(xid int32) []byte, call func(*zk.Conn) error) (<-chan time.Duration, error) {
	dialer, hungUp := replying(frame)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := protocol.Connect(ctx, "server:2181", dialer)
	require.NoError(t, err)
	s, err := c.Session(ctx)
	require.NoError(t, err)
	_, err = protocol.Do(ctx, s, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, call(conn) })
	c.Close()                   // the session may not be closed: that is an error
	time.Sleep(2 * time.Second) // by then the connections have ended
	require.Empty(t, ourGoroutines())
	return hungUp, err
}

// zk.Conn would allocate two gigabytes, and wait for them.
func TestTooLongFrameEndsTheConnectionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hungUp, err := underHostileServer(t, func(xid int32) []byte {
			return append(zkwire.AppendInt32(nil, math.MaxInt32), replyOf(xid, 0, 0)...)
		}, func(c *zk.Conn) error { _, _, err := c.Exists("/a"); return err })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "bad frame length: 2147483647, of at most 268435456")
		require.Zero(t, wait(t, hungUp))
	})
}

// zk.Conn would allocate what a count says before it looks for so many elements, and the process
// would end: it has no gigabytes for them.
func TestOverstatedCountEndsTheConnection(t *testing.T) {
	for name, call := range map[string]func(*zk.Conn) error{
		"getChildren2": func(c *zk.Conn) error { _, _, err := c.Children("/a"); return err },
		"getData":      func(c *zk.Conn) error { _, _, err := c.Get("/a"); return err },
		"getACL":       func(c *zk.Conn) error { _, _, err := c.GetACL("/a"); return err },
	} {
		for of, n := range map[string]int32{"far": math.MaxInt32, "by one": 101, "null": -1} {
			if name == "getData" && n == -1 {
				continue // null data are valid
			}
			t.Run(name+" "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hungUp, err := underHostileServer(t, func(xid int32) []byte {
						more := 4 * 100
						if name == "getData" {
							more = 100
						}
						return frameOf(replyOf(xid, n, more))
					}, call)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "answer to "+name+": malformed packet")
					require.Zero(t, wait(t, hungUp))
				})
			})
		}
	}
}

// What fits is zk.Conn's: as many elements as there is room for, and null data.
func TestCountThatFitsIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := underHostileServer(t, func(xid int32) []byte { return frameOf(replyOf(xid, 100, 4*100+68)) },
			func(c *zk.Conn) error {
				children, _, err := c.Children("/a")
				require.Len(t, children, 100)
				return err
			})
		require.NoError(t, err)
		_, err = underHostileServer(t, func(xid int32) []byte { return frameOf(replyOf(xid, -1, 68)) },
			func(c *zk.Conn) error {
				data, _, err := c.Get("/a")
				require.Nil(t, data)
				return err
			})
		require.NoError(t, err)
	})
}

// results are those of a transaction, of each kind, and then the end.
func results() []byte {
	result := func(b []byte, op zkwire.Op, body ...byte) []byte {
		return append(zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(b, int32(op)), false), 0), body...)
	}
	b := result(nil, zkwire.OpCreate, zkwire.AppendString(nil, "/created")...)
	b = result(b, zkwire.OpCheck)
	b = result(b, zkwire.OpSetData, make([]byte, 68)...)
	b = result(b, zkwire.OpDelete)
	b = result(b, zkwire.OpError, make([]byte, 4)...)
	return zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(b, -1), true), -1)
}

// zk.Conn panics where the head of a result is missing. So it gets no answer that ends too early.
func TestTransactionCutShortEndsTheConnection(t *testing.T) {
	all := results()
	for n := range all {
		_, err := multiUnderHostileServer(t, all[:n])
		require.ErrorContains(t, err, "answer to multi: malformed packet", "%d of %d bytes", n, len(all))
	}
	got, err := multiUnderHostileServer(t, all)
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.Equal(t, "/created", got[0].String)
}

// FuzzBodies answers calls without an error, and with these bytes. No call may panic.
func FuzzBodies(f *testing.F) {
	calls := []func(*zk.Conn) error{
		func(c *zk.Conn) error { _, _, err := c.Exists("/a"); return err },
		func(c *zk.Conn) error { _, err := c.Create("/a", nil, 0, nil); return err },
		func(c *zk.Conn) error { _, _, err := c.Children("/a"); return err },
		func(c *zk.Conn) error { _, _, err := c.Get("/a"); return err },
		func(c *zk.Conn) error { _, _, err := c.GetACL("/a"); return err },
		func(c *zk.Conn) error { _, err := c.Multi(&zk.DeleteRequest{Path: "/a"}); return err },
	}
	for n := range calls {
		f.Add(uint8(n), results())
		f.Add(uint8(n), zkwire.AppendInt32(nil, math.MaxInt32))
	}
	f.Fuzz(func(t *testing.T, call uint8, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			underHostileServer(t, func(xid int32) []byte { return frameOf(append(head(xid), body...)) },
				calls[int(call)%len(calls)])
		})
	})
}

func multiUnderHostileServer(t *testing.T, body []byte) (got []zk.MultiResponse, err error) {
	synctest.Test(t, func(t *testing.T) {
		_, err = underHostileServer(t, func(xid int32) []byte {
			return frameOf(append(head(xid), body...))
		}, func(c *zk.Conn) (err error) {
			got, err = c.Multi(&zk.DeleteRequest{Path: "/a", Version: -1})
			return err
		})
	})
	return got, err
}

// The answer takes 1.9 of 10 s, and each piece of it is a sign of life. Without these the
// connection would be left each time.
func TestLongAnswerToATransactionOverASlowLinkLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t, overSlow(link, 200_000))
		s := session(t, c)
		_, err := s.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		g := hold(t, c, root+"/held")
		time.Sleep(time.Minute)
		connects := link.Count(recipestest.OpConnect)
		sets := slices.Repeat([]any{&zk.SetDataRequest{Path: root, Version: -1}}, 5_000)
		got, err := protocol.Do(lasting(t), s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(sets...) })
		require.NoError(t, err)
		require.Len(t, got, len(sets))
		require.Equal(t, connects, link.Count(recipestest.OpConnect), "connections")
		require.NoError(t, g.Err())
		release(t, g)
	})
}
