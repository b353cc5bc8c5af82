package conn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestQueuedCallsEndThoughNoServerIsThere makes calls that zk.Conn queues, because they came as the
// connection broke. The first server comes back, and has executed none of them. (Some are larger
// than the default limit.)
func TestQueuedCallsEndThoughNoServerIsThere(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		inOutage(t, timeout, func(t *testing.T, o *outage) {
			require.NoError(t, o.ZK().AddAuth("digest", []byte("a:b")))
			there, _, _, err := o.ZK().ExistsW("/a")
			require.NoError(t, err)
			require.False(t, there)

			o.cut()
			began := time.Now()
			const calls = 40 // more than zk.Conn has room for
			ended := make(chan error, calls)
			for i := range calls {
				go func() {
					_, err := o.ZK().Create("/a", make([]byte, i%2*2<<20), 0, zk.WorldACL(zk.PermAll))
					ended <- err
				}()
			}
			for range calls {
				err := <-ended
				require.Equal(t, NotSent, OutcomeOf(err), "%v", err)
			}
			require.LessOrEqual(t, time.Since(began), timeout)

			time.Sleep(timeout / 4)
			id := o.ID()
			o.heal()
			there, _, err = o.ZK().Exists("/a")
			require.NoError(t, err)
			require.False(t, there, "a call that has failed")
			require.Equal(t, id, o.ID())
		})
	}
}

// An outage is a session whose servers can be away. Its limit for requests is three megabytes.
type outage struct {
	*Conn
	away atomic.Bool
}

// cut begins the outage.
func (o *outage) cut() {
	o.away.Store(true)
	o.Link().Cut(errors.New("test"))
	synctest.Wait()
}

// heal ends the outage.
func (o *outage) heal() {
	o.away.Store(false)
	for looks := 0; o.Link() == nil && looks < 1000; looks++ {
		time.Sleep(o.Timeout() / 100)
	}
}

// inOutage runs a test of a session with this timeout.
func inOutage(t *testing.T, timeout time.Duration, test func(t *testing.T, o *outage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true, MinSessionTimeout: timeout})
		require.NoError(t, err)
		defer srv.Close()
		o := new(outage)
		e := testEnsemble()
		e.Servers, e.Timeout, e.Limit = []string{srv.ConnectString()}, timeout, 3<<20
		e.Dial = func(_ context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			if o.away.Load() {
				return nil, errors.New("away")
			}
			return srv.Dial(network, address, timeout)
		}
		life, end := context.WithCancel(t.Context())
		o.Conn = New(life, e, &fakeHost{})
		require.NoError(t, o.Open())
		<-o.Began()
		defer func() {
			end()
			o.away.Store(false)
			require.NoError(t, o.Close(context.Background(), func(context.Context) {}))
		}()
		test(t, o)
	})
}

// TestCallerThatTriesAgainDoesNotKeepTheStub has a caller that repeats a call for as long as it
// fails. It must not keep zk.Conn from the servers, which are back after the first stub.
func TestCallerThatTriesAgainDoesNotKeepTheStub(t *testing.T) {
	t.Parallel()
	inOutage(t, 2*time.Second, func(t *testing.T, o *outage) {
		o.cut()
		began := time.Now()
		for {
			_, _, err := o.ZK().Exists("/a")
			if err == nil || time.Since(began) > time.Minute {
				break
			}
			o.away.Store(false)
			time.Sleep(time.Millisecond)
		}
		require.Less(t, time.Since(began), o.Timeout())
	})
}

// TestStubAcceptsNoCredentialThatNoServerHasAccepted adds two credentials, the second (which the
// servers refuse) in an outage. If that seemed to succeed, zk.Conn would repeat it on each
// connection, and the servers would end each.
func TestStubAcceptsNoCredentialThatNoServerHasAccepted(t *testing.T) {
	t.Parallel()
	inOutage(t, 2*time.Second, func(t *testing.T, o *outage) {
		require.NoError(t, o.ZK().AddAuth("digest", []byte("a:b")))
		o.cut()
		require.Equal(t, NotSent, OutcomeOf(o.ZK().AddAuth("unknown", []byte("a:b"))))
		o.heal()
		_, _, err := o.ZK().Exists("/a")
		require.NoError(t, err)
	})
}
