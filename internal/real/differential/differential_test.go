package differential_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) {
	suite.Main(m)
}

func TestRandomStepsHaveTheSameEffects(t *testing.T) {
	p := newPair(t)
	rapid.Check(t, func(t *rapid.T) {
		diff, err := p.difference(sequences.Draw(t, "steps"))
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Fatalf("the servers differ:\n%s", diff)
		}
	})
	t.Logf("%d sequences, with these answers and events of the real server:\n%v", p.runs, p.answers)
}
