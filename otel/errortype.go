package zkotel

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// The causes of a loss.
const (
	sessionLost = "session_lost"
	trustOver   = "trust_over"
	nodeDeleted = "node_deleted"
	closed      = "closed"
)

// These are errors of a caller that gives up or doesn't want to wait.
const (
	busy     = "busy"
	canceled = "canceled"
)

// errorTypes has the values of error.type. The first matching error counts.
var errorTypes = []struct {
	err  error
	name string
}{
	{context.Canceled, canceled},
	{context.DeadlineExceeded, "timeout"},
	{protocol.ErrUncertain, "outcome_unknown"},
	{protocol.ErrTooLarge, "too_large"},
	{protocol.ErrSequenceExhausted, "sequence_exhausted"},
	{protocol.ErrMixed, "mixed"},
	{zk.ErrNoAuth, "no_permission"},
	{zk.ErrAuthFailed, "authentication_failed"},
	{zk.ErrConnectionClosed, "connection"},
	{zk.ErrClosing, "connection"},
	{zk.ErrNoServer, "connection"},
	{zk.ErrSessionExpired, sessionLost},
	{io.EOF, "connection"},
	{io.ErrUnexpectedEOF, "connection"},
}

// errorType returns the value of error.type for err. There are only a few values.
func errorType(err error) string {
	if b := (interface{ Busy() bool })(nil); errors.As(err, &b) && b.Busy() { // the error of every Try call
		return busy
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}

	switch {
	case errors.Is(err, protocol.ErrLost), errors.Is(err, protocol.ErrClosed):
		return lossCause(err)
	case errors.As(err, new(net.Error)):
		return "connection"
	}

	return "_OTHER" // the name that the semantic conventions have for all others
}

// lossCause returns why a hold or its session was lost.
func lossCause(err error) string {
	switch {
	case errors.Is(err, protocol.ErrClosed):
		return closed
	case errors.Is(err, protocol.ErrNodeDeleted):
		return nodeDeleted
	case errors.Is(err, protocol.ErrUntrusted):
		return trustOver
	}
	return sessionLost
}
