package protocol

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

var (
	// ErrLost is wrapped by the Err of a value whose hold has ended without being given back.
	// [ErrNodeDeleted], [ErrUntrusted] or [ErrClosed] beside it says why. With none of these the
	// session has expired.
	ErrLost = session.ErrLost

	// ErrNodeDeleted is wrapped beside [ErrLost] if an operator (or a call such as Break) deleted
	// the holder's node. The session goes on.
	ErrNodeDeleted = errors.New("node was deleted")

	// ErrUntrusted is wrapped beside [ErrLost] if the leader has not confirmed the session in time.
	// The ensemble has perhaps expired it or soon will.
	ErrUntrusted = session.ErrUntrusted

	// ErrReleased is wrapped by the Err of a value that its holder has given back.
	ErrReleased = errors.New("released")

	// ErrClosed is returned by every operation of a client after [Client.Close]. The Err of
	// everything that the client held wraps it.
	ErrClosed = session.ErrClosed

	// ErrTooLarge is returned (before anything is sent) for data that a server would refuse: see
	// [WithRequestLimit].
	ErrTooLarge = session.ErrTooLarge

	// ErrSessionFull is returned instead of creating another ephemeral node if the session's
	// ephemeral nodes take 1.5 MB already: see [Session.EphemeralBytes]. Give something back, or
	// use another client.
	ErrSessionFull = session.ErrSessionFull

	// ErrUncertain is wrapped by the error of a call that ended before its answer came. Its
	// operation was perhaps executed or can still be executed.
	ErrUncertain = session.ErrUncertain

	// ErrSequenceExhausted is returned when the sequence numbers below a path are about to run out.
	// Delete the path while no client uses it. Then they begin again at zero.
	ErrSequenceExhausted = errors.New("sequence numbers exhausted")

	// ErrMixed is returned if a contender of another library is behind the caller in line and would
	// not wait for it. Both could then hold the lock. Give each library its own path.
	ErrMixed = errors.New("another library at the path does not respect this contender")
)

// Servers refuse requests for reasons that zk.Conn has no errors for:
//
//	code  error               a recipe's call
//	-118  zk.ErrSessionMoved  tries again: the session is at another server by now
//	-119  ErrReadOnly         tries again: the member has lost its quorum
//	-124  ErrAuthRequired     returns the error: no other session would fare better
//	-125  ErrQuotaExceeded    returns the error: the request was not executed
//	-127  ErrThrottled        tries again: the request was not executed
//
// If ctx (or the back-off) ends while a call tries again, its error also wraps the error in this
// table. The logger gets a warning once a minute at most.
var (
	// ErrThrottled says that the server refused requests because it had too many.
	ErrThrottled = session.ErrThrottled

	// ErrReadOnly says that the member served only reads. (It is rare: such a member refuses our
	// sessions, and Connect's error says EOF.)
	ErrReadOnly = session.ErrReadOnly

	// ErrQuotaExceeded says that the call would exceed the quota of a node above.
	ErrQuotaExceeded = session.ErrQuotaExceeded

	// ErrAuthRequired says that the server refuses sessions without a credential: see [WithAuth].
	ErrAuthRequired = session.ErrAuthRequired
)
