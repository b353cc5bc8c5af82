package group_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMain(m *testing.M) { suite.Main(m) }

func join(t testing.TB, g *group.Group, name, data string) *group.Member {
	t.Helper()
	m := suite.Got(g.Join(suite.Lasting(t), name, []byte(data)))(t)
	return m
}

func leave(t testing.TB, members ...*group.Member) {
	t.Helper()
	for _, m := range members {
		require.NoError(t, m.Leave(suite.Lasting(t)))
		require.False(t, m.Joined())
	}
}

// joined waits until a member is joined, or is not.
func joined(t testing.TB, m *group.Member, want bool) {
	t.Helper()
	for m.Joined() != want {
		suite.Wait(t, m.Changes())
	}
}

// members lists a group, with the data: "a=1".
func members(t testing.TB, g *group.Group) []string {
	t.Helper()
	peers := suite.Must(t, g.Members)
	return described(peers)
}

func described(peers []group.Peer) []string {
	all := []string{}
	for _, p := range peers {
		all = append(all, p.Name+"="+string(p.Data))
	}
	return all
}

// watch begins to watch a group. next returns what is yielded next.
func watch(t testing.TB, g *group.Group) (next func() []group.Peer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	yielded, over := make(chan []group.Peer), make(chan struct{})
	go func() {
		defer close(over)
		for peers, err := range g.Watch(ctx) {
			if err != nil {
				return
			}
			select {
			case yielded <- peers:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-over })
	return func() []group.Peer { return suite.Wait(t, yielded) }
}

// until reads what a watch yields until it is these members.
func until(t testing.TB, next func() []group.Peer, want ...string) []group.Peer {
	t.Helper()
	for {
		if peers := next(); len(peers) == len(want) {
			require.Equal(t, append([]string{}, want...), described(peers))
			return peers
		}
	}
}

// eachVersion runs a test as [suite.Each] does, and on an embedded server like 3.9, where the Stat
// of a node that may not be read is hidden, too.
func eachVersion(t *testing.T, test func(*testing.T, *recipestest.Server)) {
	suite.Each(t, test)
	t.Run("3.9", func(t *testing.T) { suite.Bubble(t, test, like39) })
}

var like39 = recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = "3.9" })
