package conn

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A lost session is gone only if a server says so: a wrong answer leaves it for another attempt.
func TestOrphanThatAServerDoesNotCloseStays(t *testing.T) {
	t.Parallel()
	const session, refused = 5, -115
	handshake := func(session int64) []byte {
		return zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{Timeout: time.Second, SessionID: session, Password: []byte{}})
	}
	reply := func(xid int32, code zkwire.Code) []byte {
		b := make([]byte, zkwire.ReplyBody)
		zkwire.PutReplyHeader(b, zkwire.ReplyHeader{Xid: xid, Code: code})
		return zkwire.SetLength(b)
	}
	for name, c := range map[string]struct {
		answers   [][]byte
		prolonged bool
		fails     bool
	}{
		"closed":                      {[][]byte{handshake(session), reply(zkwire.XidAuth, 0), reply(1, 0)}, false, false},
		"expired":                     {[][]byte{handshake(0)}, false, false},
		"a handshake of no sense":     {[][]byte{zkwire.SetLength(make([]byte, 8))}, true, true},
		"no answer to the handshake":  {nil, true, true},
		"the credential is refused":   {[][]byte{handshake(session), reply(zkwire.XidAuth, refused), reply(1, 0)}, true, true},
		"the end of it is refused":    {[][]byte{handshake(session), reply(zkwire.XidAuth, 0), reply(1, refused)}, true, true},
		"the server hangs up earlier": {[][]byte{handshake(session), reply(zkwire.XidAuth, 0)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial := func(context.Context, string, string, time.Duration) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer there.Close()
					if len(c.answers) == 0 {
						zkwire.ReadFrame(there, 1024) // and hang up
					}
					for _, answer := range c.answers {
						if _, err := zkwire.ReadFrame(there, 1024); err != nil {
							return
						}
						there.Write(answer)
					}
				}()
				return here, nil
			}
			e := testEnsemble()
			e.Dial, e.Credentials = dial, []Credential{NewCredential("digest", []byte("a:b"))}
			prolonged, err := New(t.Context(), e, &fakeHost{}).closeOrphanAt(t.Context(), target{address: "server"}, session, nil, 10*time.Second)
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.prolonged, prolonged)
		})
	}
}
