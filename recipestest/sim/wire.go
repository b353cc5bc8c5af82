package sim

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// greeted takes the session out of a server's answer to the handshake: length, protocol version, timeout, id, password.
// It returns false if that is not all there yet.
func (c *Client) greeted(heard []byte) bool {
	const head = 4 + 4 + 4 + 8
	if len(heard) < head+4 {
		return false
	}
	end := head + 4 + int(binary.BigEndian.Uint32(heard[head:]))
	if len(heard) < end {
		return false
	}
	resume := make([]byte, 4+4+8, 64) // length, protocol version, last zxid seen
	resume = append(resume, heard[8:end]...)
	binary.BigEndian.PutUint32(resume, uint32(len(resume)-4))
	c.mu.Lock()
	defer c.mu.Unlock()
	// The embedded server counts sessions up, and a client may look after an earlier one of its own.
	if id := int64(binary.BigEndian.Uint64(heard[12:])); id != 0 && id >= c.session {
		c.session, c.resume = id, resume
	}
	return true
}

// ask gets the answer to a four-letter word, and hangs up.
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
