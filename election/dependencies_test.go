package election_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
)

func TestElectionLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	recipetest.Links(t, "election")
}
