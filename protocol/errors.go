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
	// ErrLost is wrapped by the error of everything that was held and is held no longer without having been
	// given back: its session ended, could no longer be trusted, or its node was deleted by somebody.
	ErrLost = errors.New("lost")

	// ErrReleased is what Err of a value says once it has been given back.
	ErrReleased = errors.New("released")

	// ErrClosed is returned by every operation of a client, and wrapped by the error of everything that it
	// held, once [Client.Close] was called.
	ErrClosed = errors.New("client closed")

	// ErrTooLarge is returned for data that a server would refuse by ending the connection, which all users of the
	// session share: before anything is sent if no server with the default jute.maxbuffer would take it, and after
	// two connections if this one turns out to take less.
	ErrTooLarge = errors.New("data too large")

	// ErrUncertain is wrapped by the error of an operation of which nobody can tell any more whether it happened.
	ErrUncertain = errors.New("outcome unknown")

	// ErrSequenceExhausted is returned when the sequence numbers below a path are about to run out. They start
	// again at zero once the path was deleted and re-created.
	ErrSequenceExhausted = errors.New("sequence numbers exhausted")
)

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

func (e *recipeError) Error() string { return fmt.Sprintf("%s: %s: %v", e.recipe, e.path, e.err) }
func (e *recipeError) Unwrap() error { return e.err }

// OutcomeUnknown reports whether err, which a call of [zk.Conn] has returned, leaves open if the server
// has executed the request or may yet do so.
func OutcomeUnknown(err error) bool { return outcomeOf(err) == unknown }

// contextError is why ctx ended. It wraps ctx's own error and tells its cause, which it does not wrap: that may be
// anything, an error of zk.Conn too, and would be mistaken for an answer.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// An outcome says what is known of one attempt at an operation.
type outcome int

const (
	definite outcome = iota // the server has answered, with success or with an error of its own
	notSent                 // the server has not executed it and never will
	unknown                 // it may have been executed, or may still be
)

// outcomeOf reads the outcome out of what zk.Conn returned.
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
	case zkwire.CodeThrottled:
		return notSent
	case zkwire.CodeConnectionLoss, zkwire.CodeOperationTimeout: // between the servers
		return unknown
	}
	return definite
}

// serverCode is the code of an answer for which zk.Conn has no error value, or 0.
func serverCode(err error) zkwire.Code {
	if err == nil {
		return 0
	}
	number, unknown := strings.CutPrefix(err.Error(), "unknown error: ")
	code, err := strconv.ParseInt(number, 10, 32)
	if !unknown || err != nil {
		return 0
	}
	return zkwire.Code(code)
}
