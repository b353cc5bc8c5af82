package interop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

func TestMain(m *testing.M) { suite.Main(m) }

// patient returns a context for a whole test, which makes many round trips.
func patient(t testing.TB) context.Context { return suite.Within(t, 4*suite.Limit) }

func keep(t testing.TB, c *protocol.Client, path string) string {
	t.Helper()
	suite.Keep(t, c, path)
	return path
}

func join(t testing.TB, g *group.Group, name, data string) *group.Member {
	t.Helper()
	m := suite.Got(g.Join(suite.Lasting(t), name, []byte(data)))(t)
	return m
}

func leave(t testing.TB, members ...*group.Member) {
	t.Helper()
	for _, m := range members {
		require.NoError(t, m.Leave(suite.Lasting(t)))
	}
}

// watch begins to watch a group. until waits until the members are these.
func watch(t testing.TB, g *group.Group) (until func(want ...string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan []string), make(chan struct{})
	go func() {
		defer close(ended)
		for peers, err := range g.Watch(ctx) {
			if err != nil {
				return
			}
			members := []string{}
			for _, p := range peers {
				members = append(members, p.Name+"="+string(p.Data))
			}
			select {
			case seen <- members:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })

	return func(want ...string) {
		t.Helper()
		for {
			if members := suite.Wait(t, seen); len(members) == len(want) {
				require.Equal(t, append([]string{}, want...), members)
				return
			}
		}
	}
}

func offer(t testing.TB, q *queue.Queue, data string) {
	t.Helper()
	suite.Got(q.Offer(t.Context(), []byte(data)))(t)
}

// reserve reserves an item, and gives it back when the test ends, unless it has ended before.
func reserve(t testing.TB, q *queue.Queue) *queue.Item {
	t.Helper()
	it := suite.Must(t, q.Reserve)
	t.Cleanup(func() { it.Nack(context.Background()) })
	return it
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

// numbered are the data of n entries, the first of which has this number.
func numbered(first, n int) (all [][]byte) {
	for i := range n {
		all = append(all, fmt.Appendf(nil, "%06d", first+i))
	}
	return all
}

func texts(all [][]byte) (s []string) {
	for _, data := range all {
		s = append(s, string(data))
	}
	return s
}
