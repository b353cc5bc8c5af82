package conn

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

// ErrUserClosed means that the user has closed a session's zk.Conn.
var ErrUserClosed = errors.New("its zk.Conn was closed")

// ErrUnproven means that a request was never voted on, although a server may have answered it.
var ErrUnproven = errors.New("no quorum has agreed to a write")

// ContextError returns why ctx ended. It wraps ctx's own error and has the text of ctx's cause. It
// doesn't wrap the cause, because that can be an error of zk.Conn and would be taken for an answer.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// An Outcome says what one attempt at an operation may have done.
type Outcome int

const (
	Definite Outcome = iota // the server has answered, with success or with an error of its own
	NotSent                 // the server hasn't executed it and never will
	Unknown                 // it may have been executed, or may be executed later
)

// OutcomeOf returns the outcome of an attempt that ended with this error of zk.Conn.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Definite
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrNothing):
		return Unknown
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unknown
	case errors.Is(err, ErrUnproven), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired):
		return NotSent
	}

	switch ServerCode(err) {
	case zkwire.CodeThrottled, zkwire.CodeReadOnly:
		return NotSent
	case zkwire.CodeConnectionLoss, zkwire.CodeOperationTimeout: // lost between the servers
		return Unknown
	}

	return Definite
}

// ErrorOf returns the error that zk.Conn would return for this code.
func ErrorOf(code zkwire.Code) error {
	switch code {
	case zkwire.CodeConnectionLoss:
		return zk.ErrConnectionClosed
	case zkwire.CodeSessionMoved:
		return zk.ErrSessionMoved
	case zkwire.CodeSessionExpired:
		return zk.ErrSessionExpired
	}

	return fmt.Errorf("unknown error: %d", code)
}

// ServerCode returns the server's error code if zk.Conn has no error value for it, or CodeOK.
func ServerCode(err error) zkwire.Code {
	if err == nil {
		return 0
	}
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.code
	}

	// zk.Conn has only this text for the codes that it lacks.
	_, number, unknown := strings.Cut(err.Error(), "unknown error: ")
	code, err := strconv.ParseInt(number, 10, 32)
	if !unknown || err != nil {
		return 0
	}

	return zkwire.Code(code)
}

// A refusal is a server's error that zk.Conn has no value for.
type refusal struct {
	code zkwire.Code
	name error
}

func (r *refusal) Error() string { return fmt.Sprintf("%v (error %d)", r.name, r.code) }
func (r *refusal) Unwrap() error { return r.name }

// named returns err, or our own error for its code if there is one.
func named(names map[zkwire.Code]error, err error) error {
	code := ServerCode(err)
	if name := names[code]; name != nil {
		return &refusal{code, name}
	}
	return err
}
