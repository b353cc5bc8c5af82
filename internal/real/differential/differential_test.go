package differential_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/transcript"
)

func TestMain(m *testing.M) {
	suite.Main(m)
}

func TestRandomStepsHaveTheSameEffects(t *testing.T) {
	p := newPair(t)
	rapid.Check(t, func(t *rapid.T) {
		diff, err := p.difference(transcript.Sequences.Draw(t, "steps"))
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Fatalf("the servers differ:\n%s", diff)
		}
	})
	t.Logf("%d sequences", p.runs)
}

func TestCasesHaveTheSameEffects(t *testing.T) {
	p := newPair(t)
	for _, c := range transcript.Cases("3.8") {
		t.Run(c.Name, func(t *testing.T) { p.requireNoDifference(t, c.Steps) })
	}
}

// Without this test the one above might pass as no case shows a difference.
func TestServersOfDifferentVersionsDiffer(t *testing.T) {
	p := newPair(t)
	p.version = map[string]string{"3.8": "3.9", "3.9": "3.8"}[p.version]
	for _, c := range transcript.Cases("3.9") {
		t.Run(c.Name, func(t *testing.T) {
			diff := suite.Got(p.difference(c.Steps))(t)
			require.NotEmpty(t, diff)
		})
	}
}
