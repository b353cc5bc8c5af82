package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMain(m *testing.M) { suite.Main(m) }

// timeout is for whole tests with many round trips.
const timeout = 4 * suite.Limit

// patient returns a context for calls that must succeed in the end.
func patient(t *testing.T) context.Context { return suite.Within(t, timeout) }

// lasting creates a persistent node (which no server reaps) and its parents.
func lasting(t testing.TB, c *protocol.Client, path string) string {
	t.Helper()
	suite.Keep(t, c, path)
	return path
}

func offer(t testing.TB, q *queue.Queue, all ...string) {
	t.Helper()
	for _, data := range all {
		_, err := q.Offer(t.Context(), []byte(data))
		require.NoError(t, err)
	}
}

// numbered returns the data of n entries, beginning with this number.
func numbered(first, n int) (all [][]byte) {
	for i := range n {
		all = append(all, []byte(fmt.Sprintf("%06d", first+i)))
	}
	return all
}

func texts(all [][]byte) (s []string) {
	for _, data := range all {
		s = append(s, string(data))
	}
	return s
}

// drain takes all entries that are left.
func drain(t testing.TB, ctx context.Context, q *queue.Queue) (all []string) {
	t.Helper()
	for {
		data, err := q.PollN(ctx, 1000)
		if errors.Is(err, queue.ErrEmpty) {
			return all
		}
		require.NoError(t, err)
		all = append(all, texts(data)...)
	}
}

// fill offers n entries with numbers.
func fill(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	for chunk := range slices.Chunk(numbered(0, n), 1000) {
		_, err := q.OfferAll(t.Context(), chunk)
		require.NoError(t, err)
	}
}

// exhaust takes all entries that are left. It waits for entries of sessions that must still expire.
func exhaust(t *testing.T, q *queue.Queue) (all []string) {
	t.Helper()
	ctx := patient(t)
	for {
		all = append(all, drain(t, ctx, q)...)
		n := suite.Got(q.Len(ctx))(t)
		if n == 0 {
			return all
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lasts is a server option for sessions that last on any machine. (If the server is slow, a
// connection is given up after a part of the session timeout.)
var lasts = recipestest.WithConfig(embedded.Config{MaxSessionTimeout: timeout})

// oblivious returns a server whose sessions last, and a client that keeps its session however slow
// an answer is.
func oblivious(t *testing.T) (*recipestest.Server, *recipestest.Link, *protocol.Client) {
	t.Helper()
	srv := recipestest.Start(t, lasts)
	link := srv.Link(t)
	return srv, link, link.Client(t, protocol.WithSessionTimeout(timeout))
}

// children lists a node.
func children(t *testing.T, c *protocol.Client, path string) []string {
	t.Helper()
	s := suite.Session(t, c)
	all, _, err := s.Conn().Children(path)
	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(t, err)
	}
	slices.Sort(all)
	return all
}

// entries lists the queue's entries.
func entries(t *testing.T, c *protocol.Client, path string) []string {
	t.Helper()
	return slices.DeleteFunc(children(t, c, path), func(name string) bool { return name == "zkrecipes" })
}

// logged returns a client that logs to a buffer. The function returns the buffer's text.
func logged(c *protocol.Client) (*protocol.Client, func() string) {
	var mu sync.Mutex
	var all strings.Builder
	w := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return all.Write(p)
	})
	return c.With(protocol.WithLogger(slog.New(slog.NewTextHandler(w, nil)))), func() string {
		suite.Settle()
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

// when calls do, once, as a packet with a wanted operation comes to the link.
func when(link *recipestest.Link, wanted func(operations []string) bool, do func()) {
	var met atomic.Bool
	for step := range 1000 { // all at once: another packet could come before the next is armed
		link.Meet(step+1, func(operations []string) {
			if wanted(operations) && met.CompareAndSwap(false, true) {
				do()
			}
		})
	}
}

// first wants a packet whose first operation is of this kind.
func first(kind string) func([]string) bool {
	return func(operations []string) bool { return strings.HasPrefix(operations[0]+" ", kind+" ") }
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func poll(ctx context.Context, q *queue.Queue) error {
	_, err := q.Poll(ctx)
	return err
}

func offerX(ctx context.Context, q *queue.Queue) error {
	_, err := q.Offer(ctx, []byte("x"))
	return err
}

func offerKeyK(ctx context.Context, q *queue.Queue) error {
	_, err := q.OfferKey(ctx, "k", []byte("x"))
	return err
}

// open gives all rights on a node and the nodes below it to all clients. (The test's own clean-up
// needs that.)
func open(conn *zk.Conn, path string) {
	_, _ = conn.SetACL(path, zk.WorldACL(zk.PermAll), -1)
	names, _, _ := conn.Children(path)
	for _, name := range names {
		open(conn, path+"/"+name)
	}
}

// reserve reserves an item, and gives it back when the test ends (unless it has ended by then).
func reserve(t *testing.T, q *queue.Queue) *queue.Item {
	t.Helper()
	it := suite.Got(q.Reserve(patient(t)))(t)
	t.Cleanup(func() { it.Nack(context.Background()) })
	return it
}
