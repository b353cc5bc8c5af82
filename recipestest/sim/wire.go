package sim

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// connected takes the session out of a server's answer to the handshake: length, protocol version,
// timeout, id, password. It returns false if the answer is not complete yet.
func (c *Client) connected(answer []byte) bool {
	const head = 4 + 4 + 4 + 8
	if len(answer) < head+4 {
		return false
	}

	end := head + 4 + int(binary.BigEndian.Uint32(answer[head:]))
	if len(answer) < end {
		return false
	}

	resume := make([]byte, 4+4+8, 64) // length, protocol version, last zxid seen
	resume = append(resume, answer[8:end]...)
	binary.BigEndian.PutUint32(resume, uint32(len(resume)-4))
	c.mu.Lock()
	defer c.mu.Unlock()

	// The ids of the embedded server increase, and a client may connect once more to end an earlier
	// session.
	if id := int64(binary.BigEndian.Uint64(answer[12:])); id != 0 && id >= c.session {
		c.session, c.resume = id, resume
	}

	return true
}

// ask returns the answer to a four-letter word, and closes c.
func ask(c net.Conn, word string) string {
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return err.Error()
	}

	answer, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}

	return string(answer)
}
