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

// ErrUserClosed says that somebody has closed the zk.Conn of a session.
var ErrUserClosed = errors.New("its zk.Conn was closed")

// ErrUnproven says that a request was not voted on, whatever a server has answered.
var ErrUnproven = errors.New("no quorum has agreed to a write")

// ContextError returns why ctx ended. It wraps ctx's own error. It has the text of ctx's cause and
// does not wrap that: the cause may be an error of zk.Conn, which would be mistaken for an answer.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// An Outcome is what is known about one attempt at an operation.
type Outcome int

const (
	Definite Outcome = iota // the server has answered, with success or with an error of its own
	NotSent                 // the server has not executed it and never will
	Unknown                 // it may have been executed, or may be executed later
)

// OutcomeOf returns the outcome of an attempt from the error that zk.Conn has returned.
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
	case zkwire.CodeConnectionLoss, zkwire.CodeOperationTimeout: // between the servers
		return Unknown
	}
	return Definite
}

// ErrorOf returns the error for a code that a request of our own was answered with, as zk.Conn would.
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

// ServerCode returns the code of an answer for which zk.Conn has no error value, or CodeOK.
func ServerCode(err error) zkwire.Code {
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

// A refusal is an error of a server that zk.Conn has no value for.
type refusal struct {
	code zkwire.Code
	name error
}

func (r *refusal) Error() string { return fmt.Sprintf("%v (error %d)", r.name, r.code) }
func (r *refusal) Unwrap() error { return r.name }

// named returns err, or what it is called here, by its code.
func named(names map[zkwire.Code]error, err error) error {
	code := ServerCode(err)
	if name := names[code]; name != nil {
		return &refusal{code, name}
	}
	return err
}
