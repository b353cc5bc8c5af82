package survey_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// makeNodes creates nodes, and an ephemeral contender in each of the locks.
func makeNodes(t *testing.T, s *recipe.Session, nodes, locks []string) {
	t.Helper()
	for _, node := range slices.Concat(nodes, locks) {
		suite.Ensure(t, s, node)
	}
	for _, path := range locks {
		require.NoError(t, s.Create(t.Context(), path+"/n-lock-0000000000", nil, zk.FlagEphemeral))
	}
}

// numbered returns paths below a node.
func numbered(dir string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s/x%03d", dir, i))
	}
	return all
}

// locksOf returns the paths at which a place has a lock that is held.
func locksOf(p *survey.Place) (all []string) {
	for place := range p.All() {
		if place.Recipe == survey.Lock && place.Holders() == 1 {
			all = append(all, place.Path)
		}
	}
	return all
}

func TestUnrelatedNodesDoNotHideLocks(t *testing.T) {
	for name, tree := range map[string]struct {
		nodes func(root string) []string
		lock  string
	}{
		"beside": {func(root string) []string { return numbered(root+"/aaa", 60) }, "/locks/a"},
		"deep":   {func(root string) []string { return numbered(root+"/aaa", 60) }, "/locks/team/app/a"},
		"wide before deep": {func(root string) []string {
			var all []string
			for _, dir := range numbered(root+"/aaa", 8) {
				all = append(all, numbered(dir, 8)...)
			}
			return all
		}, "/locks/a"},
		"within": {func(root string) []string { return numbered(root+"/services/aaa", 60) }, "/services/locks/a"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := recipestest.Start(t)
			root, c := srv.Root(t), client(t, srv)
			makeNodes(t, suite.Session(t, c), tree.nodes(root), []string{root + tree.lock})

			p := suite.Got(survey.Look(t.Context(), c, root, survey.Limits{Places: 50}))(t)
			require.Equal(t, []string{root + tree.lock}, locksOf(p))
			require.Positive(t, p.Cut(), "what was left out is counted")
			p = suite.Got(survey.Look(t.Context(), c, root, survey.Limits{}))(t)
			require.Zero(t, p.Cut())
		})
	}
}

func TestTwoLooksReadTheSameNodes(t *testing.T) {
	srv := recipestest.Start(t)
	root, c := srv.Root(t), client(t, srv)
	dirs := numbered(root, 10)
	var locks []string
	for _, dir := range dirs {
		locks = append(locks, numbered(dir, 1+rand.IntN(30))...)
	}
	makeNodes(t, suite.Session(t, c), nil, locks)
	v := survey.NewViewer(c, root, survey.Limits{Places: 60})
	first := view(t, v)
	require.Len(t, locksOf(first), 50, "each subtree has its share")
	for range 3 {
		p := suite.Got(survey.Look(t.Context(), c, root, survey.Limits{Places: 60}))(t)
		require.Equal(t, first, p)
		require.Equal(t, first, view(t, v))
	}
	for _, place := range first.Below {
		for _, node := range place.Unread {
			require.True(t, place.Misses(node))
		}
		require.False(t, place.Misses("none"))
	}
}
