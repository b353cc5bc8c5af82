package zkwire

import (
	"encoding/binary"
	"time"
)

// PasswordSize is the length of a session's password. (For a new session, a client sends zeros.)
const PasswordSize = 16

// A ConnectRequest opens a session, or resumes the session that it names.
type ConnectRequest struct {
	LastZxid  int64 // the highest zxid the client has seen; a server that is behind it hangs up
	Timeout   time.Duration
	SessionID int64 // 0 for a new session
	Password  []byte

	// ReadOnlyField says that the request ends with the read-only field (clients send it since
	// ZooKeeper 3.4). The response then has that field too.
	ReadOnlyField, ReadOnly bool
}

// AppendConnectRequest appends a frame. Timeouts are sent in milliseconds.
func AppendConnectRequest(b []byte, r ConnectRequest) []byte {
	start := len(b)
	b = AppendInt32(b, 0) // the length
	b = AppendInt32(b, 0) // protocol version
	b = AppendInt64(b, r.LastZxid)
	b = AppendInt32(b, int32(r.Timeout.Milliseconds()))
	b = AppendInt64(b, r.SessionID)
	b = AppendBuffer(b, r.Password)
	if r.ReadOnlyField {
		b = AppendBool(b, r.ReadOnly)
	}

	SetLength(b[start:])
	return b
}

// ParseConnectRequest reads a connect request from its payload, which is a frame without its
// length. It returns [ErrMalformed] if fields are missing.
func ParseConnectRequest(payload []byte) (ConnectRequest, error) {
	d := Decoder{Rest: payload}
	d.Int32() // protocol version
	r := ConnectRequest{
		LastZxid:  d.Int64(),
		Timeout:   time.Duration(d.Int32()) * time.Millisecond,
		SessionID: d.Int64(),
		Password:  d.Buffer(),
	}

	if d.Bad {
		return ConnectRequest{}, ErrMalformed
	}
	// Clients before 3.4 don't send this field.
	r.ReadOnlyField = len(d.Rest) > 0
	r.ReadOnly = d.Bool()
	return r, nil
}

// SetLastZxid changes the zxid that a connect request claims to have seen. It does nothing if the
// frame is too short.
func SetLastZxid(frame []byte, zxid int64) {
	if len(frame) >= seenAt+8 {
		binary.BigEndian.PutUint64(frame[seenAt:], uint64(zxid))
	}
}

// A ConnectResponse grants a session. With session 0 the server says that the requested session has
// expired.
type ConnectResponse struct {
	Timeout   time.Duration // as granted
	SessionID int64
	Password  []byte

	ReadOnlyField, ReadOnly bool
}

// AppendConnectResponse appends a frame.
func AppendConnectResponse(b []byte, r ConnectResponse) []byte {
	start := len(b)
	b = AppendInt32(b, 0) // the length
	b = AppendInt32(b, 0) // protocol version
	b = AppendInt32(b, int32(r.Timeout.Milliseconds()))
	b = AppendInt64(b, r.SessionID)
	b = AppendBuffer(b, r.Password)
	if r.ReadOnlyField {
		b = AppendBool(b, r.ReadOnly)
	}
	SetLength(b[start:])
	return b
}

// ParseConnectResponse reads a connect response from its payload, which is a frame without its
// length. It returns [ErrMalformed] if fields are missing.
func ParseConnectResponse(payload []byte) (ConnectResponse, error) {
	d := Decoder{Rest: payload}
	d.Int32() // protocol version
	r := ConnectResponse{
		Timeout:   time.Duration(d.Int32()) * time.Millisecond,
		SessionID: d.Int64(),
		Password:  d.Buffer(),
	}

	if d.Bad {
		return ConnectResponse{}, ErrMalformed
	}
	r.ReadOnlyField = len(d.Rest) > 0
	r.ReadOnly = d.Bool()
	return r, nil
}
