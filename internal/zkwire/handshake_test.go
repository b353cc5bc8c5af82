package zkwire

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	password = bytes.Repeat([]byte{0xab}, PasswordSize)

	connectRequest = append([]byte{
		0, 0, 0, 45, // length
		0, 0, 0, 0, // protocol version
		0, 0, 0, 0, 0, 0, 0, 9, // last zxid seen
		0, 0, 0x27, 0x10, // timeout
		0, 0, 0, 0, 0, 0, 0, 5, // session
		0, 0, 0, 16}, append(password[:PasswordSize:PasswordSize], 1)...)
	connectResponse = append([]byte{
		0, 0, 0, 36, // length
		0, 0, 0, 0, // protocol version
		0, 0, 0x27, 0x10, // timeout
		0, 0, 0, 0, 0, 0, 0, 5, // session
		0, 0, 0, 16}, password...)
)

func TestHandshakeIsEncodedAsTheProtocolSays(t *testing.T) {
	require.Equal(t, connectRequest, AppendConnectRequest(nil, ConnectRequest{
		LastZxid: 9, Timeout: 10 * time.Second, SessionID: 5, Password: password, ReadOnlyField: true, ReadOnly: true,
	}))
	require.Equal(t, connectResponse, AppendConnectResponse(nil, ConnectResponse{
		Timeout: 10 * time.Second, SessionID: 5, Password: password,
	}))
}

func TestHandshakesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milliseconds := time.Duration(rapid.Int32().Draw(t, "timeout")) * time.Millisecond
		id := rapid.Int64().Draw(t, "session")
		pw := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "password")
		field := rapid.Bool().Draw(t, "field")
		readOnly := field && rapid.Bool().Draw(t, "read-only")

		request := ConnectRequest{rapid.Int64().Draw(t, "zxid"), milliseconds, id, pw, field, readOnly}
		frame := AppendConnectRequest([]byte("before"), request)[len("before"):]
		n, err := PayloadSize(frame, 100)
		require.NoError(t, err)
		require.Len(t, frame, 4+n)
		read, err := ParseConnectRequest(frame[4:])
		require.NoError(t, err)
		require.Equal(t, request, read)

		SetLastZxid(frame, 77)
		request.LastZxid = 77
		read, err = ParseConnectRequest(frame[4:])
		require.NoError(t, err)
		require.Equal(t, request, read)

		response := ConnectResponse{milliseconds, id, pw, field, readOnly}
		frame = AppendConnectResponse([]byte("before"), response)[len("before"):]
		n, err = PayloadSize(frame, 100)
		require.NoError(t, err)
		require.Len(t, frame, 4+n)
		readResponse, err := ParseConnectResponse(frame[4:])
		require.NoError(t, err)
		require.Equal(t, response, readResponse)
	})
}

func TestTruncatedHandshakesAreMalformed(t *testing.T) {
	for n := range len(connectRequest) - 4 - 1 { // the last byte is the optional field
		_, err := ParseConnectRequest(connectRequest[4 : 4+n])
		require.Equal(t, ErrMalformed, err, n)
	}

	for n := range len(connectResponse) - 4 {
		_, err := ParseConnectResponse(connectResponse[4 : 4+n])
		require.Equal(t, ErrMalformed, err, n)
	}
}

func TestPasswordLongerThanTheHandshakeIsMalformed(t *testing.T) {
	for _, length := range [][]byte{endless, {0x80, 0, 0, 0}, {0xff, 0xff, 0xff, 0xfe}, {0, 0, 0, 18}} {
		request, response := bytes.Clone(connectRequest), bytes.Clone(connectResponse)
		copy(request[len(request)-PasswordSize-1-4:], length)
		copy(response[len(response)-PasswordSize-4:], length)
		_, err := ParseConnectRequest(request[4:])
		require.Equal(t, ErrMalformed, err)
		_, err = ParseConnectResponse(response[4:])
		require.Equal(t, ErrMalformed, err)
	}
}

func TestSetLastZxidLeavesShortFramesAlone(t *testing.T) {
	frame := make([]byte, seenAt+8)
	SetLastZxid(frame[:seenAt+7], -1)
	require.Equal(t, make([]byte, seenAt+8), frame)
	SetLastZxid(frame, -1)
	require.NotZero(t, frame[seenAt+7])
}

// FuzzHandshake checks that what is accepted says the same when it is written and read again.
func FuzzHandshake(f *testing.F) {
	f.Add(connectRequest[4:])
	f.Add(connectResponse[4:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		if r, err := ParseConnectRequest(payload); err == nil {
			again, err := ParseConnectRequest(AppendConnectRequest(nil, r)[4:])
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
		if r, err := ParseConnectResponse(payload); err == nil {
			again, err := ParseConnectResponse(AppendConnectResponse(nil, r)[4:])
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
	})
}
