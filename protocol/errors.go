package protocol

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

var (
	// ErrLost is wrapped by the Err of a value whose hold has ended without being given back: its
	// session ended or could no longer be trusted, or its node was deleted. [ErrNodeDeleted],
	// [ErrUntrusted] or [ErrClosed] beside it says which. With none of these the session has
	// expired.
	ErrLost = session.ErrLost

	// ErrNodeDeleted is wrapped beside [ErrLost] if the holder's node was deleted, by an operator
	// or by a call such as Break. The session goes on.
	ErrNodeDeleted = errors.New("node was deleted")

	// ErrUntrusted is wrapped beside [ErrLost] if the ensemble's leader has not confirmed the
	// session in time. The ensemble may have expired the session, or be about to.
	ErrUntrusted = session.ErrUntrusted

	// ErrReleased is wrapped by the Err of a value that was given back.
	ErrReleased = errors.New("released")

	// ErrClosed is returned by every operation of a client after [Client.Close]. The Err of
	// everything that the client held then wraps it, too.
	ErrClosed = session.ErrClosed

	// ErrTooLarge is returned for data that a server would refuse, before anything is sent. A
	// server refuses by ending the connection, which all users of the session share. See
	// [WithRequestLimit] for the limit.
	ErrTooLarge = session.ErrTooLarge

	// ErrSessionFull is returned instead of creating another ephemeral node if the session's
	// ephemeral nodes take 1.5 MB already: see [Session.EphemeralBytes]. Nothing is sent. Give
	// something back, or use another client, which has a session of its own.
	ErrSessionFull = session.ErrSessionFull

	// ErrUncertain is wrapped by the error of an operation that may be executed now or later,
	// because it ended before its answer came.
	ErrUncertain = session.ErrUncertain

	// ErrSequenceExhausted is returned when the sequence numbers below a path are about to run out.
	// Delete the path while it is not in use: the numbers then start again at zero.
	ErrSequenceExhausted = errors.New("sequence numbers exhausted")

	// ErrMixed is returned if a contender of another library is behind the caller in line and would
	// not wait for it, so that both might hold the lock. That library cannot share the path with
	// this recipe (or not with its spelling): give them paths of their own.
	ErrMixed = errors.New("another library at the path does not respect this contender")
)

// Servers refuse requests for reasons that zk.Conn has no errors for. This is what becomes of a
// call of a recipe:
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
	ErrThrottled = session.ErrThrottled

	// ErrReadOnly is wrapped by the error of a call whose ctx, or whose back-off, ended while the
	// member of the ensemble was serving reads only. Such a member refuses the sessions of this
	// client, so the error is rare: Connect and Session tell of an EOF instead.
	ErrReadOnly = session.ErrReadOnly

	// ErrQuotaExceeded is wrapped by the error of a call that would exceed a quota of a node above.
	// Nothing was executed.
	ErrQuotaExceeded = session.ErrQuotaExceeded

	// ErrAuthRequired is wrapped by the error of a call that the server refuses to sessions without
	// a credential. See [WithAuth].
	ErrAuthRequired = session.ErrAuthRequired
)
