package recipestest_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A speaker is a client that claims what it likes.
type speaker struct {
	t       *testing.T
	granted zkwire.ConnectResponse
	conn    net.Conn
	xid     int32
}

// handshake connects and does the handshake, which claims to have seen zxid.
func (s *speaker) handshake(dial func(string, string, time.Duration) (net.Conn, error), srv *recipestest.Server, zxid int64) {
	var err error
	s.conn = suite.Got(dial("tcp", srv.ConnectString(), 10*time.Second))(s.t)
	password := append(s.granted.Password, make([]byte, zkwire.PasswordSize)...)
	_, err = s.conn.Write(zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		LastZxid: zxid, Timeout: 10 * time.Second, SessionID: s.granted.SessionID, Password: password[:zkwire.PasswordSize],
	}))
	require.NoError(s.t, err)
	s.granted = suite.Got(zkwire.ParseConnectResponse(s.read(0)))(s.t)
}

// ask sends a request and returns the zxid of the answer, of which it leaves so many bytes unread.
func (s *speaker) ask(op recipestest.Op, body string, unread int) (zxid int64) {
	s.send(op, body)
	return int64(binary.BigEndian.Uint64(s.read(unread)[4:]))
}

// send sends a request and does not wait for its answer.
func (s *speaker) send(op recipestest.Op, body string) {
	s.xid++
	request := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: s.xid, Op: zkwire.Op(op)})
	suite.Got(s.conn.Write(zkwire.SetLength(append(request, body...))))(s.t)
}

func (s *speaker) read(unread int) []byte {
	var size [4]byte
	suite.Got(io.ReadFull(s.conn, size[:]))(s.t)
	frame := make([]byte, int(binary.BigEndian.Uint32(size[:]))-unread)
	suite.Got(io.ReadFull(s.conn, frame))(s.t)
	return frame
}

func TestSessionThatGoesBackInTimeFailsTheTest(t *testing.T) {
	const root = "\x00\x00\x00\x01/\x00" // the path, and no watch
	exists := func(s *speaker) { s.ask(recipestest.OpExists, root, 0) }
	for name, test := range map[string]struct {
		plain  bool  // the link is dialled with Dial
		unread int   // of the only answer
		breaks bool  // it does not read again
		forget int64 // what the claim is short of
		then   func(*speaker)
		want   string
	}{
		"it claims less and reads":         {forget: 1, then: exists, want: "goes back in time"},
		"it claims less after a ping":      {forget: 1, then: func(s *speaker) { s.ask(recipestest.OpPing, "", 0); exists(s) }, want: "goes back in time"},
		"it claims what it has seen":       {then: exists},
		"it has not read the whole answer": {unread: 1, forget: 1, then: exists},
		"it breaks at the answer":          {breaks: true, forget: 1, then: exists},
		"it claims less and closes":        {forget: 1, then: func(s *speaker) { s.ask(recipestest.OpClose, "", 0) }},
		"it is not checked":                {plain: true, forget: 1, then: exists},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, srv *recipestest.Server) {
				other := &speaker{t: t}
				other.handshake(srv.Dial, srv, 0) // a transaction, or there is nothing to be forgotten
				other.ask(recipestest.OpClose, "", 0)
				require.NoError(t, other.conn.Close())

				tb := run(t, func(tb testing.TB) {
					link := srv.Link(tb)
					dial := link.DialChecked
					if test.plain {
						dial = link.Dial
					}

					s := &speaker{t: t}
					s.handshake(dial, srv, 0)
					seen := s.ask(recipestest.OpExists, root, test.unread)
					require.Positive(t, seen)
					if !test.breaks {
						require.NoError(t, s.conn.SetReadDeadline(time.Now()))
						require.ErrorIs(t, suite.Err(s.conn.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
					}
					suite.Blip(link)
					s.handshake(dial, srv, seen-test.forget)
					test.then(s)
					require.NoError(t, s.conn.Close())
				})

				if test.want == "" {
					require.Empty(t, tb.errors)
				} else {
					require.Len(t, tb.errors, 1)
					require.Contains(t, tb.errors[0], test.want)
				}
			})
		})
	}
}
