package suite_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// dataOf makes each recipe with contenders hold something, and returns the data of its nodes.
func dataOf(t *testing.T, c *protocol.Client, path string) map[string][]byte {
	t.Helper()
	ctx, data := t.Context(), make(map[string][]byte)
	note := func(recipe string, nodes []lock.Contender, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Len(t, nodes, 1, recipe)
		data[recipe] = nodes[0].Data
	}

	m := lock.New(c, path+"/lock")
	require.NoError(t, m.Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		nodes, err := m.Contenders(ctx)
		note("lock", nodes, err)
		return nil
	}))
	simple := lock.NewSimple(c, path+"/simple")
	require.NoError(t, simple.Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		nodes, err := simple.Contenders(ctx)
		note("simple", nodes, err)
		return nil
	}))

	rw := rwlock.New(c, path+"/rwlock")
	contender := func(recipe string) {
		t.Helper()
		nodes, err := rw.Contenders(ctx)
		require.NoError(t, err)
		require.Len(t, nodes, 1, recipe)
		data[recipe] = nodes[0].Data
	}
	writer, err := rw.Lock(ctx)
	require.NoError(t, err)
	contender("writer")
	reader, err := writer.Downgrade(ctx)
	require.NoError(t, err)
	contender("reader")
	require.NoError(t, reader.Unlock(ctx))

	s := semaphore.New(c, path+"/semaphore", 2)
	require.NoError(t, s.Do(ctx, func(ctx context.Context, _ *semaphore.Permit) error {
		nodes, err := s.Contenders(ctx)
		note("semaphore", nodes, err)
		return nil
	}))

	_, err = once.New(c, path+"/once").Do(ctx, "key", func(ctx context.Context, _ *once.Run) error {
		session := suite.Session(t, c)
		names, _, err := session.Children(ctx, path+"/once")
		require.NoError(t, err)
		for _, name := range names {
			if _, _, ours := recipe.ParseOwner(name); ours {
				data["once"], _, err = session.Get(ctx, path+"/once/"+name)
				require.NoError(t, err)
			}
		}
		return nil
	})
	require.NoError(t, err)

	b := doublebarrier.New(c, path+"/doublebarrier", 1)
	require.NoError(t, b.Do(ctx, func(ctx context.Context, _ *doublebarrier.Entry) error {
		waiting, err := b.Waiting(ctx)
		require.NoError(t, err)
		require.Len(t, waiting, 1)
		data["doublebarrier"] = waiting[0].Data
		return nil
	}))
	require.Len(t, data, 7)
	return data
}

func TestContendersSayWhereTheyRun(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		host, err := os.Hostname()
		require.NoError(t, err)
		for recipe, data := range dataOf(t, c, srv.Root(t)) {
			p, ok := protocol.ParseProcess(data)
			require.True(t, ok, "%s: %q", recipe, data)
			require.Equal(t, host[:min(64, len(host))], p.Host, recipe)
			require.Equal(t, os.Getpid(), p.PID, recipe)
			require.NotEmpty(t, p.Program, recipe)
		}
		for recipe, data := range dataOf(t, c.With(protocol.WithOwnerData([]byte("pod-7"))), srv.Root(t)) {
			require.Equal(t, "pod-7", string(data), recipe)
		}
		for recipe, data := range dataOf(t, c.With(protocol.WithOwnerData(nil)), srv.Root(t)) {
			require.Empty(t, data, recipe)
		}
	})
}

func TestDataThatIsGivenReplacesTheOwnerData(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for want, option := range map[string]lock.Option{"mine": lock.WithData([]byte("mine")), "": lock.WithData([]byte{})} {
			m := lock.New(srv.Client(t), srv.Root(t), option)
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context, _ *lock.Lease) error {
				nodes, err := m.Contenders(ctx)
				require.NoError(t, err)
				require.Equal(t, want, string(nodes[0].Data))
				return nil
			}))
		}
	})
}
