package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

var (
	// ErrLost is wrapped by the Err of a value whose hold has ended without being given back: its
	// session ended or could no longer be trusted, or its node was deleted. [ErrNodeDeleted],
	// [ErrUntrusted] or [ErrClosed] beside it says which. With none of these the session has
	// expired.
	ErrLost = errors.New("lost")

	// ErrNodeDeleted is wrapped beside [ErrLost] if the node of what was held was deleted, by an
	// operator or by a call such as Break. The session goes on.
	ErrNodeDeleted = errors.New("node was deleted")

	// ErrUntrusted is wrapped beside [ErrLost] if the ensemble's leader has not confirmed the
	// session in time. The ensemble may have expired the session, or be about to.
	ErrUntrusted = errors.New("can no longer be trusted")

	// ErrReleased is wrapped by the Err of a value that was given back.
	ErrReleased = errors.New("released")

	// ErrClosed is returned by every operation of a client after [Client.Close]. The Err of all
	// that the client held then wraps it, too.
	ErrClosed = errors.New("client closed")

	// ErrTooLarge is returned for data that a server would refuse. A server does so by ending the
	// connection, which all users of the session share. If no server with the default
	// jute.maxbuffer would accept the data, nothing is sent. If this server accepts less than that,
	// the error comes after two connections were lost.
	ErrTooLarge = errors.New("data too large")

	// ErrUncertain is wrapped by the error of an operation whose outcome is unknown and can no
	// longer be found out.
	ErrUncertain = errors.New("outcome unknown")

	// ErrSequenceExhausted is returned when the sequence numbers below a path are about to run out.
	// Delete the path while it is not in use: the numbers then start again at zero.
	ErrSequenceExhausted = errors.New("sequence numbers exhausted")

	// ErrMixed is returned when a contender of another library is behind the caller in line that
	// would not wait for it, and so may hold what the caller would be granted. That library cannot
	// share the path with this recipe, or not with its spelling: give them paths of their own.
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
func OutcomeUnknown(err error) bool { return outcomeOf(err) == unknown }

// contextError returns why ctx ended. It wraps ctx's own error. It has the text of ctx's cause and
// does not wrap that: the cause may be an error of zk.Conn, which would be mistaken for an answer.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// An outcome is what is known about one attempt at an operation.
type outcome int

const (
	definite outcome = iota // the server has answered, with success or with an error of its own
	notSent                 // the server has not executed it and never will
	unknown                 // it may have been executed, or may be executed later
)

// outcomeOf returns the outcome of an attempt from the error that zk.Conn has returned.
func outcomeOf(err error) outcome {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return definite
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrNothing):
		return unknown
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return unknown
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired):
		return notSent
	}

	switch serverCode(err) {
	case zkwire.CodeThrottled, zkwire.CodeReadOnly:
		return notSent
	case zkwire.CodeConnectionLoss, zkwire.CodeOperationTimeout: // between the servers
		return unknown
	}
	return definite
}

// serverCode returns the code of an answer for which zk.Conn has no error value, or CodeOK.
func serverCode(err error) zkwire.Code {
	if err == nil {
		return 0
	}
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.code
	}
	_, number, unknown := strings.Cut(err.Error(), "unknown error: ")
	code, err := strconv.ParseInt(number, 10, 32)
	if !unknown || err != nil {
		return 0
	}
	return zkwire.Code(code)
}
