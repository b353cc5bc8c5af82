// Package session is the kernel of a client. It opens one session after another, decides how long
// each can be trusted, knows the locks of each, and makes requests in it. Package protocol is its
// front for users, and package protocol/recipe its front for authors of recipes.
package session

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Package protocol exports these errors and documents them.
var (
	ErrLost          = errors.New("lost")
	ErrUntrusted     = errors.New("can no longer be trusted")
	ErrClosed        = errors.New("client closed")
	ErrTooLarge      = errors.New("data too large")
	ErrSessionFull   = errors.New("session is full")
	ErrUncertain     = errors.New("outcome unknown")
	ErrThrottled     = errors.New("server is throttled")
	ErrReadOnly      = errors.New("server is read-only")
	ErrQuotaExceeded = errors.New("quota exceeded")
	ErrAuthRequired  = errors.New("authentication required: see WithAuth")
)

// These are the errors of calls without a context or a client.
var (
	ErrNilContext = errors.New("nil context")
	ErrNoClient   = errors.New("nil client: make one with Connect")
)

// refusals are our errors for refusals that zk.Conn has no errors for.
var refusals = map[zkwire.Code]error{
	zkwire.CodeThrottled:     ErrThrottled,
	zkwire.CodeReadOnly:      ErrReadOnly,
	zkwire.CodeQuotaExceeded: ErrQuotaExceeded,
	zkwire.CodeAuthRequired:  ErrAuthRequired,
}
