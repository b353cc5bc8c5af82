package conn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestRefusalIsLoggedWithoutTheLock has a host that waits for a lock of its own while the server
// refuses a request. That lock is taken before the Conn's, so it must not be waited for while the
// Conn's is held.
func TestRefusalIsLoggedWithoutTheLock(t *testing.T) {
	t.Parallel()
	c, host := begun()
	host.log = make(chan struct{})
	w := &Link{
		conn: c, dialled: time.Now(), established: true,
		sent: []sentRequest{{xid: 1, op: zkwire.OpExists, at: time.Now()}},
	}
	refusal := make([]byte, zkwire.ReplyBody)
	zkwire.PutReplyHeader(refusal, zkwire.ReplyHeader{Xid: 1, Code: zkwire.CodeSessionMoved})
	answered, looked := make(chan struct{}), make(chan struct{})
	go func() {
		w.answer(refusal, 0)
		close(answered)
	}()
	go func() {
		for noted := false; !noted; {
			c.mu.Lock()
			noted = !c.warned.IsZero()
			c.mu.Unlock()
		}
		close(looked)
	}()
	select {
	case <-looked:
	case <-time.After(30 * time.Second):
		t.Error("locked by what waits for the host")
	}
	close(host.log)
	<-answered
}

// TestRequestAtOnceAfterTheHandshakeIsNotTakenForTheConnectRequest has a host for which the
// handshake waits at its end, while a call that waited for the connection makes a request.
func TestRequestAtOnceAfterTheHandshakeIsNotTakenForTheConnectRequest(t *testing.T) {
	t.Parallel()
	c, host := begun()
	host.change = make(chan struct{})
	near, far := net.Pipe()
	defer far.Close()
	answer := zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{Timeout: c.timeout, SessionID: c.ID(), Password: make([]byte, 16)})
	w := &Link{
		Conn: near, conn: c, in: bufio.NewReader(bytes.NewReader(answer)), dialled: time.Now(),
		writing: make(turn, 1), identified: make(chan struct{}), lastZxid: 1 << 40,
	}
	close(w.identified)

	over := make(chan error, 1)
	go func() { over <- w.handshake(len(answer) - 4) }()
	for c.Link() == nil {
		runtime.Gosched()
	}
	answered := make(chan Reply, 1)
	go w.Send(zkwire.OpSync, "/", nil, func(r Reply) { answered <- r })
	frame, err := zkwire.ReadFrame(far, 100)
	close(host.change)
	require.NoError(t, err)
	head, ok := zkwire.ParseRequestHeader(frame)
	require.True(t, ok)
	require.Equal(t, zkwire.RequestHeader{Xid: firstOwnXid, Op: zkwire.OpSync}, head)

	require.NoError(t, <-over)
	w.Cut(errors.New("test"))
	require.Equal(t, zkwire.CodeConnectionLoss, (<-answered).Code)
}

// TestOwnRequestsReuseTheirNumbers makes the last requests that have numbers, and the first ones
// after those.
func TestOwnRequestsReuseTheirNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true})
		require.NoError(t, err)
		defer srv.Close()
		e := testEnsemble()
		e.Servers = []string{srv.ConnectString()}
		e.Dial = func(_ context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			return srv.Dial(network, address, timeout)
		}
		life, end := context.WithCancel(t.Context())
		c := New(life, e, &fakeHost{})
		require.NoError(t, c.Open())
		<-c.Began()
		w := c.Link()
		for _, used := range []int32{math.MaxInt32 / 2, math.MaxInt32 - 10} {
			w.writing.Lock()
			w.ownXids = used
			w.writing.Unlock()
			for range 20 {
				code := make(chan zkwire.Code, 1)
				w.Send(zkwire.OpExists, "/missing", []byte{0}, func(r Reply) { code <- r.Code })
				select {
				case c := <-code:
					require.Equal(t, zkwire.CodeNoNode, c)
				case <-time.After(c.Timeout()):
					t.Fatalf("no answer to a request after %d", used)
				}
			}
		}
		require.Same(t, w, c.Link())
		end()
		require.NoError(t, c.Close(t.Context(), func(context.Context) {}))
	})
}
