package protocol

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// inMemory connects a client to a server of its own, in virtual time.
func inMemory(t *testing.T, test func(s *Session)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true})
		require.NoError(t, err)
		defer srv.Close()
		c, err := Connect(t.Context(), srv.ConnectString(), WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		s, err := c.Session(t.Context())
		require.NoError(t, err)
		test(s)
	})
}

// TestOwnRequestsReuseTheirNumbers makes the last requests that have numbers, and the first ones
// after those.
func TestOwnRequestsReuseTheirNumbers(t *testing.T) {
	inMemory(t, func(s *Session) {
		_, err := s.Exists(context.Background(), "/missing") // see request: one of zk.Conn's must come first
		require.NoError(t, err)

		w := s.connection()
		for _, used := range []int32{math.MaxInt32 / 2, math.MaxInt32 - 10} {
			w.writing.Lock()
			w.ownXids = used
			w.writing.Unlock()
			for range 20 {
				code := make(chan zkwire.Code, 1)
				w.request(zkwire.OpExists, "/missing", []byte{0}, func(c zkwire.Code) { code <- c })
				select {
				case c := <-code:
					require.Equal(t, zkwire.CodeNoNode, c)
				case <-time.After(s.Timeout()):
					t.Fatalf("no answer to a request after %d", used)
				}
			}
		}
		require.Same(t, w, s.connection())
	})
}

// TestRefusalIsLoggedWithoutTheSessionsLock holds the client's lock while the server refuses a
// request. That lock is taken before the session's, so it must not be waited for while the
// session's is held.
func TestRefusalIsLoggedWithoutTheSessionsLock(t *testing.T) {
	t.Parallel()
	s, _ := held(t)
	w := &connection{
		session: s, dialled: time.Now(), established: true,
		sent: []sentRequest{{xid: 1, op: zkwire.OpExists, at: time.Now()}},
	}
	refusal := make([]byte, zkwire.ReplyBody)
	zkwire.PutReplyHeader(refusal, zkwire.ReplyHeader{Xid: 1, Code: zkwire.CodeSessionMoved})
	answered, looked := make(chan struct{}), make(chan struct{})
	s.client.mu.Lock()
	go func() {
		w.answer(refusal)
		close(answered)
	}()
	go func() {
		for noted := false; !noted; {
			s.mu.Lock()
			noted = !s.warned.IsZero()
			s.mu.Unlock()
		}
		close(looked)
	}()
	select {
	case <-looked:
	case <-time.After(30 * time.Second):
		t.Error("the session is locked by what waits for the client's lock")
	}
	s.client.mu.Unlock()
	<-answered
}
