package protocol

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// bury closes a session at the servers, which may still know it although we have given it up: its nodes would
// stand in everybody's way until they expire it, and without a quorum they never do (a session's time runs only
// under a leader). It tries until the session is known to be gone or ctx ends. It speaks for itself, as zk.Conn
// can neither take over a session nor find out what became of its own.
func (c *Client) bury(ctx context.Context, session int64, password []byte, timeout time.Duration) error {
	for attempt := 1; ; attempt++ {
		server := c.servers[attempt%len(c.servers)]
		err := c.buryAt(ctx, server, session, password, timeout)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(redialAfter(attempt, len(c.servers), timeout)):
		case <-ctx.Done():
			return fmt.Errorf("session %#x could not be closed, its nodes stay until it expires: %w: %w",
				session, context.Cause(ctx), err)
		}
	}
}

func (c *Client) buryAt(ctx context.Context, server string, session int64, password []byte, timeout time.Duration) error {
	patience := max(timeout/3, time.Second)
	conn, err := c.dial(ctx, "tcp", server, min(patience, time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 256)

	// Connect request: protocol version, last zxid seen, timeout, session, password.
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	b = append(b, password...)
	answer, err := exchange(conn, in, b)
	if err != nil {
		return err
	}
	if len(answer) < 16 {
		return io.ErrUnexpectedEOF
	}
	if int64(binary.BigEndian.Uint64(answer[8:])) != session {
		return nil // expired, and gone
	}
	closeSession := int32(opCloseSession)
	b = binary.BigEndian.AppendUint32(nil, 1) // xid
	b = binary.BigEndian.AppendUint32(b, uint32(closeSession))
	answer, err = exchange(conn, in, b)
	if err != nil {
		return err
	}
	if len(answer) < 16 {
		return io.ErrUnexpectedEOF
	}
	if code := int32(binary.BigEndian.Uint32(answer[12:])); code != 0 {
		return fmt.Errorf("closing session %#x: error %d", session, code)
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
