package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// testPlan returns a plan for the embedded server, with the tests' binary as worker.
func testPlan(t *testing.T) (plan, *embeddedEnsemble) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	on := suite.Got(startEmbedded(3))(t)
	t.Cleanup(func() { on.Close() })
	names := suite.Got(chosen(""))(t)
	return plan{
		Seed: 1, Recipes: names, Kinds: on.Kinds(), Clients: 3, For: time.Second, Length: 8 * time.Second, Timeout: embeddedTimeout, Worker: os.Args[0],
	}, on
}

func TestRunOfAllRecipes(t *testing.T) {
	p, on := testPlan(t)
	file := suite.Got(os.Create(filepath.Join(t.TempDir(), "histories.json")))(t)
	defer file.Close()
	r := newReport()
	r.histories = file
	failure := suite.Got(p.play(t.Context(), on, r))(t)
	assert.Empty(t, failure)
	// Every recipe has worked, and there were faults and writes.
	for _, name := range p.Recipes {
		assert.Positive(t, r.ok[name], name)
	}
	assert.Positive(t, r.faults)
	assert.Greater(t, r.writes, r.refused)

	// The histories are judged again.
	var out bytes.Buffer
	failed := suite.Got(judgeFile(file.Name(), &out))(t)
	assert.False(t, failed, out.String())
	assert.Contains(t, out.String(), "1 rounds with")
}

func TestPlantedBugIsFound(t *testing.T) {
	p, on := testPlan(t)
	for _, b := range bugs {
		if b.Name != "lock: Check checks nothing" {
			continue
		}
		p.Recipes = []string{b.Recipe}
		require.NoError(t, must.Try(func() { p.Worker = b.build(t.Context(), filepath.Join(t.TempDir(), "worker")) }))
		p.For = 10 * time.Minute // or until it is found
		failure := suite.Got(p.play(t.Context(), on, newReport()))(t)
		assert.Regexp(t, "given back has succeeded|guarded write was executed after one", failure)
	}
}

func TestSeedFixesTheSchedule(t *testing.T) {
	on1, proc1 := draw(7, 3, embeddedKinds, time.Second, time.Minute)
	on2, proc2 := draw(7, 3, embeddedKinds, time.Second, time.Minute)
	assert.Equal(t, on1, on2)
	assert.Equal(t, proc1, proc2)
	assert.NotEmpty(t, on1)
	other, _ := draw(8, 3, embeddedKinds, time.Second, time.Minute)
	assert.NotEqual(t, on1, other)
}

func TestEachKindOfFaultHasItsTurn(t *testing.T) {
	had := make(map[string]bool)
	for round := 0; round < len(embeddedKinds)+1; round += 2 {
		steps, _ := draw(7, round, embeddedKinds, time.Second, time.Hour)
		for _, s := range steps {
			had[s.Kind] = true
		}
	}
	assert.ElementsMatch(t, embeddedKinds, slices.Collect(maps.Keys(had)))
}

// beginLocks begins a run of locks whose sessions last for a second.
func beginLocks(t *testing.T) *run {
	p, on := testPlan(t)
	p.Recipes, p.Timeout = []string{"lock"}, time.Second
	r := suite.Got(begin(t.Context(), on, p))(t)
	t.Cleanup(r.end)
	return r
}

func TestProcessThatEndsByItselfIsAFailure(t *testing.T) {
	r := beginLocks(t)
	victim := r.fleet.all()[0]
	require.NoError(t, victim.cmd.Process.Kill())
	// The end is an answer, but no sooner than the failure is known.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, answered := victim.answer(ctx, cmdProve)
	assert.True(t, answered)
	_, died := r.fleet.take()
	require.Len(t, died, 1)
	assert.Contains(t, died[0], "lock 0 has ended by itself")
}

func TestHoldersHoldOnUntilTheyHaveToHurry(t *testing.T) {
	r := beginLocks(t)
	r.fleet.tell(cmdWork)
	var holders []int
	// One holder keeps its lock for longer than any spell.
	require.Eventually(t, func() bool {
		holders = r.fleet.Holders()
		return len(holders) > 0
	}, time.Minute, time.Millisecond)
	kept := holders[0]
	r.fleet.Keep(kept)
	assert.True(t, r.fleet.keeps(r.fleet.all()[kept]))

	// spell is shorter than that.
	long := func(o *Op) bool { return o.Client == kept && o.Held-o.Begun > Stamp(5*r.Timeout) }
	some := func(is func(*Op) bool) func() bool {
		return func() bool {
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			for _, o := range r.fleet.ops {
				if is(o) {
					return true
				}
			}
			return false
		}
	}
	require.Eventually(t, some(long), time.Minute, 10*time.Millisecond)
	// Hurry makes it release.
	r.fleet.Hurry()
	over := func(o *Op) bool { return long(o) && o.Over > 0 }
	require.Eventually(t, some(over), time.Minute, 10*time.Millisecond)
	assert.False(t, r.fleet.keeps(r.fleet.all()[kept]))
}

func TestNodeThatIsLeftIsFound(t *testing.T) {
	r := beginLocks(t)

	// On a busy machine the session may be lost, and the node with it.
	require.Eventually(t, func() bool {
		s, err := recipe.SessionOf(t.Context(), r.observer)
		if err == nil {
			err = s.Create(t.Context(), r.root+"/left", nil, 1)
		}
		if err != nil {
			return false
		}
		nodes, err := r.ephemerals(t.Context())
		return err == nil && len(nodes) == 1
	}, time.Minute, 10*time.Millisecond)
}
