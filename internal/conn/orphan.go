package conn

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// closeOrphan closes, at the servers, a session that we have given up. Until the session expires,
// its nodes block other contenders. Without a quorum it never expires, because its time only runs
// under a leader.
//
// closeOrphan blocks until the session has certainly ended, or until ctx ends. It makes its
// requests itself: zk.Conn can't take over a session, and can't find out whether its own session
// has ended. If no server answers at first, it calls await.
func (c *Conn) closeOrphan(ctx context.Context, password []byte, timeout time.Duration, await func(context.Context)) error {
	route, began, session, closing := newRoute(c.ensemble), time.Now(), c.ID(), c.ensemble.Closing
	for attempt := 1; ; attempt++ {
		f := search{resumes: true, slow: time.Since(began) > patience}
		prolonged, err := c.closeOrphanAt(ctx, route.next(ctx, timeout, f), session, password, timeout)
		if err == nil {
			return nil
		}

		pause, cutShort := pauseAfter(attempt, route.len(), timeout, f), (<-chan struct{})(nil)
		if prolonged && closing.Err() == nil {
			// The session's time may have begun anew. It must be left alone for that long, or
			// failing attempts would keep it alive. (Servers end sessions at the next tick, and a
			// timeout is two ticks or more.)
			//
			// Close doesn't wait for this pause, because its own attempts can't keep the session
			// alive for long.
			c.host.Log(slog.LevelWarn, "lost session not closed", "session", layout.SessionID(session), "error", err)
			pause, cutShort = timeout+timeout/2, closing.Done()
		}
		select {
		case <-time.After(max(pause, 1)): // see Sleep
		case <-cutShort:
		case <-ctx.Done():
		}

		// When no server has answered, the next attempt can wait until another session has a
		// server.
		if attempt >= route.len() {
			await(ctx)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w: %w", Unclosed(session), context.Cause(ctx), err)
		}
	}
}

// Unclosed is the error for a session that may still be open at the servers.
func Unclosed(session int64) error {
	return fmt.Errorf("session %v could not be closed in time, its nodes stay until it expires", layout.SessionID(session))
}

// closeOrphanAt closes a session at one server. If that fails, prolonged reports whether the server
// may have resumed the session (which prolongs its life).
func (c *Conn) closeOrphanAt(ctx context.Context, server target, session int64, password []byte,
	timeout time.Duration) (prolonged bool, err error) {
	limit := max(timeout/3, time.Second)
	conn, err := c.ensemble.connect(ctx, "tcp", server, min(limit, time.Second))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return false, err
	}
	in := bufio.NewReaderSize(conn, 256)

	// The request claims to have seen no transactions, because nothing will be read. So any server
	// accepts it, even a server that has lost its data.
	answer, err := exchange(conn, in, zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		Timeout: timeout, SessionID: session, Password: password,
	}))
	if err != nil {
		// A server that doesn't serve hangs up. But a proxy also hangs up, and a server behind it
		// may have resumed the session.
		return true, err
	}
	granted, err := zkwire.ParseConnectResponse(answer[4:])
	if err != nil {
		return true, err
	}
	switch {
	case granted.SessionID == session:
	case server.former:
		return false, errFormer
	default:
		return false, nil // expired, and gone
	}

	// A server that demands credentials doesn't close a session without them.
	for _, a := range c.ensemble.Credentials {
		auth := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: zkwire.XidAuth, Op: zkwire.OpAuth})
		auth = zkwire.AppendInt32(auth, 0) // type, unused
		auth = zkwire.AppendBuffer(zkwire.AppendString(auth, a.Scheme), a.secret())
		if err := request(conn, in, auth); err != nil {
			return true, fmt.Errorf("auth %s: %w", a, err)
		}
	}
	end := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: c.ownXid(), Op: zkwire.OpCloseSession})
	if err := request(conn, in, end); err != nil {
		return true, fmt.Errorf("closing session %v: %w", layout.SessionID(session), err)
	}
	return false, nil
}
