package doublebarrier_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
)

func TestDoubleBarrierLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	recipetest.Links(t, "doublebarrier")
}
