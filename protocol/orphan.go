package protocol

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// closeOrphan closes a session at the servers that we have given up. The servers may still know it,
// and its nodes would block other contenders until it expires. Without a quorum it never expires,
// as its time runs only under a leader.
//
// closeOrphan blocks until the session is known to be gone, or ctx ends. It makes its requests
// itself: zk.Conn can neither take over a session nor find out what became of its own.
func (c *Client) closeOrphan(ctx context.Context, session int64, password []byte, timeout time.Duration) error {
	route := newRoute(c.sessions)
	for attempt := 1; ; attempt++ {
		prolonged, err := c.closeOrphanAt(ctx, route.next(ctx, timeout), session, password, timeout)
		if err == nil {
			return nil
		}

		pause, closing := redialAfter(attempt, route.len(), timeout), (<-chan struct{})(nil)
		if prolonged && c.closing.Err() == nil {
			// The session's time has begun anew. It must be left alone for that time, or failing
			// attempts would keep it alive. Servers end sessions at the next tick, and there are
			// two ticks or more to a timeout.
			//
			// Close does not wait for this pause: its own attempts cannot keep the session alive
			// for long.
			c.log.Warn("lost session not closed", "session", hexID(session), "error", err)
			pause, closing = timeout+timeout/2, c.closing.Done()
		}
		select {
		case <-time.After(max(pause, 1)): // see sleep
		case <-closing:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", unclosed(session), context.Cause(ctx), err)
		}
	}
}

func unclosed(session int64) error {
	return fmt.Errorf("session %v could not be closed in time, its nodes stay until it expires", hexID(session))
}

// closeOrphanAt closes a session at one server. If that fails, prolonged reports whether the server
// may have resumed the session, which prolongs its life.
func (c *Client) closeOrphanAt(ctx context.Context, server string, session int64, password []byte,
	timeout time.Duration) (prolonged bool, err error) {
	limit := max(timeout/3, time.Second)
	conn, err := c.dial(ctx, "tcp", server, min(limit, time.Second))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return false, err
	}
	in := bufio.NewReaderSize(conn, 256)

	// The request claims to have seen nothing, as nothing will be read. So any server accepts it,
	// even one that has lost its data.
	answer, err := exchange(conn, in, zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		Timeout: timeout, SessionID: session, Password: password,
	}))
	if err != nil {
		// A server that does not serve hangs up. A silent one may have resumed the session.
		return errors.Is(err, os.ErrDeadlineExceeded), err
	}
	granted, err := zkwire.ParseConnectResponse(answer[4:])
	if err != nil {
		return false, err
	}
	if granted.SessionID != session {
		return false, nil // expired, and gone
	}

	// A server that demands credentials closes no session without them.
	for _, a := range c.auth {
		auth := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: zkwire.XidAuth, Op: zkwire.OpAuth})
		auth = zkwire.AppendInt32(auth, 0) // type, unused
		auth = zkwire.AppendBuffer(zkwire.AppendString(auth, a.scheme), a.secret())
		if err := request(conn, in, auth); err != nil {
			return true, fmt.Errorf("auth %s: %w", a.identity(), err)
		}
	}
	end := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: 1, Op: zkwire.OpCloseSession})
	if err := request(conn, in, end); err != nil {
		return true, fmt.Errorf("closing session %v: %w", hexID(session), err)
	}
	return false, nil
}

// request makes a request whose answer has no body.
func request(conn net.Conn, in *bufio.Reader, frame []byte) error {
	answer, err := exchange(conn, in, zkwire.SetLength(frame))
	if err != nil {
		return err
	}
	head, ok := zkwire.ParseReplyHeader(answer)
	if !ok {
		return zkwire.ErrMalformed
	}
	if head.Code != zkwire.CodeOK {
		return fmt.Errorf("error %d", head.Code)
	}
	return nil
}

// exchange sends a frame and reads the frame that answers it.
func exchange(conn net.Conn, in *bufio.Reader, frame []byte) ([]byte, error) {
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	return zkwire.ReadFrame(in, sendBuffer)
}
