package conn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// TestEveryRequestToSetWatchesIsAnswered sends one that was left over from the connection before,
// and the one of this connection while packets wait.
func TestEveryRequestToSetWatchesIsAnswered(t *testing.T) {
	t.Parallel()
	w := new(Link)
	w.established.Store(true)

	for range 3 * rewatchWindow {
		w.rewatch = append(w.rewatch, emptyRewatch())
	}

	for xid := range int32(2) {
		p := emptyRewatch()
		zkwire.SetXid(p, 1+xid)
		frames, _ := w.note(p, nil)
		require.NotContains(t, frames, p)
	}
	w.takeRewatch(len(w.rewatch))

	for xid := range int32(2) {
		_, sent := w.take(1 + xid)
		require.True(t, sent, "request %d", 1+xid)
	}
	require.Len(t, w.sent, 3*rewatchWindow-1, "packets of our own")
}
