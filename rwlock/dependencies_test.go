package rwlock_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
)

func TestRecipesLinkNoTestDependencies(t *testing.T) {
	t.Parallel()
	recipetest.Links(t, "rwlock")
}
