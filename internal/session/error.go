// Package session is the kernel of a client: one session after another, how long each can be
// trusted, what is held in it, and how requests are made in it. Package protocol shows users what
// they need of it, and package protocol/recipe what authors of recipes do.
package session

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Package protocol has these errors, too, and says what they mean.
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

// The errors of calls that were given nothing.
var (
	ErrNilContext = errors.New("nil context")
	ErrNoClient   = errors.New("nil client: make one with Connect")
)

// Servers refuse requests for reasons that zk.Conn has no errors for.
var refusals = map[zkwire.Code]error{
	zkwire.CodeThrottled:     ErrThrottled,
	zkwire.CodeReadOnly:      ErrReadOnly,
	zkwire.CodeQuotaExceeded: ErrQuotaExceeded,
	zkwire.CodeAuthRequired:  ErrAuthRequired,
}
