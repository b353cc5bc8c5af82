package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// TestAttemptsToConnectCountUntilAConnectionIsOfUse checks when the next attempts need not be
// paced.
func TestAttemptsToConnectCountUntilAConnectionIsOfUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		op       zkwire.Op
		after    time.Duration
		failures int
		signs    int // of life
	}{
		{zkwire.OpGetData, time.Second, 3, 1},     // it may hang up now
		{zkwire.OpGetData, 2 * time.Second, 0, 1}, // it has lasted for a sixth of the timeout
		{zkwire.OpSync, time.Second, 0, 1},        // the leader has answered
		{zkwire.OpAuth, 5 * time.Second, 3, 0},    // servers do not count credentials either
	} {
		synctest.Test(t, func(t *testing.T) {
			c, host := begun()
			w := &Link{conn: c, dialled: time.Now()}
			c.failures = 3
			time.Sleep(test.after)
			c.answered(w, sentRequest{xid: 1, op: test.op, at: time.Now()}, zkwire.CodeOK, trust.WitnessOf(test.op, zkwire.CodeOK, 1))
			require.Equal(t, test.failures, c.failures)
			require.Equal(t, test.signs, host.answers)
		})
	}
}
