package lock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestPanicEndsItsTurnInTheLocalQueue(t *testing.T) {
	l := &linger{turn: make(localQueue, 1)}
	for range 2 { // the second one would fail otherwise
		require.PanicsWithValue(t, "by a user's back-off", func() {
			l.take(t.Context(), nil, &line.Request{Try: true},
				func(context.Context, *recipe.Session, *line.Request) (*recipe.Grant, error) {
					panic("by a user's back-off")
				})
		})
	}
}
