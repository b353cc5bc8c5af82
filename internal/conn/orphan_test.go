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
		answers [][]byte
		stays   bool
	}{
		"closed":                      {[][]byte{handshake(session), reply(zkwire.XidAuth, 0), reply(1, 0)}, false},
		"expired":                     {[][]byte{handshake(0)}, false},
		"a handshake of no sense":     {[][]byte{zkwire.SetLength(make([]byte, 8))}, true},
		"no answer to the handshake":  {nil, true},
		"the credential is refused":   {[][]byte{handshake(session), reply(zkwire.XidAuth, refused), reply(1, 0)}, true},
		"the end of it is refused":    {[][]byte{handshake(session), reply(zkwire.XidAuth, 0), reply(1, refused)}, true},
		"the server hangs up earlier": {[][]byte{handshake(session), reply(zkwire.XidAuth, 0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := testEnsemble()
			e.Dial, e.Credentials = serving(func([]byte) {}, c.answers...), []Credential{NewCredential("digest", []byte("a:b"))}
			prolonged, err := New(t.Context(), e, &fakeHost{}).closeOrphanAt(t.Context(), target{address: "server"}, session, nil, 10*time.Second)
			require.Equal(t, c.stays, err != nil, "%v", err)
			require.Equal(t, c.stays, prolonged)
		})
	}
}

// A session's earlier connections have used the xid 1, for a write perhaps. A server takes the
// commit of that write for the end of the session if the request to end it has the same xid.
func TestOrphanIsClosedWithAnXidThatNoOtherRequestHas(t *testing.T) {
	t.Parallel()
	const session = 5
	var last int32
	e := testEnsemble()
	e.Dial = serving(func(frame []byte) {
		head, _ := zkwire.ParseRequestHeader(frame)
		last = head.Xid
	}, zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{
		Timeout: time.Second, SessionID: session, Password: []byte{},
	}))
	c := New(t.Context(), e, &fakeHost{})
	var used []int32
	for range 2 {
		_, err := c.closeOrphanAt(t.Context(), target{address: "server"}, session, nil, 10*time.Second)
		require.Error(t, err, "the server hangs up")
		used = append(used, last)
	}
	require.NotEqual(t, used[0], used[1])
	require.NotContains(t, used, c.ownXid())
	require.Less(t, max(used[0], used[1]), int32(firstOwnXid+ownXids), "none of zk.Conn's")
}

// serving is a server that answers requests with answers, one each, and hangs up at the next
// request.
func serving(request func(frame []byte), answers ...[]byte) DialFunc {
	return func(context.Context, string, string, time.Duration) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			for i := 0; ; i++ {
				frame, err := zkwire.ReadFrame(there, 1024)
				if err != nil {
					return
				}
				request(frame)
				if i == len(answers) {
					return
				}
				there.Write(answers[i])
			}
		}()
		return here, nil
	}
}
