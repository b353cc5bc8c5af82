package protocol

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// bury closes a session at the servers, which may still know it although we have given it up: its nodes would
// block others until they expire it, and without a quorum they never do (a session's time runs only under a
// leader). It tries until the session is known to be gone or ctx ends. It speaks for itself, as zk.Conn can neither
// take over a session nor find out what became of its own.
func (c *Client) bury(ctx context.Context, session int64, password []byte, timeout time.Duration) error {
	way := newRoute(c.sessions)
	for attempt := 1; ; attempt++ {
		prolonged, err := c.buryAt(ctx, way.next(ctx, timeout), session, password, timeout)
		if err == nil {
			return nil
		}
		pause, closing := redialAfter(attempt, way.len(), timeout), (<-chan struct{})(nil)
		if prolonged && c.closing.Err() == nil {
			// Its time has begun anew. It has to be let alone until that is over, as servers end sessions: at the
			// next tick, of which there are two or more to a timeout. Or attempts that fail would keep it alive.
			// Close does not wait for that, and cannot keep it alive for long.
			c.log.Warn("lost session not closed", "session", session, "error", err)
			pause, closing = timeout+timeout/2, c.closing.Done()
		}
		select {
		case <-time.After(pause):
		case <-closing:
		case <-ctx.Done():
			return fmt.Errorf("session %#x could not be closed, its nodes stay until it expires: %w: %w",
				session, context.Cause(ctx), err)
		}
	}
}

// buryAt closes a session at one server. If that fails it tells whether the server may have prolonged the session's
// life, as it does when it resumes it.
func (c *Client) buryAt(ctx context.Context, server string, session int64, password []byte, timeout time.Duration) (prolonged bool, err error) {
	patience := max(timeout/3, time.Second)
	conn, err := c.dial(ctx, "tcp", server, min(patience, time.Second))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	in := bufio.NewReaderSize(conn, 256)

	// Connect request: protocol version, last zxid seen, timeout, session, password. It claims to have seen nothing,
	// as it is going to look at nothing: any server will do, also one that has lost its data.
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	b = append(b, password...)
	answer, err := exchange(conn, in, b)
	if err != nil {
		// A server that does not serve hangs up. One that stays silent may have resumed the session.
		return errors.Is(err, os.ErrDeadlineExceeded), err
	}
	if len(answer) < 16 {
		return false, io.ErrUnexpectedEOF
	}
	if int64(binary.BigEndian.Uint64(answer[8:])) != session {
		return false, nil // expired, and gone
	}

	// A server that demands credentials closes no session for a stranger.
	for _, a := range c.auth {
		b = binary.BigEndian.AppendUint32(nil, 0) // type
		for _, field := range []string{a.scheme, string(a.auth)} {
			b = binary.BigEndian.AppendUint32(b, uint32(len(field)))
			b = append(b, field...)
		}
		if err := request(conn, in, xidAuth, opSetAuth, b); err != nil {
			return true, fmt.Errorf("auth %s: %w", a.scheme, err)
		}
	}
	if err := request(conn, in, 1, opCloseSession, nil); err != nil {
		return true, fmt.Errorf("closing session %#x: %w", session, err)
	}
	return false, nil
}

const xidAuth = -4

// request makes a request whose answer has no body.
func request(conn net.Conn, in *bufio.Reader, xid, op int32, body []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	answer, err := exchange(conn, in, append(b, body...))
	switch {
	case err != nil:
		return err
	case len(answer) < 16:
		return io.ErrUnexpectedEOF
	}
	if code := int32(binary.BigEndian.Uint32(answer[12:])); code != 0 {
		return fmt.Errorf("error %d", code)
	}
	return nil
}

// exchange sends a frame and reads the one that answers it.
func exchange(conn net.Conn, in *bufio.Reader, frame []byte) ([]byte, error) {
	if err := writeFrame(conn, frame); err != nil {
		return nil, err
	}
	return readFrame(in)
}

func writeFrame(to io.Writer, frame []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame)))
	_, err := to.Write(append(b, frame...))
	return err
}

func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > sendBuffer {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(from, frame)
	return frame, err
}
