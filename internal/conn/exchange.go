package conn

import (
	"bufio"
	"fmt"
	"net"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

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

// exchange sends a frame, and reads the answer's frame.
func exchange(conn net.Conn, in *bufio.Reader, frame []byte) ([]byte, error) {
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	return zkwire.ReadFrame(in, DefaultLimit)
}
