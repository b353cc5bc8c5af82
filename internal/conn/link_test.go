package conn

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// TestRefusalIsLoggedWithoutTheLock has a host that waits for a lock of its own while the server
// refuses a request. That lock is taken before the Conn's, so it must not be waited for while the
// Conn's is held.
func TestRefusalIsLoggedWithoutTheLock(t *testing.T) {
	t.Parallel()
	c, host := begun()
	host.log = make(chan struct{})
	w := &Link{
		conn: c, dialled: time.Now(),
		sent: []sentRequest{{xid: 1, op: zkwire.OpExists, at: time.Now()}},
	}
	w.established.Store(true)
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
	require.Equal(t, zkwire.RequestHeader{Xid: firstOwnXid + 1, Op: zkwire.OpSync}, head)

	require.NoError(t, <-over)
	w.Cut(errors.New("test"))
	require.Equal(t, zkwire.CodeConnectionLoss, (<-answered).Code)
}

// TestConnectionDoesNotReuseTheNumbersOfAnother makes the first request of two connections. If a
// server is about to answer one with a number, it takes the commit of another one with the same
// number for the answer.
func TestConnectionDoesNotReuseTheNumbersOfAnother(t *testing.T) {
	t.Parallel()
	c, _ := begun()
	used := make(map[int32]bool)

	for range 2 {
		near, far := net.Pipe()
		w := &Link{Conn: near, conn: c, writing: make(turn, 1), identified: make(chan struct{})}
		close(w.identified)
		w.established.Store(true)
		go w.Send(zkwire.OpDelete, "/", nil, func(Reply) {})
		frame, err := zkwire.ReadFrame(far, 100)
		require.NoError(t, err)
		head, _ := zkwire.ParseRequestHeader(frame)
		require.False(t, used[head.Xid])
		used[head.Xid] = true
		w.Cut(errors.New("test"))
		far.Close()
	}
}

// TestOwnRequestsReuseTheirNumbers makes the last requests that have numbers, and the first ones
// after those.
func TestOwnRequestsReuseTheirNumbers(t *testing.T) {
	t.Parallel()
	inOutage(t, 2*time.Second, func(t *testing.T, o *outage) {
		w := o.Link()
		for _, used := range []uint32{ownXids - 10, 3*ownXids - 10, math.MaxUint32 - 10} {
			o.ownXids.Store(used)
			for range 20 {
				code := make(chan zkwire.Code, 1)
				w.Send(zkwire.OpExists, "/missing", []byte{0}, func(r Reply) { code <- r.Code })
				select {
				case c := <-code:
					require.Equal(t, zkwire.CodeNoNode, c)
				case <-time.After(o.Timeout()):
					t.Fatalf("no answer to a request after %d", used)
				}
			}
		}
		require.Same(t, w, o.Link())
	})
}
