package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	code := func(n int) error { return fmt.Errorf("unknown error: %d", n) } // as zk.Conn spells it
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{nil, Definite},
		{zk.ErrNoNode, Definite},
		{zk.ErrNodeExists, Definite},
		{zk.ErrBadVersion, Definite},
		{zk.ErrNotEmpty, Definite},
		{zk.ErrNoAuth, Definite},
		{zk.ErrAuthFailed, Definite},
		{zk.ErrInvalidPath, Definite},
		{zk.ErrBadArguments, Definite},
		{zk.ErrAPIError, Definite},
		{zk.ErrShortBuffer, Definite},
		{code(-125), Definite}, // quota
		{code(-6), Definite},   // unimplemented

		{zk.ErrNoServer, NotSent},
		{zk.ErrSessionExpired, NotSent},
		{zk.ErrSessionMoved, NotSent},
		{code(-127), NotSent}, // throttled

		{zk.ErrConnectionClosed, Unknown},
		{zk.ErrClosing, Unknown},
		{zk.ErrNothing, Unknown},
		{code(-4), Unknown}, // connection loss
		{code(-7), Unknown}, // time-out
		{fmt.Errorf("call: %w", zk.ErrConnectionClosed), Unknown},
		{io.EOF, Unknown},
		{io.ErrUnexpectedEOF, Unknown},
		{&refusal{zkwire.CodeThrottled, errors.New("throttled")}, NotSent},
		{&net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}, Unknown},

		// What a caller says is not taken for an outage: it would be repeated.
		{context.Canceled, Definite},
		{context.DeadlineExceeded, Definite}, // which is a net.Error
		{fmt.Errorf("%w: %w", context.Canceled, io.EOF), Definite},
	} {
		require.Equal(t, c.want, OutcomeOf(c.err), "%v", c.err)
	}
	require.Zero(t, ServerCode(errors.New("unknown error: 99999999999")))
}

func TestContextErrorHasTheTextOfTheCauseOnly(t *testing.T) {
	t.Parallel()
	reason := fmt.Errorf("the reason: %w", zk.ErrConnectionClosed)
	plain, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, ContextError(plain))

	caused, end := context.WithCancelCause(t.Context())
	end(reason)
	late, stop := context.WithDeadlineCause(t.Context(), time.Now(), reason)
	defer stop()

	for want, ctx := range map[error]context.Context{context.Canceled: caused, context.DeadlineExceeded: late} {
		err := ContextError(ctx)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "the reason")
		require.NotErrorIs(t, err, zk.ErrConnectionClosed)
		require.Equal(t, Definite, OutcomeOf(err))
	}
}
