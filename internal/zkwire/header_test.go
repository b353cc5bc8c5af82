package zkwire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestsAreEncodedAsTheProtocolSays(t *testing.T) {
	frame := AppendRequest(nil, RequestHeader{Xid: 7, Op: OpGetData})
	frame = SetLength(AppendBool(AppendString(frame, "/a"), true))
	require.Equal(t, []byte{0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, '/', 'a', 1}, frame)
}

func TestRepliesAreEncodedAsTheProtocolSays(t *testing.T) {
	frame := append(make([]byte, ReplyBody), "body"...)
	PutReplyHeader(frame, ReplyHeader{Xid: XidPing, Zxid: 1, Code: CodeNoNode})
	require.Equal(t, []byte{0, 0, 0, 20, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x9b,
		'b', 'o', 'd', 'y'}, frame)
}

func TestFieldsOfHeadersAreChangedInPlace(t *testing.T) {
	request := AppendRequest(nil, RequestHeader{1, OpCreate})
	SetXid(request, 2)
	SetOp(request, OpCreateContainer)
	read, _ := ParseRequestHeader(request)
	require.Equal(t, RequestHeader{2, OpCreateContainer}, read)

	reply := make([]byte, ReplyBody)
	PutReplyHeader(reply, ReplyHeader{3, 4, CodeNoAuth})
	SetReplyZxid(reply, 5)
	readReply, _ := ParseReplyHeader(reply)
	require.Equal(t, ReplyHeader{3, 5, CodeNoAuth}, readReply)
}

func TestShortHeadersAreReported(t *testing.T) {
	for n := range RequestBody {
		_, ok := ParseRequestHeader(make([]byte, n))
		require.False(t, ok, n)
	}

	for n := range ReplyBody {
		_, ok := ParseReplyHeader(make([]byte, n))
		require.False(t, ok, n)
	}
}

func TestHeadersAreReadWithoutAllocating(t *testing.T) {
	frame := make([]byte, ReplyBody)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ParseReplyHeader(frame)
		ParseRequestHeader(frame)
		SetReplyZxid(frame, 0)
	}))
}

func TestOperationsAndCodesHaveNames(t *testing.T) {
	require.Equal(t, "getChildren2", OpGetChildren2.String())
	require.Equal(t, "op99", Op(99).String())
	require.Equal(t, "no node", CodeNoNode.String())
	require.Equal(t, "error -99", Code(-99).String())
}
