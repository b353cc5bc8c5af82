package sim

import (
	"io"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// connected finds the session in a server's answer to the handshake. It returns false if the answer
// isn't complete yet.
func (c *Client) connected(heard []byte) bool {
	answer, _, err := zkwire.CutFrame(heard, maxHandshake)
	if answer == nil && err == nil {
		return false
	}
	granted, err := zkwire.ParseConnectResponse(answer[min(4, len(answer)):])
	if err != nil {
		return true // the client under test will find out
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	// The embedded server counts sessions up. (A client can also resume an earlier session of its
	// own.)
	if id := granted.SessionID; id != 0 && id >= c.session {
		c.session = id
		c.resume = zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
			Timeout: granted.Timeout, SessionID: id, Password: granted.Password,
		})
	}

	return true
}

// maxHandshake is far above the size of an answer to the handshake.
const maxHandshake = 1024

// ask gets the answer to a four-letter word and hangs up.
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
