package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// testPlan returns a plan for the embedded server, with the tests' binary as worker.
func testPlan(t *testing.T) (options, plan, *embeddedEnsemble) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	on, err := startEmbedded(3)
	require.NoError(t, err)
	t.Cleanup(func() { on.Close() })
	names, err := chosen("")
	require.NoError(t, err)
	o := options{seed: 1, lasts: time.Second, members: 3, clients: 3, embedded: true, quiet: true, round: 8 * time.Second}
	return o, plan{
		Seed: o.seed, Recipes: names, Kinds: on.Kinds(), Clients: o.clients, Length: o.round, Timeout: embeddedTimeout, Worker: os.Args[0],
	}, on
}

func TestRunOfAllRecipes(t *testing.T) {
	o, p, on := testPlan(t)
	o.report = filepath.Join(t.TempDir(), "report.html")
	r := newReport(o, on)
	failure, err := o.play(t.Context(), on, p, r)
	require.NoError(t, err)
	assert.Empty(t, failure)
	require.NoError(t, r.write(o.report, failure, nil))
	for _, name := range p.Recipes {
		assert.Positive(t, r.of(name).OK, name)
	}
	assert.NotEmpty(t, r.Faults)
	assert.Positive(t, r.Total().Accepted)

	page, err := os.ReadFile(o.report)
	require.NoError(t, err)
	assert.Contains(t, string(page), "No check has failed.")
	assert.Contains(t, string(page), "<svg")

	// The histories beside the report are judged again.
	var out bytes.Buffer
	failed, err := judgeFile(filepath.Join(filepath.Dir(o.report), "report.json"), &out)
	require.NoError(t, err)
	assert.False(t, failed, out.String())
	assert.Contains(t, out.String(), "1 rounds with")
}

func TestPlantedBugIsFound(t *testing.T) {
	o, p, on := testPlan(t)
	for _, b := range bugs {
		if b.Name != "lock: Check checks nothing" {
			continue
		}
		worker, err := b.build(t.Context(), filepath.Join(t.TempDir(), "worker"))
		require.NoError(t, err)
		p.Worker, p.Recipes = worker, []string{b.Recipe}
		o.lasts = 10 * time.Minute // or until it is found
		failure, err := o.play(t.Context(), on, p, newReport(o, on))
		require.NoError(t, err)
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

func TestProcessThatEndsByItselfIsAFailure(t *testing.T) {
	_, p, on := testPlan(t)
	p.Recipes = []string{"lock"}
	r, err := begin(t.Context(), on, p)
	require.NoError(t, err)
	defer r.end()
	victim := r.fleet.all()[0]
	require.NoError(t, victim.cmd.Process.Kill())
	<-victim.ended
	_, died := r.fleet.take()
	require.Len(t, died, 1)
	assert.Contains(t, died[0], "lock 0 has ended by itself")
}

func TestHoldersHoldOnUntilTheyHaveToHurry(t *testing.T) {
	_, p, on := testPlan(t)
	p.Recipes, p.Timeout = []string{"lock"}, time.Second
	r, err := begin(t.Context(), on, p)
	require.NoError(t, err)
	defer r.end()
	r.fleet.tell(cmdWork)
	var holders []int
	require.Eventually(t, func() bool {
		holders = r.fleet.Holders()
		return len(holders) > 0
	}, time.Minute, time.Millisecond)
	kept := holders[0]
	r.fleet.Keep(kept)
	assert.True(t, r.fleet.keeps(r.fleet.all()[kept]))

	// spell is shorter than that.
	long := func(o *Op) bool { return o.Client == kept && o.Held-o.Begun > Stamp(5*p.Timeout) }
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
	r.fleet.Hurry()
	over := func(o *Op) bool { return long(o) && o.Over > 0 }
	require.Eventually(t, some(over), time.Minute, 10*time.Millisecond)
	assert.False(t, r.fleet.keeps(r.fleet.all()[kept]))
}

func TestNodeThatIsLeftIsFound(t *testing.T) {
	_, p, on := testPlan(t)
	p.Recipes, p.Timeout = []string{"lock"}, time.Second
	r, err := begin(t.Context(), on, p)
	require.NoError(t, err)
	defer r.end()

	// On a busy machine the session may be lost, and the node with it.
	require.Eventually(t, func() bool {
		s, err := recipe.SessionOf(t.Context(), r.observer)
		if err == nil {
			err = s.Create(t.Context(), r.root+"/left", nil, 1)
		}
		if err != nil {
			return false
		}
		nodes, err := ephemerals(t.Context(), s, r.root)
		return err == nil && len(nodes) == 1
	}, time.Minute, 10*time.Millisecond)
}
