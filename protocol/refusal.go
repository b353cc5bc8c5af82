package protocol

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Servers refuse requests for reasons that zk.Conn has no errors for. This is what becomes of a
// call of a recipe, of [Do] or of [DoOnce]:
//
//	code  error               what the call does
//	-118  zk.ErrSessionMoved  tries again, with back-off: the session is at another server by now
//	-119  ErrReadOnly         tries again, with back-off: the member has lost its quorum
//	-124  ErrAuthRequired     returns the error, also from recipes: no other session would fare better
//	-125  ErrQuotaExceeded    returns the error: the request was not executed
//	-127  ErrThrottled        tries again, with back-off: the request was not executed
//
// If ctx ends while a call tries again, its error wraps both ctx's error and this table's. The
// logger gets a warning, once a minute at most.
var (
	// ErrThrottled is wrapped by the error of a call whose ctx, or whose back-off, ended while the
	// server was refusing requests because it has too many.
	ErrThrottled = errors.New("server is throttled")

	// ErrReadOnly is wrapped by the error of a call whose ctx, or whose back-off, ended while the
	// member of the ensemble was serving reads only. Such a member refuses the sessions of this
	// client, so the error is rare: Connect and Session tell of an EOF instead.
	ErrReadOnly = errors.New("server is read-only")

	// ErrQuotaExceeded is wrapped by the error of a call that would exceed a quota of a node above.
	// Nothing was executed.
	ErrQuotaExceeded = errors.New("quota exceeded")

	// ErrAuthRequired is wrapped by the error of a call that the server refuses to sessions without
	// a credential. See [WithAuth].
	ErrAuthRequired = errors.New("authentication required: see WithAuth")
)

var refusals = map[zkwire.Code]error{
	zkwire.CodeThrottled:     ErrThrottled,
	zkwire.CodeReadOnly:      ErrReadOnly,
	zkwire.CodeQuotaExceeded: ErrQuotaExceeded,
	zkwire.CodeAuthRequired:  ErrAuthRequired,
}
