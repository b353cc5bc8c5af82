package protocol_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/buffer"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// FuzzAnswers is a server that accepts a session and then sends arbitrary bytes, over each
// connection. Calls and Close must return.
func FuzzAnswers(f *testing.F) {
	pong := zkwire.AppendInt32(nil, zkwire.XidPing)
	f.Add(frameOf(append(pong, make([]byte, 12)...)))
	nothing := make([]byte, 16)
	f.Add(frameOf(nothing))
	first := append(zkwire.AppendInt32(nil, 1), make([]byte, 90)...)
	f.Add(frameOf(first))
	eventWithoutPath := append(zkwire.AppendInt32(nil, zkwire.XidEvent), make([]byte, 12+4+4+4)...)
	f.Add(frameOf(eventWithoutPath))
	f.Add(frameOf([]byte("short")))
	f.Add([]byte("\xff\xff\xff\xff")) // a negative length
	f.Add([]byte("\x7f\xff\xff\xff a length that is never reached"))

	f.Fuzz(func(t *testing.T, answers []byte) {
		synctest.Test(t, func(t *testing.T) {
			dial := func(string, string, time.Duration) (net.Conn, error) {
				here, there := net.Pipe()
				go hostile(there, answers)
				return here, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client, err := protocol.Connect(ctx, "server:2181", protocol.WithDialer(dial), protocol.WithSessionTimeout(10*time.Second),
				buffer.Limit(128<<10).(protocol.ConnectOption)) // zk.Conn allocates what a length says
			require.NoError(t, err)
			if s, err := recipe.SessionOf(ctx, client); err == nil {
				s.Exists(ctx, "/a")
				s.Children(ctx, "/a")
			}
			client.Close()              // the session may not be closed: that is an error
			time.Sleep(2 * time.Second) // by then the server has hung up
		})
	})
}

// hostile accepts the session, and then sends bytes and ignores what it gets.
func hostile(c net.Conn, answers []byte) {
	defer c.Close()
	if _, err := zkwire.ReadFrame(c, 1<<20); err != nil {
		return
	}
	accepted := zkwire.ConnectResponse{Timeout: 10 * time.Second, SessionID: 1, Password: make([]byte, 16)}
	if _, err := c.Write(zkwire.AppendConnectResponse(nil, accepted)); err != nil {
		return
	}
	go func() {
		c.Write(answers)
		time.Sleep(time.Second)
		c.Close()
	}()
	io.Copy(io.Discard, c)
}

func frameOf(payload []byte) []byte {
	return append(zkwire.AppendInt32(nil, int32(len(payload))), payload...)
}
