package zkwire

import "encoding/binary"

// These xids are not the xid of a numbered request.
const (
	XidEvent   int32 = -1
	XidPing    int32 = -2
	XidAuth    int32 = -4
	XidWatches int32 = -8 // setWatches (with the number that the Java client uses)
)

// Bodies of frames begin at these offsets.
const (
	RequestBody = lengthSize + 4 + 4
	ReplyBody   = lengthSize + 4 + 8 + 4
)

// Fields of frames are at these offsets.
const (
	xidAt  = lengthSize
	opAt   = xidAt + 4 // in requests
	zxidAt = xidAt + 4 // in replies
	codeAt = zxidAt + 8
	seenAt = lengthSize + 4 // in connect requests
)

// A RequestHeader is the head of a request.
type RequestHeader struct {
	Xid int32
	Op  Op
}

// ParseRequestHeader returns the head of a frame that is a request. It reports false if the frame
// is too short.
func ParseRequestHeader(frame []byte) (RequestHeader, bool) {
	if len(frame) < RequestBody {
		return RequestHeader{}, false
	}
	return RequestHeader{
		Xid: int32(binary.BigEndian.Uint32(frame[xidAt:])),
		Op:  Op(binary.BigEndian.Uint32(frame[opAt:])),
	}, true
}

// AppendRequest appends the beginning of a request. The caller must append the body and call
// [SetLength].
func AppendRequest(b []byte, h RequestHeader) []byte {
	b = AppendInt32(b, 0) // the length
	b = AppendInt32(b, h.Xid)
	return AppendInt32(b, int32(h.Op))
}

// SetXid changes the xid of a frame that is a request or a reply.
func SetXid(frame []byte, xid int32) { binary.BigEndian.PutUint32(frame[xidAt:], uint32(xid)) }

// SetOp changes the operation of a frame that is a request.
func SetOp(frame []byte, op Op) { binary.BigEndian.PutUint32(frame[opAt:], uint32(op)) }

// A ReplyHeader is the head of a reply or an event.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Code Code
}

// ParseReplyHeader returns the head of a frame that is a reply. It reports false if the frame is
// too short. (The rest of the frame needn't have arrived.)
func ParseReplyHeader(frame []byte) (ReplyHeader, bool) {
	if len(frame) < ReplyBody {
		return ReplyHeader{}, false
	}

	return ReplyHeader{
		Xid:  int32(binary.BigEndian.Uint32(frame[xidAt:])),
		Zxid: int64(binary.BigEndian.Uint64(frame[zxidAt:])),
		Code: Code(binary.BigEndian.Uint32(frame[codeAt:])),
	}, true
}

// PutReplyHeader writes the length and the header at the head of a frame. The frame must have room
// for them (its body begins at [ReplyBody]).
func PutReplyHeader(frame []byte, h ReplyHeader) {
	SetLength(frame)
	SetXid(frame, h.Xid)
	SetReplyZxid(frame, h.Zxid)
	binary.BigEndian.PutUint32(frame[codeAt:], uint32(h.Code))
}

// SetReplyZxid changes the zxid of a frame that is a reply.
func SetReplyZxid(frame []byte, zxid int64) {
	binary.BigEndian.PutUint64(frame[zxidAt:], uint64(zxid))
}
