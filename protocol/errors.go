package protocol

import (
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

var (
	// ErrLost is wrapped by the Err of a value whose hold has ended without being given back: its
	// session ended or could no longer be trusted, or its node was deleted. [ErrNodeDeleted],
	// [ErrUntrusted] or [ErrClosed] beside it says which. With none of these the session has
	// expired.
	ErrLost = errors.New("lost")

	// ErrNodeDeleted is wrapped beside [ErrLost] if the holder's node was deleted, by an operator
	// or by a call such as Break. The session goes on.
	ErrNodeDeleted = errors.New("node was deleted")

	// ErrUntrusted is wrapped beside [ErrLost] if the ensemble's leader has not confirmed the
	// session in time. The ensemble may have expired the session, or be about to.
	ErrUntrusted = errors.New("can no longer be trusted")

	// ErrReleased is wrapped by the Err of a value that was given back.
	ErrReleased = errors.New("released")

	// ErrClosed is returned by every operation of a client after [Client.Close]. The Err of
	// everything that the client held then wraps it, too.
	ErrClosed = errors.New("client closed")

	// ErrTooLarge is returned for data that a server would refuse, before anything is sent. A
	// server refuses by ending the connection, which all users of the session share. See
	// [WithRequestLimit] for the limit.
	ErrTooLarge = errors.New("data too large")

	// ErrSessionFull is returned instead of creating another ephemeral node if the session's
	// ephemeral nodes take 1.5 MB already: see [Session.EphemeralBytes]. Nothing is sent. Give
	// something back, or use another client, which has a session of its own.
	ErrSessionFull = errors.New("session is full")

	// ErrUncertain is wrapped by the error of an operation that may be executed now or later,
	// because it ended before its answer came.
	ErrUncertain = errors.New("outcome unknown")

	// ErrSequenceExhausted is returned when the sequence numbers below a path are about to run out.
	// Delete the path while it is not in use: the numbers then start again at zero.
	ErrSequenceExhausted = errors.New("sequence numbers exhausted")

	// ErrMixed is returned if a contender of another library is behind the caller in line and would
	// not wait for it, so that both might hold the lock. That library cannot share the path with
	// this recipe (or not with its spelling): give them paths of their own.
	ErrMixed = errors.New("another library at the path does not respect this contender")
)

var (
	errNilContext = errors.New("nil context")
	errNoClient   = errors.New("nil client: make one with Connect")
)

// wrap adds recipe and path to err, in the form that all recipes use: "lock: /locks/a: …". It
// returns nil if err is nil, and an error that has both already as it is.
func wrap(recipe, path string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := err.(*recipeError); ok && r.recipe == recipe && r.path == path {
		return err
	}
	return &recipeError{recipe, path, err}
}

// A recipeError is an error of a recipe at a path.
type recipeError struct {
	recipe, path string
	err          error
}

func (e *recipeError) Error() string {
	if e.path == "" {
		return fmt.Sprintf("%s: %v", e.recipe, e.err)
	}
	return fmt.Sprintf("%s: %s: %v", e.recipe, e.path, e.err)
}

func (e *recipeError) Unwrap() error { return e.err }

// OutcomeUnknown reports whether err, which a call of [zk.Conn] has returned, leaves open if the
// server has executed the request or may yet do so.
func OutcomeUnknown(err error) bool { return conn.OutcomeOf(err) == conn.Unknown }
