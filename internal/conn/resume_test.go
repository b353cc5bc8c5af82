package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// TestAnswerToACredentialIsNoSignOfLife: servers do not count credentials either.
func TestAnswerToACredentialIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, host := begun()
		w := &Link{conn: c, dialled: time.Now()}
		c.failures = 3
		time.Sleep(5 * time.Second)
		c.answered(w, sentRequest{xid: zkwire.XidAuth, op: zkwire.OpAuth, at: time.Now()}, zkwire.CodeOK, trust.Member)
		require.Zero(t, host.answers)
		require.Equal(t, 3, c.failures)
	})
}

// TestAttemptsToConnectCountUntilAConnectionIsOfUse checks when the next attempts need not be
// paced.
func TestAttemptsToConnectCountUntilAConnectionIsOfUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		op    zkwire.Op
		after time.Duration
		want  int
	}{
		{zkwire.OpGetData, time.Second, 3},     // it may hang up now
		{zkwire.OpGetData, 2 * time.Second, 0}, // it has lasted for a sixth of the timeout
		{zkwire.OpSync, time.Second, 0},        // the leader has answered
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := begun()
			w := &Link{conn: c, dialled: time.Now()}
			c.failures = 3
			time.Sleep(test.after)
			c.answered(w, sentRequest{xid: 1, op: test.op, at: time.Now()}, zkwire.CodeOK, trust.WitnessOf(test.op, zkwire.CodeOK, 1))
			require.Equal(t, test.want, c.failures)
		})
	}
}
