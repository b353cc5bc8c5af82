package lock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

func TestPanicEndsItsTurnInTheLocalQueue(t *testing.T) {
	l := &linger{turn: make(localQueue, 1)}
	for range 2 { // the second one would fail otherwise
		require.PanicsWithValue(t, "by a user's back-off", func() {
			l.take(t.Context(), nil, &line.Request{Try: true},
				func(context.Context, *protocol.Session, *line.Request) (*protocol.Grant, error) {
					panic("by a user's back-off")
				})
		})
	}
}
